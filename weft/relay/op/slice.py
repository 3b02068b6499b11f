"""Slices and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, op
from weft.ir import PrimExpr, as_int, int64, select
from weft.relay.expr import as_expr
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims, dtype_of, is_computed, numbers, rank, shape_argument
from weft.relay.typing import Dims, Value

_END = 2**31 - 1


def _strided_slice(
    data: ir.Expr, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end"
) -> ir.Expr:
    if slice_mode not in ("end", "size"):
        raise error.InvalidArgument(f"strided_slice: unknown slice_mode '{slice_mode}'", expected="end or size")
    if axes is None and slice_mode == "end":  # what is missing at the end of a list is a whole axis
        given = strides if isinstance(strides, tuple) else ()
        begin = (*begin, *[None] * (max(len(end), len(given)) - len(begin)))
    over = tuple(range(len(begin))) if axes is None else tuple(axes)
    steps = _steps(strides, len(begin), slice_mode)
    stops = tuple(end)[: len(begin)]
    if len(stops) < len(begin):
        stops = (*stops, *[_END] * (len(begin) - len(stops)))
    if len(over) > rank(data):
        raise error.ShapeMismatch(
            "strided_slice: more bounds than dimensions",
            expected=f"at most {rank(data)}",
            found=str(len(over)),
            where=data.span,
        )
    starts = tuple(0 if b is None else b for b in begin)
    if slice_mode == "size":
        stops = tuple(_behind(b, n) for b, n in zip(starts, stops, strict=True))
    stops = tuple(_END if e is None else e for e in stops)
    return shared("strided_slice", data, axes=over, begin=starts, end=stops, strides=steps)


def _steps(strides: Any, n: int, slice_mode: str) -> tuple[int, ...]:
    """One constant stride for each bound; a single one is repeated."""
    if strides is None or slice_mode == "size" or strides == ():
        return (1,) * n
    given = strides if isinstance(strides, tuple) else (strides,)
    known = tuple(as_int(s) for s in given)
    if any(s is None for s in known):
        raise error.UnsupportedOperator("strided_slice: a stride must be constant")
    return tuple(known * n if len(known) == 1 else (*known, *[1] * (n - len(known))))  # type: ignore[return-value]


def _behind(begin: Any, size: Any) -> Any:
    """The end of a slice that is given by its size; a negative one means up to the end."""
    b, n = as_int(begin), as_int(size)
    if n is not None and n < 0:
        return _END
    if b is None or n is None:
        return ir.as_shape((begin,))[0] + ir.as_shape((size,))[0]
    return _END if b < 0 and b + n == 0 else b + n


declare(
    "strided_slice",
    "data",
    {"begin": REQUIRED, "end": REQUIRED, "strides": None, "axes": None, "slice_mode": "end"},
    expand=_strided_slice,
    doc="A part of a tensor, with steps; with slice_mode ``size``, `end` are lengths.",
)


def _dyn_strided_slice(
    data: ir.Expr,
    begin: tuple[PrimExpr, ...],
    end: tuple[PrimExpr, ...],
    strides: tuple[PrimExpr, ...],
    axes: Any = None,
    slice_mode: str = "end",
) -> ir.Expr:
    """Count bounds that are computed from the end where they are negative, which constants have done already."""
    given = tuple(range(len(begin))) if axes is None else tuple(axes)
    over = tuple(op.normalize_axis("strided_slice", a, rank(data)) for a in given)
    shape = dims(data)
    if not len(over) == len(begin) == len(end):
        raise error.ShapeMismatch(
            "strided_slice: begin, end and axes differ in length",
            where=data.span,
            expected=f"{len(over)} each",
            found=f"{len(begin)} and {len(end)}",
        )
    if slice_mode == "size":
        end = tuple(
            select(n < int64(0), shape[a], _from_end(b, shape[a]) + n) for a, b, n in zip(over, begin, end, strict=True)
        )
    starts = tuple(_from_end(b, shape[a]) for a, b in zip(over, begin, strict=True))
    stops = tuple(_from_end(e, shape[a]) for a, e in zip(over, end, strict=True))
    return _strided_slice(data, starts, stops, tuple(strides), over)


def _from_end(value: PrimExpr, dim: PrimExpr) -> PrimExpr:
    return (
        value
        if as_int(value) is not None
        else op.simplify(select(value < int64(0), ir.max_(value + dim, int64(0)), value))
    )


declare(
    "dyn.strided_slice",
    "data begin:values end:values strides:values",
    {"axes": None, "slice_mode": "end"},
    expand=_dyn_strided_slice,
    doc="A part of a tensor between bounds that are computed.",
)


@constructs("strided_slice")
def strided_slice(
    data: Value,
    begin: Dims,
    end: Dims,
    strides: Dims | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> ir.Expr:
    """Take a part of a tensor.

    Parameters
    ----------
    data : Expr
        The tensor.
    begin, end : sequence of int or Expr
        The bounds, for the leading axes or for `axes`.
    strides : sequence of int or Expr, optional
        The steps; 1 where they are left out.
    axes : sequence of int, optional
        The axes that are cut.
    slice_mode : str
        ``"end"``, or ``"size"``, where `end` are lengths and negative ones mean up to the end.
    """
    if is_computed((begin, end, strides)):
        count = ir.as_int(begin.ty.shape[0]) if isinstance(begin, ir.Expr) and begin.ty is not None else None
        given: Any = end if isinstance(begin, ir.Expr) else begin
        ones = (1,) * (len(given) if count is None else count)
        parts = (shape_argument(v) for v in (begin, end, ones if strides is None else strides))
        return call("dyn.strided_slice", data, *parts, axes=axes, slice_mode=slice_mode)
    bounds = {"begin": numbers(begin), "end": numbers(end), "strides": numbers(strides)}
    return call("strided_slice", data, **bounds, axes=axes, slice_mode=slice_mode)


def _slice_like(data: ir.Expr, shape_like: ir.Expr, axes: Any = None) -> ir.Expr:
    wanted = dims(shape_like)
    over = op.normalize_axes("slice_like", axes if axes != () else None, rank(data))
    over = tuple(a for a in over if a < len(wanted))
    end = tuple(wanted[a] for a in over)
    return shared("strided_slice", data, axes=over, begin=(0,) * len(over), end=end, assume_inbound=False)


declare(
    "slice_like",
    "data shape_like",
    {"axes": None},
    expand=_slice_like,
    doc="The beginning of each axis, as long as that of another tensor.",
)


def _fifo_buffer(data: ir.Expr, buffer: ir.Expr, axis: int) -> ir.Expr:
    """Join, and keep as much from the end as the buffer holds."""
    at = op.normalize_axis("nn.fifo_buffer", axis, rank(buffer))
    joined, new = shared("concat", (buffer, data), axis=at), dims(data)[at]
    return shared("strided_slice", joined, axes=(at,), begin=(new,), end=(op.simplify(new + dims(buffer)[at]),))


declare(
    "nn.fifo_buffer",
    "data buffer",
    {"axis": REQUIRED},
    expand=_fifo_buffer,
    doc="The buffer with new data at its end along an axis, and as much left out at its beginning.",
)

# --- padding ----------------------------------------------------------------------------------------------------------


def _pad(data: ir.Expr, pad_value: ir.Expr, pad_width: Any, pad_mode: str = "constant") -> ir.Expr:
    flat = tuple(v for pair in pad_width for v in (pair if isinstance(pair, tuple) else (pair,)))
    if pad_mode != "constant" or isinstance(pad_value, ir.Constant):
        value = float(pad_value.data.numpy().reshape(-1)[0]) if isinstance(pad_value, ir.Constant) else 0.0
        return shared("nn.pad", data, pad_width=flat, pad_mode=pad_mode, pad_value=value)
    ones = shared("ones_like", data, dtype="bool")
    inside = shared("nn.pad", ones, pad_width=flat, pad_mode="constant", pad_value=False)
    padded = shared("nn.pad", data, pad_width=flat, pad_mode="constant", pad_value=0.0)
    return shared("where", inside, padded, shared("astype", pad_value, dtype=dtype_of(data)))


declare(
    "nn.pad",
    "data pad_value",
    {"pad_width": REQUIRED, "pad_mode": "constant"},
    expand=_pad,
    doc="Pad each axis before and after, with a value or (reflect, edge) with elements.",
)
declare(
    "dyn.nn.pad",
    "data pad_width:values pad_value",
    {"pad_mode": "constant"},
    expand=lambda data, pad_width, pad_value, pad_mode: _pad(data, pad_value, pad_width, pad_mode),
    doc="Pad by amounts that are computed: a vector of (before, after) for each axis.",
)
declare(
    "nn.mirror_pad",
    "data",
    {"mode": "SYMMETRIC", "pad_width": ()},
    expand=lambda data, mode, pad_width: _mirror_pad(data, mode, pad_width),
    doc="Pad with the mirror image of the elements, with the border (SYMMETRIC) or without (REFLECT).",
)


def _mirror_pad(data: ir.Expr, mode: str, pad_width: tuple[tuple[int, int], ...]) -> ir.Expr:
    if mode == "REFLECT":
        flat = tuple(v for pair in pad_width for v in pair)
        return shared("nn.pad", data, pad_width=flat, pad_mode="reflect")
    if mode != "SYMMETRIC":
        raise error.InvalidArgument(f"nn.mirror_pad: unknown mode '{mode}'", expected="SYMMETRIC or REFLECT")
    for axis, (before, after) in enumerate(pad_width):
        turned = shared("flip", data, axis=axis)
        parts = [_part(turned, axis, -before, _END)] if before else []
        parts += [data, *([_part(turned, axis, 0, after)] if after else [])]
        data = shared("concat", tuple(parts), axis=axis) if len(parts) > 1 else data
    return data


def _part(x: ir.Expr, axis: int, begin: int, end: int) -> ir.Expr:
    return shared("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,))


@constructs("nn.pad")
def pad(
    data: ir.Expr, pad_width: ir.Expr | Sequence[Sequence[int]], pad_value: Value = 0, pad_mode: str = "constant"
) -> ir.Expr:
    """Pad each axis before and after.

    Parameters
    ----------
    data : Expr
        The tensor.
    pad_width : sequence of (int, int) or Expr
        The amounts before and after, for each axis.
    pad_value : number or Expr
        What to pad with.
    pad_mode : str
        ``constant``, ``edge`` or ``reflect``.
    """
    dtype = data.ty.dtype if isinstance(getattr(data, "ty", None), ir.TensorType) else "float32"
    value = as_expr(pad_value, dtype)
    if is_computed(pad_width):
        return call("dyn.nn.pad", data, call("reshape", pad_width, newshape=(-1,)), value, pad_mode=pad_mode)
    if isinstance(pad_width, ir.Constant):
        pad_width = pad_width.data.numpy().tolist()
    return call("nn.pad", data, value, pad_width=numbers(pad_width), pad_mode=pad_mode)


@constructs("nn.mirror_pad")
def mirror_pad(data: Value, pad_width: Sequence[Sequence[int]], mode: str = "SYMMETRIC") -> ir.Expr:
    """Pad with the mirror image of the elements, with the border (SYMMETRIC) or without (REFLECT)."""
    return call("nn.mirror_pad", data, mode=mode, pad_width=numbers(pad_width))
