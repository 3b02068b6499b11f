"""PrefetchStreams: loops that read long stretches of memory ask for what they will read some way ahead."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from weft import arith, ir
from weft.machine import UNKNOWN
from weft.tir.analysis.structure import around, replace_node, stmt_children
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin
from weft.tir.stmt import Evaluate, For, ForKind, LetStmt, Stmt, seq

PREFETCH_MARK = "pragma_prefetch"
"""The annotation of a loop; its value is how many bytes ahead to ask."""

PANEL_MARK = "pragma_prefetch_panel"
"""The annotation of one of the loops of a sum, which stand in each other and read a panel again for each tile of the
loop around them; its value is how many elements further the next panel begins. Each tile asks for another part of the
next panel, so that it comes from memory while there is time: the first tile alone would wait for it."""

_NEAREST, _NEAR = 3, 2  # the first cache, the second
_MOST_LINES = 6
"""Lines that an iteration asks for at most: in products of few rows memory is busy with the panel at hand."""


@ir.function_pass(kind=PrimFunc)
def prefetch_streams(func: PrimFunc, mod: ir.IRModule, *, line_bytes: int = UNKNOWN.cache_line_bytes) -> PrimFunc:
    """Ask, in loops with the annotation ``pragma_prefetch``, for each vector that they load, so many bytes ahead.

    The hardware follows a few streams by itself, and stops at each page; a product that reads a dozen panels of weights
    at once is faster when it is told.

    Loops with ``pragma_prefetch_panel``, and those that stand in each other with them, read a panel of weights once for
    each tile of the loop around all of them. They ask for the next panel, each tile for another part of it.

    Requires: Flat buffers, vectors.
    Ensures: The same form, without the annotations. Addresses past the end of a buffer may be asked for, which does
        nothing.
    Before::

        @T.prim_func
        def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((16,), "float32")):
            for i in T.serial(64, annotations={"pragma_prefetch": 1024}):
                B[T.Ramp(0, 1, 16)] = B[T.Ramp(0, 1, 16)] + A[T.Ramp(i * 16, 1, 16)]

    After::

        @T.prim_func
        def f(A: T.Buffer((1024,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(64):
                T.call_intrin("void", "tir.prefetch", T.address_of(A[i * 16 + 256]), 0, 3, 1)
                B[T.Ramp(0, 1, 16)] = B[T.Ramp(0, 1, 16)] + A[T.Ramp(i * 16, 1, 16)]

    Options:
        ``line_bytes``: the size of a cache line.
    Cost: Linear.
    Source: None.
    """

    def mark(node: Any) -> Any:
        if not isinstance(node.body, For) and any(_asks_for_panels(n) for n in _within(node.body)):
            node = replace_node(node, body=_ask_for_panels(node, line_bytes))
        if PREFETCH_MARK not in node.annotations:
            return node
        ahead = int(node.annotations[PREFETCH_MARK])
        asked = [_ask(load, ahead) for load in _streams(node)]
        return replace_node(node, body=seq(*asked, node.body), annotations=node.annotations.without(PREFETCH_MARK))

    return ir.rewrite(func, mark, only=(For,))


def _streams(loop: For) -> list[BufferLoad]:
    """The vectors that a loop loads from other places in each iteration, each once."""
    found: dict[tuple[Buffer, str], BufferLoad] = {}
    simplify = arith.Analyzer().simplify
    for node in ir.walk(loop.body):
        if not isinstance(node, BufferLoad) or len(node.indices) != 1:
            continue
        index = node.indices[0]
        if not isinstance(index, ir.Ramp) or ir.as_int(index.stride) != 1:
            continue
        if any(v is loop.loop_var for v in ir.walk(index.base)):
            place = simplify(index.base)
            found.setdefault((node.buffer, f"{place} {ir.fingerprint(place)}"), node)
    return list(found.values())


def _ask(load: BufferLoad, ahead: int) -> Stmt:
    base: Any = load.indices[0].base  # type: ignore[attr-defined]
    place = base + ir.const(ahead // ir.DataType(load.buffer.dtype).itemsize, base.dtype)
    return _asked(load, place, _NEAREST)


def _within(body: Any) -> list[Any]:
    """The statements that a loop runs in each iteration, those of inner loops left out."""
    found, stack = [], [body]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, For) and isinstance(node, Stmt):
            stack += list(stmt_children(node))
    return found


def _nest(loop: For) -> list[For]:
    """The loops that stand in each other, from the outermost on."""
    found = [loop]
    while isinstance(found[-1].body, For):
        found.append(found[-1].body)
    return found


def _asks_for_panels(node: ir.Node) -> bool:
    return isinstance(node, For) and any(PANEL_MARK in f.annotations for f in _nest(node))


def _ask_for_panels(tiles: For, line_bytes: int) -> Stmt:
    """Return the body of a loop over tiles, in which marked loops ask for their parts of the next panel."""

    def mark(node: Any) -> Any:
        if not _asks_for_panels(node):
            return None
        nest = _nest(node)
        load = max(_streams(nest[-1]), key=lambda x: ir.DataType(x.dtype).lanes, default=None)
        place = None if load is None else _tile_number(tiles, load.indices[0])
        last = next(i for i, f in enumerate(nest) if PANEL_MARK in f.annotations)
        panel = int(nest[last].annotations[PANEL_MARK])
        nest[last] = replace_node(nest[last], annotations=nest[last].annotations.without(PANEL_MARK))
        body: Stmt = nest[last]
        if load is not None and place is not None:
            line = line_bytes // ir.DataType(load.buffer.dtype).itemsize
            body = _part_of_panel(nest, last, load, panel, line, *place)
        return around(nest[:last], body)

    return ir.rewrite(tiles.body, lambda _: None, pre=mark, only=(For,))


def _tile_number(tiles: For, index: Any) -> tuple[ir.PrimExpr, ir.PrimExpr] | None:
    """Which of the tiles over one panel a loop is at, and how many there are; None where that cannot be seen."""
    var = tiles.loop_var
    if not any(v is var for v in ir.walk(index.base)):
        return var - tiles.min, tiles.extent
    by = {n for n in (ir.as_int(n.b) for n in ir.find(index.base, ir.FloorDiv) if n.a is var) if n is not None}
    return (var % ir.const(min(by), var.dtype), ir.const(min(by), var.dtype)) if by else None


def _part_of_panel(
    nest: list[For], last: int, load: BufferLoad, panel: int, line: int, tile: ir.PrimExpr, n_tiles: ir.PrimExpr
) -> Stmt:
    """Let a loop ask for lines of the next panel, each tile and each iteration of it and those around for others."""
    loop, extents = nest[last], [ir.as_int(f.extent) for f in nest[: last + 1]]
    known = ir.as_int(n_tiles)
    if None in extents or (known is None and last):
        return loop
    steps = prod(n or 1 for n in extents)
    base: Any = load.indices[0].base  # type: ignore[attr-defined]
    t, total = base.dtype, -(-panel // line)
    start = ir.substitute(base, {f.loop_var: f.min for f in nest}) + ir.const(panel, t)

    def ask(number: ir.PrimExpr) -> Stmt:
        return _asked(load, start + number * ir.const(line, number.dtype), _NEAR)

    if known is None:
        return _asking_at_run_time(loop, ask, ir.cast(t, tile), ir.cast(t, n_tiles), total)
    number = ir.cast(t, tile)
    for f, n in zip(nest, extents, strict=False):
        number = number * ir.const(n, t) + ir.cast(t, f.loop_var - f.min)
    steps = max(1, steps * known)
    lines, apart = -(-total // steps), max(1, steps // total)
    number = ir.min_(ir.floordiv(number, ir.const(apart, t)), ir.const(-(-total // lines) - 1, t))
    asked = [ask(number * ir.const(lines, t) + ir.const(i, t)) for i in range(lines)]
    return replace_node(loop, body=seq(*asked, loop.body))


def _asking_at_run_time(
    loop: For, ask: Callable[[ir.PrimExpr], Stmt], tile: ir.PrimExpr, n_tiles: ir.PrimExpr, panel: int
) -> Stmt:
    """Let a loop ask for as many lines as the number of tiles makes it, by a loop of its own every few iterations.

    What is asked for then stays outside of the loop that keeps sums in registers. Tiles behind those that have asked
    for the whole panel, of `panel` lines, ask for nothing.
    """
    steps, t, own = ir.as_int(loop.extent) or 1, tile.dtype, loop.loop_var.dtype
    stretch = next((n for n in (2, 3, 4, 5, 7) if steps % n == 0), 1)

    def number(value: int) -> ir.PrimExpr:
        return ir.const(value, t)

    whole = -(-panel // steps)
    lines, now, i = (ir.Var(name, t) for name in ("lines", "lines_now", "line"))
    block, inner = ir.Var("stretch", own), ir.Var(loop.loop_var.name, own)
    begin = (tile * number(steps) * lines) + ir.cast(t, block) * number(stretch) * now
    asked = For(i, number(0), now * number(stretch), ForKind.SERIAL, ask(begin + i))
    place = loop.min + block * ir.const(stretch, own) + inner
    body = ir.substitute(loop.body, {loop.loop_var: place})
    body = For(inner, ir.const(0, own), ir.const(stretch, own), loop.kind, body)
    blocks = For(block, ir.const(0, own), ir.const(steps // stretch, own), loop.kind, seq(asked, body), span=loop.span)
    share = ir.Min((number(whole - 1) + n_tiles) // n_tiles, number(_MOST_LINES))
    left = ir.Max(ir.Min(lines, number(whole) - tile * lines), number(0))
    return LetStmt(lines, share, LetStmt(now, left, blocks))


def _asked(load: BufferLoad, place: ir.PrimExpr, locality: int) -> Stmt:
    address = call_intrin("handle", "tir.address_of", BufferLoad(load.buffer, (place,)))
    return Evaluate(call_intrin("void", "tir.prefetch", address, 0, locality, 1))
