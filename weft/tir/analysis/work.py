"""How much work a kernel is: operations and bytes, for given shapes of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from weft.arith import Analyzer
from weft.ir import BinaryOp, CallIntrin, DataType, Node, PrimExpr, Select, Var, as_int, children, const, substitute
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt

__all__ = ["Work", "work_of"]


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
    known: dict[Var, Any] = {}
    computed: list[tuple[PrimExpr, int]] = []  # dimensions that are expressions of variables that no argument has
    sizes = []
    for i, buffer in enumerate(buffers):
        given = None if shapes is None or i >= len(shapes) else shapes[i]
        for dim, size in zip(buffer.shape, given or (), strict=False):
            if isinstance(dim, Var):
                known.setdefault(dim, const(size, dim.dtype))
            elif as_int(dim) is None:
                computed.append((dim, size))
        sizes.append(given if given is not None else buffer.shape)
    analyzer = Analyzer()

    def number(e: PrimExpr) -> int | None:
        if as_int(e) is None:
            for dim, size in computed:
                if analyzer.can_prove_equal(dim, e):
                    return size
        return as_int(analyzer.simplify(substitute(e, known)))

    operations = _operations(func.body, number)
    volumes = [_volume(s, number) for s in sizes]
    if operations is None or None in volumes:
        return None
    each = [DataType(b.dtype).itemsize for b in buffers]
    return Work(operations, float(sum(v * n for v, n in zip(volumes, each, strict=True) if v is not None)))


def _volume(shape: Sequence[Any], number: Any) -> int | None:
    dims = [d if isinstance(d, int) else number(d) for d in shape]
    return None if None in dims else prod(d for d in dims if d is not None)


def _operations(stmt: Any, number: Any) -> float | None:
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
