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
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import Binding, MatchCast
from weft.relax.infer import same_shape
from weft.relax.rewriter import rewrite_bindings
from weft.relax.transform.element_moves import VIEWS
from weft.relax.transform.fold_constant import evaluate
from weft.relax.unused import remove_all_unused
from weft.runtime import aligned

_FORM = ("uint8", "int8", "int32")
_COLUMNS = {"matmul": 1, "nn.conv1d": 0, "nn.conv2d": 0, "nn.conv3d": 0}
"""Products, and the axis of their weights that becomes columns or channels of the result."""


@function_pass(kind=Function)
def fold_quantization(
    func: Function, mod: IRModule, *, dot_forms: Sequence[tuple[str, str, str, int]] = ()
) -> Function:
    """Compute products of dequantised tensors with dequantised constants on integers.

    Requires: ``relax.normalized``; dequantised weights are not yet folded to floats.
    Ensures: ``relax.normalized``; types of results stay. Results differ by the rounding of float32 sums.
    With ``dot_forms=[("uint8", "int8", "int32", 16)]``, before::

        @R.function
        def main(x: R.Tensor((2, 2), "uint8")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "uint8"))
                w = R.dequantize(R.const([[1, 2], [3, 4]], "int8"), R.const(0.25, "float32"), R.const(0, "int8"))
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

    Options:
        ``dot_forms``: the target's dot products of narrow numbers; without one of bytes the function stays.
    Cost: Linear, plus one pass over the weights.
    Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2018; TVM's ``FakeQuantizationToInteger`` for Relay.
    """
    if not any(tuple(form[:3]) == _FORM for form in dot_forms):
        return func
    new = rewrite_bindings(func, mod, _Folding().rule)
    return func if new is func else remove_all_unused(new, mod)


class _Quantized(NamedTuple):
    """A value ``(data - zero) * scale`` with uint8 data; `channels` as in :class:`_Affine`."""

    data: Any
    scale: float
    zero: int
    channels: tuple[int, int] | None = None


class _Affine(NamedTuple):
    """A sum of integer tensors, each times a factor, and an offset; numbers, or one for each channel.

    `channels` are the axis of the channels and how many they are; `positive` says that negative values become 0.
    """

    terms: tuple[tuple[Any, np.ndarray], ...]
    offset: np.ndarray
    channels: tuple[int, int] | None
    positive: bool = False


class _Weights(NamedTuple):
    """Constant weights ``data * scale`` with int8 data, and the axis along which there is a scale each."""

    data: np.ndarray
    scale: np.ndarray
    axis: int


class _Folding:
    """What is known of the values met so far."""

    def __init__(self) -> None:
        self.values: dict[Expr, _Quantized] = {}  # variables of real numbers
        self.weights: dict[Expr, _Weights] = {}
        self.sums: dict[Expr, _Affine] = {}
        self.unsigned: dict[Expr, Any] = {}  # int8 variables to their uint8 forms, which are 128 larger
        self.channels: dict[Expr, tuple[int, int]] = {}  # of integers that come from products

    def rule(self, binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
        """Replace one value; its type stays."""
        if isinstance(binding, MatchCast) or not isinstance(value, Call) or not isinstance(value.op, Op):
            return None
        name = value.op.name.removeprefix("relax.")
        if name in CORE_OPS or not isinstance(value.ty, TensorType):
            return None
        own = {"dequantize": self.dequantize, "quantize": self.quantize, "add": self.follow, "nn.relu": self.follow}
        if name in own:
            return own[name](binding, value, bb)
        if name in VIEWS:
            return self.move(binding, value, bb)
        if name in _COLUMNS and value.args[0] in self.values and value.args[1] in self.weights:
            return self.product(binding, value, _COLUMNS[name], bb)
        return None

    def move(self, binding: Binding, value: Call, bb: BlockBuilder) -> Expr | None:
        """Move integers in place of what they stand for."""
        source = value.args[0]
        if isinstance(source, Constant):
            return evaluate(value)
        if source in self.weights and value.op.name == "relax.permute_dims":  # type: ignore[union-attr]
            self.weights[binding.var] = _permuted(self.weights[source], value.attrs.get("axes"))
        data = self.values.get(source)
        if data is None:
            return None
        moved = bb.emit(Call(value.op, (data.data, *value.args[1:]), value.attrs, span=value.span))
        return self.known(binding, _Quantized(moved, data.scale, data.zero))

    def affine(self, e: Expr) -> _Affine | None:
        """Return what is known of a value as a sum of integers."""
        if e in self.sums:
            return self.sums[e]
        q = self.values.get(e)
        if q is None:
            return None
        scale = np.float64(q.scale)
        return _Affine(((q.data, np.asarray(scale)),), np.asarray(-q.zero * scale), q.channels)

    def follow(self, binding: Binding, value: Call, _bb: BlockBuilder) -> None:
        """Remember a sum of sums, one with a constant, or one without its negative values."""
        first = self.affine(value.args[0])
        if first is None or first.positive:
            return
        if value.op.name == "relax.nn.relu":  # type: ignore[union-attr]
            self.sums[binding.var] = first._replace(positive=True)
            return
        other = value.args[1]
        second = self.affine(other)
        if isinstance(other, Constant):
            offset = _by_channel(other.data.numpy(), first.channels, value.ty.ndim)  # type: ignore[attr-defined]
            if offset is not None:
                self.sums[binding.var] = first._replace(offset=first.offset + offset)
        elif second is not None and not second.positive and len(first.terms) == len(second.terms) == 1:
            channels = first.channels or second.channels
            if same_shape(value.args[0].ty.shape, other.ty.shape) and second.channels in (None, channels):
                self.sums[binding.var] = _Affine(first.terms + second.terms, first.offset + second.offset, channels)

    def product(self, binding: Binding, value: Call, columns: int, bb: BlockBuilder) -> Expr | None:
        """Sum products of integers, and scale the sums.

        Parameters
        ----------
        columns : int
            The axis of the weights that becomes channels or columns of the result.
        """
        x, w = self.values[value.args[0]], self.weights[value.args[1]]
        plain = value.args[0].ty.ndim > 1 and w.data.ndim == 2 if columns else value.attrs.get("groups", 1) == 1  # type: ignore[attr-defined]
        if not plain or (w.scale.size != 1 and w.axis != columns):
            return None
        attrs = dict(value.attrs.items) | {"out_dtype": "int32"}
        if value.op.name != "relax.matmul":  # type: ignore[union-attr]
            attrs["pad_value"] = x.zero
        sums = bb.emit(Call(value.op, (x.data, constant(aligned(w.data))), Attrs.of(**attrs), span=value.span), "sums")
        rank = value.ty.ndim  # type: ignore[attr-defined]
        channels = (rank - 1 if columns else 1, w.data.shape[columns])
        scale = w.scale.astype(np.float64) * x.scale
        by_column = w.data.sum(axis=tuple(i for i in range(w.data.ndim) if i != columns), dtype=np.int64)
        factor, offset = scale.reshape(()) if scale.size == 1 else scale, -(x.zero * by_column) * scale
        self.sums[binding.var] = _Affine(((sums, factor),), offset, channels)
        wide = bb.emit(make_call("astype")(sums, dtype="float32"), "wide")
        scaled = make_call("multiply")(wide, _along(factor, channels if factor.ndim else None, rank))
        if not x.zero:
            return scaled
        return make_call("add")(bb.emit(scaled, "scaled"), _along(offset, channels, rank))

    def known(self, binding: Binding, value: _Quantized) -> Expr:
        """Remember what a variable is, and return its real numbers."""
        self.values[binding.var] = value
        zero = constant(np.uint8(value.zero))
        return make_call("dequantize")(value.data, constant(np.float32(value.scale)), zero, axis=0)

    def dequantize(self, binding: Binding, value: Call, bb: BlockBuilder) -> Expr | None:
        data, scale, zero = value.args
        if value.ty.dtype != "float32" or not isinstance(scale, Constant) or not isinstance(zero, Constant):  # type: ignore[attr-defined]
            return None
        scales, zeros = scale.data.numpy(), zero.data.numpy()
        if isinstance(data, Constant):
            if data.ty.dtype == "int32":  # type: ignore[attr-defined]
                return evaluate(value)  # a bias
            self.constant_weights(binding, data.data.numpy(), scales, zeros, value.attrs.get("axis", -1))
            return None
        if scales.size != 1 or zeros.size != 1 or data.ty.dtype not in ("uint8", "int8"):  # type: ignore[attr-defined]
            return None
        offset = 0 if data.ty.dtype == "uint8" else 128  # type: ignore[attr-defined]
        unsigned = self.as_unsigned(data, bb)
        channels = self.channels.get(unsigned)
        return self.known(binding, _Quantized(unsigned, float(scales.item()), int(zeros.item()) + offset, channels))

    def constant_weights(
        self, binding: Binding, data: np.ndarray, scales: np.ndarray, zeros: np.ndarray, axis: int
    ) -> None:
        if data.dtype == np.uint8:
            data, zeros = (data.astype(np.int16) - 128).astype(np.int8), zeros.astype(np.int32) - 128
        if data.dtype == np.int8 and data.ndim >= 2 and not zeros.any():
            self.weights[binding.var] = _Weights(data, scales.reshape(-1), axis % data.ndim)

    def as_unsigned(self, data: Any, bb: BlockBuilder) -> Any:
        """Return integers as uint8, converting those that are int8 once."""
        if data.ty.dtype == "uint8":
            return data
        if data not in self.unsigned:
            wide = bb.emit(make_call("astype")(data, dtype="int16"))
            moved = bb.emit(make_call("add")(wide, constant(np.int16(128))))
            self.unsigned[data] = bb.emit(make_call("astype")(moved, dtype="uint8"))
        return self.unsigned[data]

    def quantize(self, binding: Binding, value: Call, bb: BlockBuilder) -> Expr | None:
        data, scale, zero = value.args
        dtype = value.ty.dtype  # type: ignore[attr-defined]
        if not isinstance(scale, Constant) or not isinstance(zero, Constant) or dtype not in ("uint8", "int8"):
            return None
        scales, zeros = scale.data.numpy(), zero.data.numpy()
        if scales.size != 1 or zeros.size != 1:
            return None
        point = int(zeros.item()) + (0 if dtype == "uint8" else 128)
        before, sums = self.values.get(data), self.affine(data)
        if before is not None and (before.scale, before.zero) == (float(scales.item()), point):
            unsigned = before.data
        elif sums is not None:
            unsigned = bb.emit(_requantized(sums, scales.item(), point, data.ty.ndim))  # type: ignore[attr-defined]
            if sums.channels is not None:
                self.channels[unsigned] = sums.channels
        elif dtype == "uint8":
            return None
        else:
            attrs = value.attrs.with_(out_dtype="uint8")
            unsigned = bb.emit(Call(value.op, (data, scale, constant(np.uint8(point))), attrs, span=value.span))
        if dtype == "uint8":
            return unsigned
        self.unsigned[binding.var] = unsigned
        wide = bb.emit(make_call("astype")(unsigned, dtype="int16"))
        return make_call("astype")(bb.emit(make_call("subtract")(wide, constant(np.int16(128)))), dtype="int8")


def _permuted(w: _Weights, axes: Any) -> _Weights:
    order = tuple(a % w.data.ndim for a in axes) if axes is not None else tuple(reversed(range(w.data.ndim)))
    return _Weights(aligned(w.data.transpose(order)), w.scale, order.index(w.axis))


def _by_channel(value: np.ndarray, channels: tuple[int, int] | None, rank: int) -> np.ndarray | None:
    """Return a constant that is the same everywhere, or along all axes but that of the channels, as a vector."""
    if value.size == 1:
        return value.reshape(()).astype(np.float64)
    if channels is None or value.ndim > rank:
        return None
    axis, n = channels
    shape = (1,) * (rank - value.ndim) + value.shape
    return value.reshape(-1).astype(np.float64) if shape[axis] == n == value.size else None


def _along(value: Any, channels: tuple[int, int] | None, rank: int) -> Constant:
    """Make a constant of float32: one for each channel where channels are known, so that equal kernels stay equal."""
    array = np.asarray(value, np.float32)
    if channels is None:
        return constant(array)
    axis, n = channels
    shape = [n if i == axis else 1 for i in range(rank)]
    return constant(aligned(np.ascontiguousarray(np.broadcast_to(array, (n,)).reshape(shape))))


def _requantized(sums: _Affine, scale: float, zero: int, rank: int) -> Call:
    """Quantise a sum of integers as uint8."""
    factors = [_along(s / scale, sums.channels, rank) for _, s in sums.terms]
    offset = _along(sums.offset / scale + zero, sums.channels, rank)
    name = "requantize" if len(factors) == 1 else "requantize_sum"
    data = [e for e, _ in sums.terms]
    return make_call(name)(*data, *factors, offset, low=max(0, zero if sums.positive else 0), out_dtype="uint8")
