"""How much work a kernel is: operations and bytes, for given shapes of its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from weft import arith, ir
from weft.ir import BinaryOp, CallIntrin, DataType, Node, PrimExpr, Select, Var, as_int, children, const, substitute
from weft.tir.analysis.structure import child_realizes, path_to, used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse, SeqStmt, Stmt

_COUNTED = (ir.Add, ir.Sub, ir.Mul, ir.Div, ir.Mod, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max)

_NOMINAL = 64
"""What a symbolic dimension is taken to be, but for a first one, which is a batch of one."""


class Work(NamedTuple):
    """Arithmetic on elements, a function such as exp counted as one; bytes of the arguments, each counted once."""

    operations: float
    bytes: float


def work_of(func: PrimFunc, shapes: Sequence[Sequence[int]] | None = None) -> Work | None:
    """Count a function's work; None where a loop's extent follows from data.

    Parameters
    ----------
    func : PrimFunc
        In any form.
    shapes : sequence of sequence of int, optional
        The shapes of its buffers, which say what symbolic dimensions are.
    """
    buffers = [b for _, b in func.buffer_map]
    number, sizes = _sizes(func, shapes)
    operations = _operations(func.body, number)
    volumes = [_volume(s, number) for s in sizes]
    if operations is None or None in volumes:
        return None
    each = [DataType(b.dtype).itemsize for b in buffers]
    return Work(operations, float(sum(v * n for v, n in zip(volumes, each, strict=True) if v is not None)))


def nominal_shapes(func: PrimFunc) -> list[list[int]] | None:
    """Give shapes to a function's buffers where nobody knows them yet: a batch of one, and 64 for other dimensions.

    None where a dimension depends on something else.
    """
    shapes = [b.shape for _, b in func.buffer_map]
    sizes: dict[Any, Any] = {}
    for first in (True, False):
        for v in (d for shape in shapes for d in (shape[:1] if first else shape)):
            for name in used_vars(v):
                sizes.setdefault(name, const(1 if first and name is v else _NOMINAL, name.dtype))
    known = [[as_int(arith.Analyzer().simplify(substitute(d, sizes))) for d in shape] for shape in shapes]
    return [[d for d in shape if d is not None] for shape in known] if all(None not in s for s in known) else None


def block_steps(func: PrimFunc, shapes: Sequence[Sequence[int]] | None = None) -> dict[str, tuple[float, float]]:
    """Count, for each block of a function's root, how often it runs and the operations of all its runs.

    Blocks whose loops' extents follow from data are left out; parameters as for :func:`work_of`.
    """
    number, _ = _sizes(func, shapes)
    body = func.root.body
    found: dict[str, tuple[float, float]] = {}
    for nest in body.seq if isinstance(body, SeqStmt) else (body,):
        for realize in child_realizes(nest):
            trips = [number(f.extent) for f in path_to(nest, lambda s, r=realize: s is r) or () if isinstance(f, For)]
            operations = _operations(realize, number)
            if operations is not None and None not in trips:
                runs = float(prod(n for n in trips if n is not None))
                found[realize.block.name_hint] = (runs, runs * operations)
    return found


def _sizes(func: PrimFunc, shapes: Sequence[Sequence[int]] | None) -> tuple[Any, list[Any]]:
    """Return what says the value of an expression of the dimensions, None where unknown, and the buffers' shapes."""
    known: dict[Var, Any] = {}
    computed: list[tuple[PrimExpr, int]] = []  # dimensions that are expressions of variables that no argument has
    sizes: list[Any] = []
    for i, buffer in enumerate(b for _, b in func.buffer_map):
        given = None if shapes is None or i >= len(shapes) else shapes[i]
        for dim, size in zip(buffer.shape, given or (), strict=False):
            if isinstance(dim, Var):
                known.setdefault(dim, const(size, dim.dtype))
            elif as_int(dim) is None:
                computed.append((dim, size))
        sizes.append(given if given is not None else buffer.shape)
    analyzer = arith.Analyzer()

    def number(e: PrimExpr) -> int | None:
        if as_int(e) is None:
            for dim, size in computed:
                if analyzer.can_prove_equal(dim, e):
                    return size
        return as_int(analyzer.simplify(substitute(e, known)))

    return number, sizes


def _volume(shape: Sequence[Any], number: Any) -> int | None:
    dims = [d if isinstance(d, int) else number(d) for d in shape]
    return None if None in dims else prod(d for d in dims if d is not None)


def _operations(stmt: Stmt, number: Any) -> float | None:
    """The arithmetic of a statement; what only computes indices or conditions does not count."""
    if isinstance(stmt, For):
        extent, inner = number(stmt.extent), _operations(stmt.body, number)
        return None if extent is None or inner is None else extent * inner
    if isinstance(stmt, BufferStore):
        return float(_arithmetic(stmt.value))
    if isinstance(stmt, (BlockRealize, Block)):
        return _operations(stmt.block if isinstance(stmt, BlockRealize) else stmt.body, number)
    total = 0.0
    for field in stmt.__struct_fields__:
        value = getattr(stmt, field)
        for child in value if type(value) is tuple else (value,):
            if isinstance(child, Stmt):
                inner = _operations(child, number)
                if inner is None:
                    return None
                total += inner
    return total


def _arithmetic(value: Any) -> int:
    """Count the operations of an expression, without those in the indices of what it loads."""
    if isinstance(value, BufferLoad) or not isinstance(value, Node):
        return 0
    own = isinstance(value, (BinaryOp, CallIntrin, Select))
    return own + sum(_arithmetic(child) for child in children(value))


def estimate_tir_flops(stmt_or_mod: ir.IRModule | Stmt) -> float:
    """Count the additions, products, quotients and extrema of a module's functions, or of a statement, as TVM does.

    What computes indices and conditions does not count, nor do functions such as exp. Of the branches of a condition
    the larger counts, a loop by the most trips that its extent allows, and one of unknown extent once. A function's
    attribute ``estimated_flops`` stands for it.
    """
    if isinstance(stmt_or_mod, Stmt):
        return float(_flops(stmt_or_mod, arith.Analyzer()).total())
    total = 0.0
    for _, func in stmt_or_mod.items():
        if isinstance(func, PrimFunc):
            given = func.attrs.get("estimated_flops")
            total += float(given) if given is not None else estimate_tir_flops(func.body)
    return total


def _flops(node: Node, analyzer: arith.Analyzer) -> Counter[str]:
    """Count operations by data type."""
    if isinstance(node, For):
        analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent))
        most = analyzer.const_int_bound(node.extent).max_value
        trips = 1 if most >= min(arith.ConstIntBound.POS_INF, (1 << DataType(node.extent.dtype).bits - 1) - 1) else most
        return Counter({k: n * trips for k, n in _flops(node.body, analyzer).items()})
    if isinstance(node, (ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE, BufferLoad, Evaluate)):
        return Counter()
    if isinstance(node, (IfThenElse, Select)):
        first, *branches = (_flops(child, analyzer) for child in children(node))
        return first + (branches[0] | branches[1] if len(branches) > 1 else branches[0])
    inner = (
        (node.value,)
        if isinstance(node, BufferStore)
        else (node.block,)
        if isinstance(node, BlockRealize)
        else tuple(s for s in (node.init, node.body) if s is not None)
        if isinstance(node, Block)
        else tuple(children(node))
    )
    own = Counter({node.dtype: 1}) if isinstance(node, _COUNTED) else Counter[str]()
    return sum((_flops(child, analyzer) for child in inner), own)
