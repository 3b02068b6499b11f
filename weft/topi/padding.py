"""Padding by the names of ``tvm.topi.nn``, and the spreading of elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_int, const, floordiv, floormod, if_then_else
from weft.te import Tensor
from weft.topi.shape import simplify
from weft.topi.slice import constant_pad
from weft.topi.slice import pad as _pad
from weft.topi.typing import Scalar, Shape

Widths = Sequence[Any]


def _both(data: Any, pad_before: Widths, pad_after: Widths | None) -> tuple[list[Any], list[Any]]:
    """The widths before and after each axis; without `pad_after` they are the same."""
    before, after = list(pad_before), list(pad_after if pad_after is not None else pad_before)
    for name, widths in (("pad_before", before), ("pad_after", after)):
        if len(widths) != data.ndim:
            raise ShapeMismatch(f"pad: {name} has a wrong length", expected=str(data.ndim), found=str(len(widths)))
    return before, after


def pad(
    data: Tensor,
    pad_before: Widths,
    pad_after: Widths | None = None,
    pad_value: Scalar = 0.0,
    name: str = "PadInput",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Pad each axis with a value, `pad_before` and (by default as many) `pad_after`."""
    before, after = _both(data, pad_before, pad_after)
    return constant_pad(data, list(zip(before, after, strict=True)), pad_value, name)


def _padded(data: Any, pad_before: Widths, pad_after: Widths | None, mode: str, name: str) -> Any:
    widths = [w for pair in zip(*_both(data, pad_before, pad_after), strict=True) for w in pair]
    return _pad(data, widths, mode, name=name)


def mirror_pad(
    data: Tensor,
    pad_before: Widths,
    pad_after: Widths | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Any:
    """Pad with the elements reflected at the borders, which `mode` ``SYMMETRIC`` repeats and ``REFLECT`` does not."""
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise InvalidArgument(f"unknown mode of mirror_pad '{mode}'", expected="SYMMETRIC or REFLECT")
    return _padded(data, pad_before, pad_after, mode.lower(), name)


def reflect_pad(
    data: Tensor, pad_before: Widths, pad_after: Widths | None = None, name: str = "ReflectPadInput"
) -> Any:
    """Pad with the elements reflected at the borders, which are not repeated."""
    return _padded(data, pad_before, pad_after, "reflect", name)


def replicate_pad(
    data: Tensor, pad_before: Widths, pad_after: Widths | None = None, name: str = "ReplicatePadInput"
) -> Any:
    """Pad by repeating the elements at the borders."""
    return _padded(data, pad_before, pad_after, "replicate", name)


def circular_pad(
    data: Tensor, pad_before: Widths, pad_after: Widths | None = None, name: str = "CircularPadInput"
) -> Any:
    """Pad with the elements of the other end."""
    return _padded(data, pad_before, pad_after, "circular", name)


def get_padded_shape(data: Tensor, pad_before: Widths, pad_after: Widths | None = None) -> tuple[Any, ...]:
    """The shape of a tensor with padding."""
    before, after = _both(data, pad_before, pad_after)
    return tuple(simplify(d + b + a) for d, b, a in zip(data.shape, before, after, strict=True))


def dilate(data: Tensor, strides: Shape, dilation_value: Scalar = 0.0, name: str = "DilatedInput") -> Any:
    """Spread the elements `strides` apart, with `dilation_value` between them."""
    if len(strides) != data.ndim:
        raise ShapeMismatch("dilate: one stride an axis", expected=str(data.ndim), found=str(len(strides)))
    fill = const(dilation_value, data.dtype) if isinstance(dilation_value, (int, float)) else dilation_value

    def element(*i: Any) -> Any:
        spread = [d for d, s in enumerate(strides) if as_int(s) != 1]
        value = data(*(floordiv(v, strides[d]) if d in spread else v for d, v in enumerate(i)))
        if not spread:
            return value
        return if_then_else(tir.all(*(floormod(i[d], strides[d]).equal(0) for d in spread)), value, fill)

    shape = tuple(simplify((d - 1) * s + 1) for d, s in zip(data.shape, strides, strict=True))
    return te.compute(shape, element, name=name)
