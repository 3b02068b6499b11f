"""FoldQuantization: products of dequantised tensors are computed on the integers behind them.

A model in QDQ form says what its integers are and computes in float32 between them. Here products with constant weights
take the integers and scale their exact sums once; what moves elements (pooling by maximum, reshapes) works on integers;
and all activations become unsigned, as machines multiply bytes: a signed one is the unsigned one with a zero point that
is 128 larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.ir import Attrs, Call, Constant, Expr, Function, IRModule, Op, TensorType, constant, function_pass
from weft.op import make_call
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import MatchCast
from weft.relax.rewriter import rewrite_bindings
from weft.relax.unused import remove_all_unused
from weft.runtime import aligned

__all__ = ["fold_quantization"]

_FORM = ("uint8", "int8", "int32")
_MOVES = frozenset(
    "batch_flatten expand_dims flatten nn.batch_flatten nn.max_pool1d nn.max_pool2d nn.max_pool3d permute_dims reshape "
    "squeeze".split()
)


@function_pass(kind=Function)
def fold_quantization(
    func: Function, mod: IRModule, *, dot_forms: Sequence[tuple[str, str, str, int]] = ()
) -> Function:
    """Compute products of dequantised tensors with dequantised constants on integers.

    Requires
        ``relax.normalized``; dequantised weights are not yet folded to floats.
    Ensures
        ``relax.normalized``; types of results stay. Results differ by the rounding of float32 sums.
    Example
        With ``dot_forms=[("uint8", "int8", "int32", 16)]``, before::

            @R.function
            def main(x: R.Tensor((2, 2), "uint8")):
                with R.dataflow():
                    a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "uint8"))
                    w = R.dequantize(
                        R.const([[1, 2], [3, 4]], "int8"), R.const(0.25, "float32"), R.const(0, "int8")
                    )
                    y = R.matmul(a, w)
                    R.output(y)
                return y

        After::

            @R.function
            def main(x: R.Tensor((2, 2), "uint8")) -> R.Tensor((2, 2), "float32"):
                with R.dataflow():
                    sums: R.Tensor((2, 2), "int32") = R.matmul(x, R.const([[1, 2], [3, 4]], "int8"), out_dtype="int32")
                    wide: R.Tensor((2, 2), "float32") = R.astype(sums, dtype="float32")
                    y: R.Tensor((2, 2), "float32") = R.multiply(wide, R.const(0.125, "float32"))
                    R.output(y)
                return y

    Parameters
    ----------
        ``dot_forms``: the target's dot products of narrow numbers; without one of bytes the function stays.
    Cost
        Linear, plus one pass over the weights.
    Source
        Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2018; TVM's ``FakeQuantizationToInteger`` for Relay.
    """
    if not any(tuple(form[:3]) == _FORM for form in dot_forms):
        return func
    new = rewrite_bindings(func, mod, _Folding().rule)
    return func if new is func else remove_all_unused(new)


class _Quantized(NamedTuple):
    """A value ``(data - zero) * scale`` with uint8 data."""

    data: Any
    scale: float
    zero: int


class _Weights(NamedTuple):
    """Constant weights ``data * scale`` with int8 data, and the axis along which there is a scale each."""

    data: np.ndarray
    scale: np.ndarray
    axis: int


class _Folding:
    """What is known of the values met so far."""

    def __init__(self) -> None:
        self.values: dict[int, _Quantized] = {}  # variables of real numbers
        self.weights: dict[int, _Weights] = {}
        self.unsigned: dict[int, Any] = {}  # int8 variables to their uint8 forms, which are 128 larger
        self.keep: list[Any] = []

    def rule(self, binding: Any, value: Any, bb: Any) -> Expr | None:
        """Replace one value; its type stays."""
        if isinstance(binding, MatchCast) or not isinstance(value, Call) or not isinstance(value.op, Op):
            return None
        name = value.op.name.removeprefix("relax.")
        self.keep.append(binding.var)
        if name in CORE_OPS or not isinstance(value.ty, TensorType):
            return None
        if name == "dequantize":
            return self.dequantize(binding, value, bb)
        if name == "quantize":
            return self.quantize(binding, value, bb)
        data = self.values.get(id(value.args[0])) if value.args else None
        if name == "permute_dims" and id(value.args[0]) in self.weights:
            self.weights[id(binding.var)] = _permuted(self.weights[id(value.args[0])], value.attrs.get("axes"))
            return None
        if data is None:
            return None
        if name in _MOVES:
            moved = bb.emit(Call(value.op, (data.data, *value.args[1:]), value.attrs, span=value.span))
            return self.known(binding, _Quantized(moved, data.scale, data.zero))
        weights = self.weights.get(id(value.args[1])) if len(value.args) > 1 else None
        if weights is None:
            return None
        if name == "matmul" and weights.data.ndim == 2 and value.args[0].ty.ndim > 1:  # type: ignore[attr-defined]
            return _product(value, data, weights, 1, bb)
        if name in ("nn.conv1d", "nn.conv2d", "nn.conv3d") and value.attrs.get("groups", 1) == 1:
            return _product(value, data, weights, 0, bb)
        return None

    def known(self, binding: Any, value: _Quantized) -> Expr:
        """Remember what a variable is, and return its real numbers."""
        self.values[id(binding.var)] = value
        self.keep.append(value.data)
        zero = constant(np.uint8(value.zero))
        return make_call("dequantize")(value.data, constant(np.float32(value.scale)), zero, axis=0)

    def dequantize(self, binding: Any, value: Call, bb: Any) -> Expr | None:
        data, scale, zero = value.args
        if value.ty.dtype != "float32" or not isinstance(scale, Constant) or not isinstance(zero, Constant):  # type: ignore[attr-defined]
            return None
        scales, zeros = scale.data.numpy(), zero.data.numpy()
        if isinstance(data, Constant):
            self.constant_weights(binding, data.data.numpy(), scales, zeros, value.attrs.get("axis", -1))
            return None
        if scales.size != 1 or zeros.size != 1 or data.ty.dtype not in ("uint8", "int8"):  # type: ignore[attr-defined]
            return None
        offset = 0 if data.ty.dtype == "uint8" else 128  # type: ignore[attr-defined]
        return self.known(
            binding, _Quantized(self.as_unsigned(data, bb), float(scales.item()), int(zeros.item()) + offset)
        )

    def constant_weights(
        self, binding: Any, data: np.ndarray, scales: np.ndarray, zeros: np.ndarray, axis: int
    ) -> None:
        if data.dtype == np.uint8:
            data, zeros = (data.astype(np.int16) - 128).astype(np.int8), zeros.astype(np.int32) - 128
        if data.dtype == np.int8 and data.ndim >= 2 and not zeros.any():
            self.weights[id(binding.var)] = _Weights(data, scales.reshape(-1), axis % data.ndim)

    def as_unsigned(self, data: Any, bb: Any) -> Any:
        """Return integers as uint8, converting those that are int8 once."""
        if data.ty.dtype == "uint8":
            return data
        if id(data) not in self.unsigned:
            wide = bb.emit(make_call("astype")(data, dtype="int16"))
            moved = bb.emit(make_call("add")(wide, constant(np.int16(128))))
            self.unsigned[id(data)] = bb.emit(make_call("astype")(moved, dtype="uint8"))
            self.keep.append(data)
        return self.unsigned[id(data)]

    def quantize(self, binding: Any, value: Call, bb: Any) -> Expr | None:
        data, scale, zero = value.args
        dtype = value.ty.dtype  # type: ignore[attr-defined]
        if not isinstance(scale, Constant) or not isinstance(zero, Constant) or dtype not in ("uint8", "int8"):
            return None
        scales, zeros = scale.data.numpy(), zero.data.numpy()
        if scales.size != 1 or zeros.size != 1:
            return None
        point = int(zeros.item()) + (0 if dtype == "uint8" else 128)
        before = self.values.get(id(data))
        if before is not None and (before.scale, before.zero) == (float(scales.item()), point):
            unsigned = before.data
        elif dtype == "uint8":
            return None
        else:
            attrs = value.attrs.with_(out_dtype="uint8")
            unsigned = bb.emit(Call(value.op, (data, scale, constant(np.uint8(point))), attrs, span=value.span))
        if dtype == "uint8":
            return unsigned
        self.unsigned[id(binding.var)] = unsigned
        self.keep.append(unsigned)
        wide = bb.emit(make_call("astype")(unsigned, dtype="int16"))
        return make_call("astype")(bb.emit(make_call("subtract")(wide, constant(np.int16(128)))), dtype="int8")


def _permuted(w: _Weights, axes: Any) -> _Weights:
    order = tuple(a % w.data.ndim for a in axes) if axes is not None else tuple(reversed(range(w.data.ndim)))
    return _Weights(aligned(w.data.transpose(order)), w.scale, order.index(w.axis))


def _product(value: Call, x: _Quantized, w: _Weights, columns: int, bb: Any) -> Expr | None:
    """Sum products of integers, and scale the sums.

    Parameters
    ----------
    columns : int
        The axis of the weights that becomes channels or columns of the result.
    """
    if w.scale.size != 1 and w.axis != columns:
        return None
    attrs = dict(value.attrs.items) | {"out_dtype": "int32"}
    if value.op.name != "relax.matmul":  # type: ignore[union-attr]
        attrs["pad_value"] = x.zero
    sums = bb.emit(Call(value.op, (x.data, constant(aligned(w.data))), Attrs.of(**attrs), span=value.span), "sums")
    rank = value.ty.ndim  # type: ignore[attr-defined]

    def along(v: np.ndarray) -> Constant:
        place = rank - 1 if columns else 1
        return constant(v if v.ndim == 0 else aligned(v.reshape([-1 if i == place else 1 for i in range(rank)])))

    if x.zero:
        taken = w.data.sum(axis=tuple(i for i in range(w.data.ndim) if i != columns), dtype=np.int32) * np.int32(x.zero)
        sums = bb.emit(make_call("subtract")(sums, along(taken)))
    scale = (w.scale.astype(np.float64) * x.scale).astype(np.float32)
    wide = bb.emit(make_call("astype")(sums, dtype="float32"), "wide")
    return make_call("multiply")(wide, along(scale.reshape(()) if scale.size == 1 else scale))
