"""Rules about dimensions and axes that computations and type inference share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft import arith, error
from weft.ir import IntImm, PrimExpr, as_int, floordiv, floormod, int64
from weft.topi.typing import Axes, Extent, Whole

_ANALYZER = arith.Analyzer()


def simplify(expr: PrimExpr) -> PrimExpr:
    """Simplify a dimension."""
    return expr if isinstance(expr, IntImm) else _ANALYZER.simplify(expr)


def product(dims: Sequence[PrimExpr]) -> PrimExpr:
    """Multiply dimensions."""
    return simplify(prod(dims, start=int64(1)))


def equal_dims(a: Extent, b: Extent) -> bool:
    """Whether two dimensions are provably equal."""
    if a is b:
        return True
    x, y = as_int(a), as_int(b)
    return x == y if x is not None and y is not None else _ANALYZER.can_prove_equal(a, b)


def whole(value: object) -> int:
    """Return an integer that must be known.

    Raises
    ------
    InvalidArgument
        When it is an expression of variables, or none of numbers.
    """
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as e:
        found = str(value)
        raise error.InvalidArgument("a size, stride or axis must be known", expected="an integer", found=found) from e


def normalize_axis(op: str, axis: Whole, ndim: int) -> int:
    """Bring an axis into 0..ndim-1.

    Raises
    ------
    ShapeMismatch
        When it is out of range.
    """
    value = whole(axis)
    if not -ndim <= value < max(ndim, 1):
        raise error.ShapeMismatch(f"{op}: axis out of range", expected=f"-{ndim}..{ndim - 1}", found=str(value))
    return value % ndim if ndim else 0


def normalize_axes(op: str, axes: Axes, ndim: int) -> tuple[int, ...]:
    """Bring axes (None: all of them) into range and order."""
    if axes is None:
        return tuple(range(ndim))
    values = tuple(normalize_axis(op, a, ndim) for a in (axes if isinstance(axes, Sequence) else (axes,)))
    if len(set(values)) != len(values):
        raise error.ShapeMismatch(f"{op}: an axis is repeated", found=str(values))
    return tuple(sorted(values))


def ravel(indices: Sequence[Any], shape: Sequence[PrimExpr]) -> Any:
    """The position of an element in row-major order."""
    flat: Any = int64(0)
    for i, d in zip(indices, shape, strict=True):
        flat = flat * d + i
    return flat


def unravel(index: Extent, shape: Sequence[PrimExpr]) -> list[Any]:
    """The indices of an element from its position in row-major order."""
    if any(as_int(d) == 0 for d in shape):
        return [int64(0) for _ in shape]  # there is no element
    out: list[Any] = []
    for n, d in enumerate(reversed(shape)):
        out.append(floormod(index, d) if n < len(shape) - 1 else index)
        index = floordiv(index, d)
    return list(reversed(out))
