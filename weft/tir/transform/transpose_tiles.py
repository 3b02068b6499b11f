"""TransposeTiles: a square tile that is read along one axis and written along the other turns in registers.

Without it each vector that is stored gathers its lanes one by one. With it whole vectors are loaded along the axis on
which the source is contiguous, change places by a network of shuffles, and wait in a local tile to be read along the
other axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import arith, ir
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.structure import calls, conjuncts
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.transform.vectorize import lanes_of

TILE_MARK = "pragma_transpose"
"""The annotation of the outer loop of a tile; its body is a vectorised loop of the same extent."""

_UNIT = 16  # bytes within which an interleaving is one instruction on every machine


@ir.function_pass(kind=PrimFunc, name="TransposeTiles")
def transpose_tiles(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Transpose marked tiles in registers.

    Requires: Flat buffers.
    Ensures: The same form; a marked tile whose loads are not contiguous along its outer loop becomes a serial loop.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in T.serial(2, annotations={"pragma_transpose": 1}):
                for j in T.vectorized(2):
                    B[i * 2 + j] = A[j * 2 + i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            A_tile = T.alloc_buffer((T.int64(4),), "float32", scope="local")
            with T.LetStmt(
                A[T.Ramp(T.Add(T.Mul(T.int32(0), T.int32(2)), T.int32(0)), 1, 2)],
                var=T.Var("", "float32x2"),
            ) as t:
                with T.LetStmt(
                    A[T.Ramp(T.Add(T.Mul(T.int32(1), T.int32(2)), T.int32(0)), 1, 2)],
                    var=T.Var("", "float32x2"),
                ) as t_1:
                    with T.LetStmt(T.Shuffle((t, t_1), (0, 2)), var=T.Var("", "float32x2")) as t_2:
                        with T.LetStmt(T.Shuffle((t, t_1), (1, 3)), var=T.Var("", "float32x2")) as t_3:
                            A_tile[T.Ramp(T.int64(0), T.int64(1), 2)] = t_2
                            A_tile[T.Ramp(T.int64(2), T.int64(1), 2)] = t_3
                            for i in T.unroll(2):
                                for j in T.vectorized(2):
                                    B[i * 2 + j] = A_tile[i * 2 + j]
    Cost: Linear; n log2 n shuffles for a tile of n rows.
    Source: The exchange of halves, quarters, ... of Eklundh, 1972.
    """
    return func.replace(body=_visit(func.body))


def _visit(node: ir.Node) -> Any:
    if not isinstance(node, Stmt):
        return node
    if isinstance(node, For) and node.annotations.get(TILE_MARK) is not None:
        return _turned(node)
    return ir.rebuild(node, _visit)


class _Tile:
    """A marked tile: two loops, the guards on each, one store."""

    def __init__(self, outer: For, inner: For, store: BufferStore, guards: list[ir.PrimExpr]) -> None:
        self.outer, self.inner, self.store = outer, inner, store
        self.n = ir.as_int(outer.extent) or 0
        self.rows = [c for c in guards if _uses(c, inner.loop_var)]  # of the source: the inner loop picks one
        self.lanes = [c for c in guards if _uses(c, outer.loop_var)]


def _match(outer: For) -> _Tile | None:
    """Recognise ``for a: [if] for b: [if] dst[.. + b] = ..``; None where the tile cannot be turned."""
    guards: list[ir.PrimExpr] = []
    inner = _unguarded(outer.body, guards)
    if not isinstance(inner, For) or inner.kind != ForKind.VECTORIZED:
        return None
    store = _unguarded(inner.body, guards)
    n = ir.as_int(outer.extent)
    if not isinstance(store, BufferStore) or n is None or n != ir.as_int(inner.extent) or n & (n - 1) or n < 2:
        return None
    if store.predicate is not None or _step(store.indices[0], inner.loop_var) != 1:
        return None
    if any(isinstance(x, ir.Let) or calls(x, "if_then_else") for x in ir.walk(store.value)):
        return None
    if any(_uses(c, inner.loop_var) and _uses(c, outer.loop_var) for c in guards):
        return None
    return _Tile(outer, inner, store, guards)


def _unguarded(stmt: Stmt, guards: list[ir.PrimExpr]) -> Stmt:
    while isinstance(stmt, IfThenElse) and stmt.else_case is None:
        guards += conjuncts(stmt.condition)[::-1]
        stmt = stmt.then_case
    return stmt


def _uses(expr: ir.PrimExpr, var: ir.Var) -> bool:
    return any(x is var for x in ir.walk(expr))


def _turned(outer: For) -> Stmt:
    tile = _match(outer)
    loads = [] if tile is None else _turning_loads(tile)
    if tile is None or not loads:  # gathers; a loop, not as many copies as it has iterations
        return For(outer.loop_var, outer.min, outer.extent, ForKind.SERIAL, outer.body, span=outer.span)
    n, inner = tile.n, tile.inner
    local: dict[Any, Buffer] = {}
    for load in loads:
        name = load.buffer.name + "_tile"
        shape = (ir.IntImm("int64", n * n),)
        local[load] = Buffer(ir.Var(name, "handle"), load.dtype, shape, (), None, name, "local")
    at = (outer.loop_var - outer.min) * ir.const(n, outer.loop_var.dtype) + (inner.loop_var - inner.min)

    def from_tile(node: ir.Node) -> Any:
        buffer = local.get(node)
        return node if buffer is None else BufferLoad(buffer, (at,), span=node.span)

    result: Stmt = For(outer.loop_var, outer.min, outer.extent, ForKind.UNROLLED, ir.rewrite(outer.body, from_tile))
    for load in reversed(loads):
        result = AllocBuffer(local[load], _filled(load, local[load], tile, result))
    return result


def _turning_loads(tile: _Tile) -> list[BufferLoad]:
    """List the loads that are contiguous along the outer loop and not along the inner one."""
    analyzer = arith.Analyzer()
    return [
        load
        for load in loads_of(tile.store.value)
        if load.predicate is None
        and load.buffer.data is not tile.store.buffer.data
        and _step(load.indices[0], tile.outer.loop_var, analyzer) == 1
        and _step(load.indices[0], tile.inner.loop_var, analyzer) not in (0, 1)
    ]


def _step(index: ir.PrimExpr, var: ir.Var, analyzer: arith.Analyzer | None = None) -> int | None:
    """By how much an index grows with a variable, where that is a constant; the sentinel None means that it is not."""
    analyzer = analyzer or arith.Analyzer()
    return ir.as_int(analyzer.simplify(ir.substitute(index, {var: var + ir.const(1, var.dtype)}) - index))


def _filled(load: BufferLoad, buffer: Buffer, tile: _Tile, body: Stmt) -> Stmt:
    """Load the rows of a tile, turn them, store them in the local tile, then run `body`.

    What a guard keeps from being stored is not loaded either.
    """
    lets: list[tuple[ir.Var, ir.PrimExpr]] = []
    n, outer, inner = tile.n, tile.outer, tile.inner
    dtype = ir.with_lanes(load.dtype, n)

    def bound(value: ir.PrimExpr) -> ir.Var:
        var = ir.Var("t", value.dtype)
        lets.append((var, value))
        return var

    lanes = None
    for c in tile.lanes:
        mask = lanes_of(c, outer)
        lanes = mask if lanes is None else ir.And(lanes, mask)
    lanes = None if lanes is None else bound(lanes)
    rows = []
    for i in range(n):
        here = {inner.loop_var: inner.min + ir.const(i, inner.loop_var.dtype)}
        at = ir.substitute(load.indices[0], {**here, outer.loop_var: outer.min})
        predicate = lanes
        for c in tile.rows:
            row = ir.Broadcast(ir.substitute(c, here), n)
            predicate = row if predicate is None else ir.And(predicate, row)
        rows.append(bound(BufferLoad(load.buffer, (ir.Ramp(at, ir.const(1, at.dtype), n),), predicate, span=load.span)))
        assert rows[-1].dtype == dtype
    columns = transpose_network(rows, max(1, _UNIT // ir.DataType(load.dtype).itemsize), bound)
    stores = [
        BufferStore(buffer, v, (ir.Ramp(ir.IntImm("int64", i * n), ir.IntImm("int64", 1), n),))
        for i, v in enumerate(columns)
    ]
    result = seq(*stores, body)
    for var, value in reversed(lets):
        result = LetStmt(var, value, result)
    return result


def transpose_network(rows: list[ir.Var], unit: int, bound: Callable[[ir.PrimExpr], ir.Var]) -> list[ir.Var]:
    """Shuffle ``n`` vectors of ``n`` lanes so that vector ``i`` of the result holds lane ``i`` of each.

    First neighbours are interleaved within units of `unit` lanes, at growing distance and width; then whole units
    change places. Each vector's content is tracked, so that the order of the result need not be derived.

    Parameters
    ----------
    rows : list of Var
        The vectors, as many as each has lanes, a power of two.
    unit : int
        Lanes that one instruction interleaves.
    bound : callable
        Gives a value a name.
    """
    n = len(rows)
    unit = min(unit, n)
    held = [[(i, lane) for lane in range(n)] for i in range(n)]
    registers = list(rows)
    distance = 1
    while distance < n:
        picks = _interleave(n, unit, distance) if distance < unit else _alternate(n, unit)
        for i in range(n):
            if i & distance:
                continue
            pair, both = (registers[i], registers[i + distance]), held[i] + held[i + distance]
            for slot, pick in zip((i, i + distance), picks, strict=True):
                registers[slot] = bound(ir.Shuffle(pair, tuple(ir.int32(p) for p in pick)))
                held[slot] = [both[p] for p in pick]
        distance *= 2
    place = {tuple(h): r for h, r in zip(held, registers, strict=True)}
    return [place[tuple((i, lane) for i in range(n))] for lane in range(n)]


def _interleave(n: int, unit: int, width: int) -> tuple[list[int], list[int]]:
    """Picks that interleave groups of `width` lanes of the lower, and of the upper, half of each unit of two rows."""
    low, high = [], []
    for start in range(0, n, unit):
        for picks, half in ((low, start), (high, start + unit // 2)):
            for group in range(half, half + unit // 2, width):
                picks += [*range(group, group + width), *range(n + group, n + group + width)]
    return low, high


def _alternate(n: int, unit: int) -> tuple[list[int], list[int]]:
    """Picks of the even, and of the odd, units of two vectors."""
    starts = range(0, 2 * n, unit)
    even = [lane for k, start in enumerate(starts) if k % 2 == 0 for lane in range(start, start + unit)]
    odd = [lane for k, start in enumerate(starts) if k % 2 == 1 for lane in range(start, start + unit)]
    return even, odd
