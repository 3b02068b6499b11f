"""Matrix products and biases."""

from typing import Any

from weft import error, ir
from weft.op import tensor_arg
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import axis_of, dims, rank, vector, vectors
from weft.relay.types import TensorType


def _swapped(x: ir.Expr, swap: bool) -> ir.Expr:
    """Transpose the last two axes."""
    if not swap:
        return x
    axes = list(range(rank(x)))
    axes[-2:] = axes[:-3:-1]
    return shared("permute_dims", x, axes=tuple(axes))


def _checked_units(op: str, weight: ir.Expr, outputs: ir.PrimExpr, units: Any) -> None:
    if units is not None and ir.as_int(outputs) not in (None, int(units)):
        raise error.ShapeMismatch(
            f"{op}: 'units' is not the number of outputs of the weight",
            expected=str(outputs),
            found=str(units),
            where=weight.span,
        )


def _dense(data: ir.Expr, weight: ir.Expr, units: Any = None, out_dtype: str = "") -> ir.Expr:
    shape = tensor_arg("nn.dense", "weight", weight, ndim=2).shape
    tensor_arg("nn.dense", "data", data, min_ndim=1)
    _checked_units("nn.dense", weight, shape[0], units)  # type: ignore[index]
    return _by_rows(data, weight, out_dtype)


def _by_rows(data: ir.Expr, weight: ir.Expr, out_dtype: str) -> ir.Expr:
    """Multiply by the rows of a matrix. For one row of data, transposing would cost more than the product."""
    if not isinstance(weight, ir.Constant) and all(ir.as_int(d) == 1 for d in dims(data)[:-1]):
        return shared("linear", data, weight, out_dtype=out_dtype)
    return shared("matmul", data, _swapped(weight, True), out_dtype=out_dtype)


def _matmul(
    tensor_a: ir.Expr, tensor_b: ir.Expr, units: Any, out_dtype: str, transpose_a: bool, transpose_b: bool
) -> ir.Expr:
    tensor_arg("nn.matmul", "tensor_a", tensor_a, min_ndim=2 if transpose_a else 1)
    shape = tensor_arg("nn.matmul", "tensor_b", tensor_b, ndim=2).shape
    _checked_units("nn.matmul", tensor_b, shape[0 if transpose_b else 1], units)  # type: ignore[index]
    data = _swapped(tensor_a, transpose_a)
    if transpose_b:
        return _by_rows(data, tensor_b, out_dtype)
    return shared("matmul", data, tensor_b, out_dtype=out_dtype)


def _batch_matmul(
    tensor_a: ir.Expr, tensor_b: ir.Expr, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
) -> ir.Expr:
    tensor_arg("nn.batch_matmul", "tensor_a", tensor_a, ndim=3)
    tensor_arg("nn.batch_matmul", "tensor_b", tensor_b, ndim=3)
    return shared("matmul", _swapped(tensor_a, transpose_a), _swapped(tensor_b, transpose_b), out_dtype=out_dtype)


def _bias_add(data: ir.Expr, bias: ir.Expr, axis: int = 1) -> ir.Expr:
    at = axis_of("nn.bias_add", data, axis)
    vector("nn.bias_add", "bias", bias, dims(data)[at])
    after = rank(data) - at - 1
    wide = shared("expand_dims", bias, axis=tuple(range(1, after + 1))) if after else bias
    return shared("add", data, wide)


def _weight(data: TensorType, units: Any, transposed: bool = True, **_: Any) -> tuple[TensorType | None]:
    """The weight's type where the number of outputs is given."""
    if units is None:
        return (None,)
    inputs = data.shape[-1]  # type: ignore[index]
    return (TensorType((units, inputs) if transposed else (inputs, units), data.dtype),)


declare(
    "nn.dense",
    "data weight",
    {"units": None, "out_dtype": ""},
    expand=_dense,
    completes=_weight,
    doc="``data @ weight.T``, with weight (units, inputs).",
)
declare(
    "nn.matmul",
    "tensor_a tensor_b",
    {"units": None, "out_dtype": "", "transpose_a": False, "transpose_b": False},
    expand=_matmul,
    completes=lambda data, transpose_a, transpose_b, **attrs: (
        (None,) if transpose_a else _weight(data, transposed=transpose_b, **attrs)
    ),
    doc="Matrix product of a tensor and a matrix, each transposed as asked.",
)
declare(
    "nn.batch_matmul",
    "tensor_a tensor_b",
    {"out_dtype": "", "transpose_a": False, "transpose_b": True},
    expand=_batch_matmul,
    doc="Matrix products of two batches, by default with the second transposed; a batch of 1 is repeated.",
)
declare(
    "nn.bias_add", "data bias", {"axis": 1}, expand=_bias_add, completes=vectors(1), doc="Add a vector along an axis."
)
declare(
    "einsum",
    "data:tensors",
    {"equation": ""},
    expand=lambda data, equation: shared("einsum", data, subscripts=equation),
    doc="Einstein summation.",
)
