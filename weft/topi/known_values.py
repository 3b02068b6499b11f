"""What schedules and tests ask of shapes that are known (``tvm.topi.utils``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, error, ir, te, tir
from weft.target import Target
from weft.topi.tag import is_injective
from weft.topi.typing import Extent, Scalar


def simplify(expr: Scalar) -> Any:
    """Simplify an expression; numbers stay."""
    return arith.Analyzer().simplify(expr) if isinstance(expr, ir.PrimExpr) else expr


def get_const_int(expr: Extent) -> int:
    """Return the integer that an expression is.

    Raises
    ------
    ValueError
        When it is none.
    """
    known = ir.as_int(simplify(expr))
    if known is None:
        raise error.InvalidArgument("no constant integer", found=str(expr))
    return known


def get_const_float(expr: Scalar) -> float:
    """Return the number that an expression of floats is.

    Raises
    ------
    ValueError
        When it is none.
    """
    known = simplify(expr)
    if not isinstance(known, (float, ir.FloatImm)):
        raise error.InvalidArgument("no constant float", found=str(expr))
    return float(known.value if isinstance(known, ir.FloatImm) else known)


def equal_const_int(expr: Extent, value: int) -> bool:
    """Whether an expression is that integer."""
    return ir.as_int(simplify(expr)) == value


def get_const_tuple(in_tuple: Sequence[Any]) -> tuple[Any, ...]:
    """Return a shape with its known dimensions as ints; variables and unknown dimensions stay."""
    simple = [simplify(d) for d in in_tuple]
    return tuple(d if ir.as_int(d) is None else ir.as_int(d) for d in simple)


def get_float_tuple(in_tuple: Sequence[Any]) -> tuple[float, ...]:
    """Return constants as floats."""
    return tuple(float(e) if isinstance(e, (int, float)) else get_const_float(e) for e in in_tuple)


def get_shape(src_shape: Sequence[Any], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """Return a shape in the order of another layout of the same letters."""
    if src_layout == dst_layout:
        return get_const_tuple(src_shape)
    if sorted(src_layout) != sorted(dst_layout) or not src_layout.isalpha():
        raise error.InvalidArgument(
            "layouts of the same axes differ in order alone", found=f"{src_layout}, {dst_layout}"
        )
    return get_const_tuple([src_shape[src_layout.index(c)] for c in dst_layout])


def prod(x: Sequence[Any]) -> Any:
    """Multiply dimensions; of none the product is 1."""
    made: Any = ir.const(1, "int32")
    for i, d in enumerate(x):
        made = made * d if i else d
    return made


def ceil_div(a: Scalar, b: Scalar) -> Any:
    """Divide and round up."""
    return tir.indexdiv(a + (b - 1), b)


def swap(arr: Sequence[Any], axis: int) -> list[Any]:
    """Return the sequence with the element of an axis at its end."""
    return [*arr[:axis], *arr[axis + 1 :], arr[axis]]


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """Return the greatest power of 2 that divides a number, up to a limit."""
    factor = 1
    while n % 2 == 0 and n and (max_value is None or factor * 2 <= max_value):
        factor, n = factor * 2, n // 2
    return factor


def is_empty_shape(shape: Sequence[Any]) -> bool:
    """Whether a tensor of that shape has no elements, for sure."""
    return any(ir.as_int(simplify(d)) == 0 for d in shape)


def is_dynamic_shape(shape: Sequence[Any]) -> bool:
    """Whether a dimension is a variable or not known."""
    return any(isinstance(d, (tir.Var, ir.AnyDim)) for d in shape)


def is_target(names: str | Sequence[str]) -> bool:
    """Whether the current target is of one of these kinds or has one of these keys."""
    wanted = {names} if isinstance(names, str) else set(names)
    target = Target.current()
    return target is not None and bool(wanted & {*target.keys, target.kind.name})


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the offset of indices in a tensor that lies row by row."""
    made: Any = None
    for i, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        made = made * extent + index if i else index
    return made


def unravel_index(idx: Extent, shape: Sequence[Any]) -> list[Any]:
    """Return the indices of an offset."""
    found = []
    for extent in reversed(shape):
        found.append(tir.indexmod(idx, extent))
        idx = tir.indexdiv(idx, extent)
    return found[::-1]


def within_index(b: Extent, e: Extent, s: Extent, i: ir.PrimExpr) -> Any:
    """Whether an index is one of ``b, b + s, ...`` before `e`; `s` may be negative."""
    up, down = tir.all(s > 0, i >= b, i < e), tir.all(s < 0, i <= b, i > e)
    return tir.all(tir.any(up, down), tir.floormod(i - b, s).equal(0))


def make_idx(b: Extent, e: Extent, s: Extent, z: Extent, i: ir.PrimExpr) -> Any:
    """Return the place in a slice of an index within ``b, b + s, ...`` before `e`, of a dimension of size `z`."""
    first = tir.if_then_else(b < 0, b + z, b)
    return tir.if_then_else(within_index(first, e, s, i), tir.indexdiv(i - first, s), 88888888)


def traverse_inline(s: te.Schedule, final_op: te.Operation, callback: Callable[[te.Operation], None]) -> None:
    """Inline the injective operations that an operation of a schedule stands on, and call back on each operation."""
    visited: set[Any] = set()

    def visit(op: Any) -> None:
        if op in visited:
            return
        visited.add(op)
        if is_injective(op.tag):
            if op not in s.outputs:
                s[op].compute_inline()
            for tensor in op.input_tensors:
                if tensor.op.input_tensors:
                    visit(tensor.op)
        callback(op)

    visit(final_op)


def _is_blocked(letters: str, layout: str) -> bool:
    return re.fullmatch(rf"{letters}\d+c", layout) is not None


def ncw_xc_layout(layout_info: str) -> bool:
    """Whether a layout is NCW with blocks of channels."""
    return _is_blocked("NCW", layout_info)


def nchw_xc_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of channels."""
    return _is_blocked("NCHW", layout_info)


def ncw_pack_layout(layout_info: str) -> bool:
    """Whether a layout is NCW with blocks of samples and channels."""
    return layout_info.startswith("NCW") and "c" in layout_info and "n" in layout_info


def nchw_pack_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of samples and channels."""
    return layout_info.startswith("NCHW") and "c" in layout_info and "n" in layout_info
