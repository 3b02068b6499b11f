"""Realizing: what was rounded as integers would be becomes integers, each with the step that it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir
from weft.relay.expr import Call, Constant, Function, Tuple, const
from weft.relay.op.registry import op_call
from weft.relay.qnn.requantization import requantized
from weft.relay.quantize.config import current_qconfig
from weft.relay.quantize.forward import TempExpr, forward_op, forward_rewrite, rewriting_pass

_KEY = "FQRealizeRewrite"


class QRealizeIntExpr(TempExpr):
    """Whole numbers, of data type `dtype`, that count steps of `dom_scale`; float32 where nothing has cast them yet."""

    data: Any
    dom_scale: float
    dtype: str

    def realize(self) -> Any:
        """Return the numbers that they stand for."""
        return op_call("multiply", op_call("cast", self.data, dtype="float32"), const(np.float32(self.dom_scale)))


def realize() -> ir.Pass:
    """Make the pass that computes with integers what ``simulated_quantize`` rounds and products make of it."""

    def rewrite(func: Function) -> Function:
        """Replace ``simulated_quantize`` and what is computed from it by integers."""
        return forward_rewrite(func, _KEY)

    return rewriting_pass("QuantizeRealize", rewrite)


def _realizes(names: str) -> Callable[[Any], Any]:
    """Register a rule for calls all of whose arguments are integers; other calls stay on floats."""

    def register(fn: Callable[[Call, list[Any]], Any]) -> Any:
        def rule(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
            args = [a for arg in new_args for a in (arg.fields if type(arg) is Tuple else (arg,))]
            return fn(ref_call, args) if all(isinstance(a, QRealizeIntExpr) for a in args) else None

        for name in names.split():
            ir.register_op_attr(name, _KEY, rule)
        return fn

    return register


def _cast(x: QRealizeIntExpr, dtype: str) -> Any:
    return x.data if x.dtype == dtype else op_call("cast", x.data, dtype=dtype)


def _number(value: float, dtype: str) -> Constant:
    return const(np.array(value, dtype))


def _scaled(x: QRealizeIntExpr, scale: float, ndim: int) -> Any:
    """Return the integers, as wide as accumulators, that count steps of another scale."""
    config, factor = current_qconfig(), x.dom_scale / scale
    dtype = config.dtype_activation
    data, power = _cast(x, dtype), math.log2(factor)
    if power == 0:
        return data
    if power != int(power) or abs(power) >= ir.DataType(dtype).bits:
        one, zero = const(np.float32(1)), const(np.int32(0))
        return requantized(
            data,
            const(np.float32(factor)),
            zero,
            one,
            zero,
            rounding=config.rounding,
            compute_dtype="int64",
            out_dtype=dtype,
            ndim=ndim,
        )
    if power > 0:
        return op_call("left_shift", data, _number(power, dtype))
    if config.round_for_shift:
        data = op_call("add", data, _number(2 ** (-power - 1), dtype))
    return op_call("right_shift", data, _number(-power, dtype))


def _quantize(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    x, *limits = new_args
    scale, low, high = (float(v.data.numpy()) for v in limits)
    if not isinstance(x, QRealizeIntExpr):
        steps = op_call("round", op_call("multiply", x, const(np.float32(1 / scale))))
        return QRealizeIntExpr(op_call("clip", steps, a_min=low, a_max=high), scale, "float32")
    same = x.dom_scale == scale
    ty: Any = ref_call.ty
    data = x.data if same else _scaled(x, scale, ty.ndim)
    return QRealizeIntExpr(
        op_call("clip", data, a_min=low, a_max=high), scale, x.dtype if same else current_qconfig().dtype_activation
    )


ir.register_op_attr("relay.op.annotation.simulated_quantize", _KEY, _quantize)


@_realizes("nn.conv1d nn.conv2d nn.dense nn.batch_matmul")
def _product(ref_call: Call, args: list[Any]) -> Any:
    config = current_qconfig()
    operands = (_cast(a, dtype) for a, dtype in zip(args, (config.dtype_input, config.dtype_weight), strict=True))
    made = forward_op(ref_call, operands, out_dtype=config.dtype_activation)
    return QRealizeIntExpr(made, args[0].dom_scale * args[1].dom_scale, config.dtype_activation)


@_realizes("multiply")
def _multiply(ref_call: Call, args: list[Any]) -> Any:
    dtype = current_qconfig().dtype_activation
    made = forward_op(ref_call, (_cast(a, dtype) for a in args))
    return QRealizeIntExpr(made, args[0].dom_scale * args[1].dom_scale, dtype)


def _aligned(refs: Any, args: list[Any]) -> tuple[list[Any], float]:
    """Return integers that count the same steps, the finest of all, and that step."""
    scale = min(a.dom_scale for a in args)
    return [_scaled(a, scale, r.ty.ndim) for a, r in zip(args, refs, strict=True)], scale


@_realizes("add subtract")
def _add(ref_call: Call, args: list[Any]) -> Any:
    operands, scale = _aligned(ref_call.args, args)
    return QRealizeIntExpr(forward_op(ref_call, operands), scale, current_qconfig().dtype_activation)


@_realizes("concatenate")
def _concatenate(ref_call: Call, args: list[Any]) -> Any:
    joined: Any = ref_call.args[0]
    fields, scale = _aligned(joined.fields, args)
    return QRealizeIntExpr(forward_op(ref_call, (Tuple(tuple(fields)),)), scale, current_qconfig().dtype_activation)


@_realizes("clip")
def _clip(ref_call: Call, args: list[Any]) -> Any:
    (x,) = args
    limits = {n: float(round(ref_call.attrs[n] / x.dom_scale)) for n in ("a_min", "a_max")}
    return QRealizeIntExpr(forward_op(ref_call, (x.data,), **limits), x.dom_scale, x.dtype)


@_realizes("annotation.stop_fusion nn.batch_flatten nn.relu reshape strided_slice transpose")
def _same(ref_call: Call, args: list[Any]) -> Any:
    (x,) = args
    return QRealizeIntExpr(forward_op(ref_call, (x.data,)), x.dom_scale, x.dtype)


def _in(ref_call: Call, x: QRealizeIntExpr, dtype: str) -> Any:
    return QRealizeIntExpr(forward_op(ref_call, (_cast(x, dtype),)), x.dom_scale, dtype)


@_realizes("nn.max_pool1d nn.max_pool2d")
def _max_pool(ref_call: Call, args: list[Any]) -> Any:
    return _in(ref_call, args[0], current_qconfig().dtype_input)


@_realizes("nn.avg_pool2d")
def _avg_pool(ref_call: Call, args: list[Any]) -> Any:
    return _in(ref_call, args[0], current_qconfig().dtype_activation)


@_realizes("annotation.cast_hint")
def _hint(ref_call: Call, args: list[Any]) -> Any:
    (x,) = args
    return QRealizeIntExpr(_cast(x, ref_call.attrs["dtype"]), x.dom_scale, ref_call.attrs["dtype"])
