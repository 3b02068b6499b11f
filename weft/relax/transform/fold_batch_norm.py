"""FoldBatchNorm: batch normalisation at inference is a scale and a shift, which convolution weights absorb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir import Attrs, Call, Constant, Expr, Function, IRModule, Op, TupleGetItem, constant, function_pass
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding
from weft.relax.rewriter import all_bindings, rewrite_bindings, use_counts

_CONVS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


@function_pass(kind=Function, opt_level=1)
def fold_batch_norm(func: Function, mod: IRModule) -> Function:
    """Turn ``batch_norm(x)`` of constants into ``x * scale + shift``, and fold both into a convolution before it.

    Requires: ``relax.normalized``, layouts with channels second.
    Ensures: ``relax.normalized``; no batch_norm with constant parameters.
    Before::

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")):
            with R.dataflow():
                y = R.nn.batch_norm(
                    x,
                    R.const([2.0, 2.0], "float32"),
                    R.const([1.0, 1.0], "float32"),
                    R.const([0.0, 0.0], "float32"),
                    R.const([1.0, 1.0], "float32"),
                    epsilon=0.0,
                )
                z = y[0]
                R.output(z)
            return z

    After::

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")):
            with R.dataflow():
                scaled = R.multiply(x, R.const([[[[2.0]], [[2.0]]]], "float32"))
                shifted = R.add(scaled, R.const([[[[1.0]], [[1.0]]]], "float32"))
                y = R.nn.batch_norm(
                    x,
                    R.const([2.0, 2.0], "float32"),
                    R.const([1.0, 1.0], "float32"),
                    R.const([0.0, 0.0], "float32"),
                    R.const([1.0, 1.0], "float32"),
                    epsilon=0.0,
                )
                z = shifted
                R.output(z)
            return z
    Cost: Linear, plus one pass over the folded weights.
    Source: The algebra of Ioffe and Szegedy, 2015, section 3.1; TVM's ``FoldBatchnormToConv2D``.
    """
    values = {b.var: b.value for b in all_bindings(func)}
    firsts = {v.tuple_value for v in values.values() if isinstance(v, TupleGetItem) and v.index == 0}
    uses = use_counts(func)
    normalised: dict[Expr, Expr] = {}

    def definition(var: Any) -> Any:
        return values.get(var)

    def rule(binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
        if isinstance(value, Call) and is_op(value, "nn.batch_norm"):
            alone = isinstance(value.ty, type(value.args[0].ty))
            new = _fold(value, definition, uses, bb) if alone or binding.var in firsts else None
            if new is None or alone:
                return new
            normalised[binding.var] = bb.emit(new)
            return None
        if isinstance(value, TupleGetItem) and value.index == 0 and value.tuple_value in normalised:
            return normalised[value.tuple_value]
        values[binding.var] = value
        return None

    return rewrite_bindings(func, mod, rule)


def _array(expr: Expr) -> np.ndarray | None:
    return expr.data.numpy() if isinstance(expr, Constant) else None


def _fold(call: Call, definition: Any, uses: dict[Expr, int], bb: BlockBuilder) -> Expr | None:
    """Return the replacement of a batch_norm call, or None when its parameters are not constant."""
    params = [_array(a) for a in call.args[1:5]]
    if any(p is None for p in params) or call.args[0].ty.ndim < 2:
        return None
    gamma, beta, mean, var = (p.astype(np.float64) for p in params)  # type: ignore[union-attr]
    if not call.attrs.get("scale", True):
        gamma = np.ones_like(gamma)
    if not call.attrs.get("center", True):
        beta = np.zeros_like(beta)
    scale = gamma / np.sqrt(var + call.attrs.get("epsilon", 1e-5))
    shift = beta - mean * scale
    data = call.args[0]
    dtype, ndim = data.ty.dtype, data.ty.ndim
    axis = call.attrs.get("axis", 1) % ndim
    conv, bias = convolution_before(data, definition, uses) if axis == 1 else (None, None)
    if conv is not None:
        weight = _array(conv.args[1])
        scaled = constant(weight * scale.reshape(-1, *[1] * (weight.ndim - 1)).astype(weight.dtype))  # type: ignore[union-attr]
        data = bb.emit(Call(conv.op, (conv.args[0], scaled), conv.attrs, span=conv.span))
        shift = shift + (0 if bias is None else bias * scale)
        return per_channel("add", data, shift, dtype, ndim, axis)
    scaled_data = bb.emit(per_channel("multiply", data, scale, dtype, ndim, axis))
    return per_channel("add", scaled_data, shift, dtype, ndim, axis)


def per_channel(name: str, data: Expr, values: np.ndarray, dtype: str, ndim: int, axis: int) -> Call:
    """Make a call on a tensor and a constant that has a number for each place along one of its axes."""
    shape = tuple(-1 if i == axis else 1 for i in range(ndim))
    return Call(Op.get("relax." + name), (data, constant(values.reshape(shape), dtype)), Attrs.of())


def before_bias(data: Expr, definition: Callable[[Expr], Any], uses: dict[Expr, int]) -> tuple[Any, np.ndarray | None]:
    """Find the call behind `data`, or behind additions of constants per channel; None where others read its result.

    Returns the call and the sum of the constants.
    """
    value, bias, rank = definition(data), None, getattr(data.ty, "ndim", 0)
    while is_op(value, "add") and uses.get(data) == 1:
        found = channels_of(value.args[1], rank)
        if found is None:
            return None, None
        bias = found if bias is None else bias + found
        data = value.args[0]
        value = definition(data)
    return (value, bias) if uses.get(data) == 1 else (None, None)


def channels_of(expr: Expr, ndim: int) -> np.ndarray | None:
    """Return the numbers of a constant that has one for all or for each channel of tensors with so many dimensions."""
    found = _array(expr)
    if found is None or found.size not in (1, found.shape[1 - ndim] if found.ndim >= ndim - 1 else -1):
        return None
    return found.reshape(-1).astype(np.float64)


def convolution_before(
    data: Expr, definition: Callable[[Expr], Any], uses: dict[Expr, int]
) -> tuple[Call | None, np.ndarray | None]:
    """Find ``conv(x, constant)`` or ``conv(x, constant) + constant per channel`` behind `data`, used only here."""
    value, bias = before_bias(data, definition, uses)
    if not any(is_op(value, c) for c in _CONVS) or _array(value.args[1]) is None:
        return None, None
    layouts = value.attrs.get("kernel_layout", "OIHW"), value.attrs.get("data_layout", "NCHW")
    if (layouts[0][:2], layouts[1][:2]) != ("OI", "NC") or not all(map(str.isalpha, layouts)):
        return None, None
    return value, bias
