"""JoinConvolutions: convolutions of one tensor that are added are one convolution, whose weights are their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.ir import Call, Constant, Expr, Function, IRModule, TensorType, constant, function_pass, structural_equal
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding
from weft.relax.rewriter import all_bindings, rewrite_bindings, use_counts
from weft.relax.transform.fold_batch_norm import before_bias, channels_of, convolution_before, per_channel


@function_pass(kind=Function, opt_level=1)
def join_convolutions(func: Function, mod: IRModule) -> Function:
    """Add the weights of parallel convolutions, where the window of one lies within that of the other.

    What networks are trained with for the sake of training alone goes: branches of smaller windows, and of a scale for
    each channel, which the middle of the other's window takes.

    Requires: ``relax.normalized``, layouts with channels second.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((1, 1, 4), "float32")):
            with R.dataflow():
                a = R.nn.conv1d(x, R.const([[[1.0, 2.0, 4.0]]], "float32"), padding=[1, 1])
                b = R.nn.conv1d(x, R.const([[[3.0]]], "float32"))
                c = R.add(a, b)
                R.output(c)
            return c

    After::

        @R.function
        def main(x: R.Tensor((1, 1, 4), "float32")):
            with R.dataflow():
                a = R.nn.conv1d(x, R.const([[[1.0, 2.0, 4.0]]], "float32"), padding=[1, 1])
                b = R.nn.conv1d(x, R.const([[[3.0]]], "float32"))
                joined = R.nn.conv1d(x, R.const([[[1.0, 5.0, 4.0]]], "float32"), padding=[1, 1])
                c = joined
                R.output(c)
            return c
    Cost: Linear, plus one pass over the weights for each sum.
    Source: Ding et al., 2021, RepVGG, section 3.3.
    """
    values = {b.var: b.value for b in all_bindings(func)}
    uses = use_counts(func)

    def rule(binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
        values[binding.var] = value
        if not is_op(value, "add"):
            return None
        branches = [_branch(a, value.ty, values, uses) for a in value.args]  # type: ignore[attr-defined]
        made = _joined(*sorted((b for b in branches if b is not None), key=lambda b: -math.prod(b.window or (0,))))
        if made is None:
            return None
        joined: Any = bb.emit(made.call)
        values[joined], uses[joined] = made.call, uses[binding.var]
        if not made.bias.any():
            return joined
        uses[joined] = 1
        values[binding.var] = per_channel("add", joined, made.bias, joined.ty.dtype, joined.ty.ndim, 1)
        return values[binding.var]

    return rewrite_bindings(func, mod, rule)


@dataclass
class _Branch:
    """A convolution or a scale, what is added to it for each channel, and its window, which a scale has none of."""

    call: Call
    bias: np.ndarray
    window: tuple[int, ...]


def _branch(expr: Expr, whole: Any, values: dict[Any, Expr], uses: dict[Expr, int]) -> _Branch | None:
    """Return what computes an operand of a sum, for tensors of the sum's own shape."""
    ty = getattr(expr, "ty", None)
    if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype not in ("float32", "float64"):
        return None
    if ty.ndim < 3 or not structural_equal(ty, whole):
        return None
    call, bias = convolution_before(expr, values.get, uses)
    window = call.args[1].data.shape[2:] if call is not None else ()  # pyright: ignore[reportArgumentType]
    if call is None:
        call, bias = before_bias(expr, values.get, uses)
        if not is_op(call, "multiply") or channels_of(call.args[1], ty.ndim) is None:
            return None
    return _Branch(call, np.zeros(1) if bias is None else bias, tuple(window))


def _joined(large: _Branch | None = None, small: _Branch | None = None) -> _Branch | None:
    """Return the convolution that computes the sum of both, None where there is none."""
    if small is None or large is None or not large.window or large.call.args[0] is not small.call.args[0]:
        return None
    conv, weights = large.call, large.call.args[1]
    assert isinstance(weights, Constant)
    strides, dilation, padding = (_by_dimension(conv, k) for k in ("strides", "dilation", "padding"))
    kept = _by_dimension(small.call, "padding") if small.window else np.zeros_like(padding)
    shift, rest = np.divmod((padding - kept)[: len(strides)], dilation)
    room = np.subtract(large.window, small.window or 1)
    if rest.any() or (shift < 0).any() or (shift > room).any() or conv.attrs.get("pad_value"):
        return None
    total = weights.data.numpy().astype(np.float64)
    if small.window:
        if _attributes(conv) != _attributes(small.call):
            return None
        inside = tuple(slice(a, a + n) for a, n in zip(shift, small.window, strict=True))
        total[(slice(None), slice(None), *inside)] += small.call.args[1].data.numpy()  # type: ignore[attr-defined]
    else:
        channels = np.arange(len(total))
        if (strides != 1).any() or len(total) != conv.attrs["groups"] * total.shape[1]:
            return None
        total[(channels, channels % total.shape[1], *shift)] += channels_of(small.call.args[1], total.ndim)
    new = Call(conv.op, (conv.args[0], constant(total, weights.data.dtype)), conv.attrs, span=conv.span)
    return _Branch(new, large.bias + small.bias, large.window)


def _attributes(conv: Call) -> dict[str, Any]:
    return {"op": conv.op, **{k: v for k, v in conv.attrs.items() if k != "padding"}}


def _by_dimension(conv: Call, name: str) -> np.ndarray:
    """Return an attribute that may be one number for all dimensions."""
    dims = (conv.args[0].ty.ndim - 2) * (2 if name == "padding" else 1)
    return np.resize(np.ravel(conv.attrs.get(name, int(name != "padding"))), dims)
