"""Reductions and scans. `axis` None or () means all axes; `exclude` reduces all axes but those given."""

from typing import Any

import numpy as np

from weft import ir, op
from weft.relay.expr import Tuple, TupleWrapper
from weft.relay.op.construct import call, constructs
from weft.relay.op.create import scalars
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import dims, dtype_of, excluded, rank
from weft.relay.typing import Value
from weft.topi.typing import Axes

_ATTRS: dict[str, Any] = {"axis": None, "keepdims": False, "exclude": False}


def _reduction(name: str) -> Any:
    def expand(data: ir.Expr, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> ir.Expr:
        return shared(name, data, axis=excluded(name, axis, exclude, rank(data)), keepdims=keepdims)

    return expand


_DOCS = {
    "sum": "The sum of the elements over axes.",
    "prod": "The product of the elements over axes.",
    "max": "The greatest element over axes.",
    "min": "The least element over axes.",
    "mean": "The arithmetic mean over axes.",
    "all": "Whether all elements over axes are true.",
    "any": "Whether any element over axes is true.",
}

for _name, _doc in _DOCS.items():
    declare(_name, "data", _ATTRS, expand=_reduction(_name), doc=_doc)


def _arg(name: str) -> Any:
    def expand(
        data: ir.Expr, axis: Any = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False
    ) -> ir.Expr:
        """Reduce one axis; several are moved to the end and merged."""
        ndim = rank(data)
        over = op.normalize_axes(name, excluded(name, axis, exclude, ndim), ndim)
        kept = [i for i in range(ndim) if i not in over]
        shape = dims(data)
        if len(over) != 1:
            moved = shared("permute_dims", data, axes=(*kept, *over)) if ndim else data
            merged = (*(shape[i] for i in kept), op.product([shape[i] for i in over]))
            data, over = shared("reshape", moved, ir.shape_expr(merged)), (len(kept),)
            out = _index(name, data, over[0], False, select_last_index)
            full = [ir.int64(1) if i not in kept else shape[i] for i in range(ndim)]
            return shared("reshape", out, ir.shape_expr(full)) if keepdims else out
        return _index(name, data, over[0], keepdims, select_last_index)

    return expand


def _index(name: str, data: ir.Expr, axis: int, keepdims: bool, last: bool) -> ir.Expr:
    return shared(name, data, axis=axis, keepdims=keepdims, select_last_index=last, dtype="int32")


for _name in ("argmax", "argmin"):
    declare(
        _name,
        "data",
        {**_ATTRS, "select_last_index": False},
        expand=_arg(_name),
        doc=f"The int32 index of the {_name[3:]}imum, the first (or last) of equals.",
    )

# --- statistics -------------------------------------------------------------------------------------------------------


def _variance(data: ir.Expr, mean: ir.Expr, axis: Any, keepdims: bool, exclude: bool, unbiased: bool) -> ir.Expr:
    over = excluded("variance", axis, exclude, rank(data))
    apart = shared("subtract", data, mean)
    square = shared("multiply", apart, apart)
    if not unbiased:
        return shared("mean", square, axis=over, keepdims=keepdims)
    total = shared("sum", square, axis=over, keepdims=keepdims)
    shape = dims(data)
    count = op.product([shape[i] for i in op.normalize_axes("variance", over, len(shape))])
    return shared("divide", total, number(count - ir.int64(1), dtype_of(data)))


def number(value: ir.PrimExpr, dtype: str) -> ir.Expr:
    """Return a dimension as a scalar tensor of a data type."""
    known = ir.as_int(value)
    if known is not None:
        return ir.constant(np.array(known, ir.numpy_dtype(dtype)))
    return shared("astype", shared("squeeze", scalars((value,), "int64"), axis=(0,)), dtype=dtype)


declare(
    "variance",
    "data mean",
    {**_ATTRS, "unbiased": False},
    expand=_variance,
    doc="The variance over axes about a mean that keeps the axes with extent 1.",
)


@constructs("variance")
def variance(
    data: Value,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Value | None = None,
) -> ir.Expr:
    """Compute the variance over axes, divided by n, or by n - 1 where it is unbiased.

    Parameters
    ----------
    data : Expr
        The tensor.
    with_mean : Expr, optional
        The mean, with the axes kept, where it is known already.
    """
    mean = call("mean", data, axis=axis, keepdims=True, exclude=exclude) if with_mean is None else with_mean
    return call("variance", data, mean, axis=axis, keepdims=keepdims, exclude=exclude, unbiased=unbiased)


@constructs("std")
def std(
    data: Value,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Value | None = None,
) -> ir.Expr:
    """Compute the standard deviation over axes."""
    return call("sqrt", variance(data, axis, keepdims, exclude, unbiased, with_mean))


@constructs("mean_variance")
def mean_variance(
    data: Value, axis: Axes = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> TupleWrapper:
    """Compute the mean and the variance over axes."""
    mean = call("mean", data, axis=axis, keepdims=True, exclude=exclude)
    var = variance(data, axis, keepdims, exclude, unbiased, mean)
    return TupleWrapper(Tuple((mean if keepdims else call("mean", data, axis=axis, exclude=exclude), var)), 2)


@constructs("mean_std")
def mean_std(data: Value, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> TupleWrapper:
    """Compute the mean and the standard deviation over axes."""
    mean, var = mean_variance(data, axis, keepdims, exclude)
    return TupleWrapper(Tuple((mean, call("sqrt", var))), 2)


# --- scans ------------------------------------------------------------------------------------------------------------

for _name, _what in (("cumsum", "sum"), ("cumprod", "product")):
    declare(
        _name,
        "data",
        {"axis": None, "dtype": "", "exclusive": False},
        expand=lambda data, axis, dtype, exclusive, _name=_name: shared(
            _name, data, axis=axis, dtype=dtype or "", exclusive=bool(exclusive)
        ),
        doc=f"The running {_what} along an axis, of all elements where it is None.",
    )
