"""Write a Relay program as an ONNX model (TVM has it as ``contrib.target.onnx``): one rule an operator.

Operators with a counterpart of the same meaning stand in ``_SAME``; the other rules emit nodes. What has no rule, or a
layout that ONNX lacks, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument, require
from weft.reach import operands_first
from weft.relay.transform import InferType, ToGraphNormalForm
from weft.relay.typing import Program
from weft.spelling import counted_name

__all__ = ["to_onnx"]

Names = tuple[str, ...]
_SAME = {
    **{name: name.capitalize() for name in "add abs acos acosh asin asinh atan atanh ceil cos cosh".split()},
    **{name: name.capitalize() for name in "erf exp floor log round sigmoid sign sin sinh sqrt tan tanh".split()},
    **{name: name.capitalize() for name in "equal greater less where".split()},
    **{f"logical_{name}": name.capitalize() for name in "and or not xor".split()},
    **{"subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow", "nn.relu": "Relu"},
    **{"maximum": "Max", "minimum": "Min", "greater_equal": "GreaterOrEqual", "less_equal": "LessOrEqual"},
    **{"copy": "Identity", "nn.global_avg_pool2d": "GlobalAveragePool", "nn.global_max_pool2d": "GlobalMaxPool"},
}
_REDUCTIONS = {name: f"Reduce{name.capitalize()}" for name in ("sum", "mean", "max", "min", "prod")}
_END = np.iinfo(np.int64).max


def to_onnx(
    relay_ir: Program, params: Mapping[str, Any] | None, name: str, opset_version: int = 14, path: str | None = None
) -> Any:
    """Return ``main`` of a Relay program as an ``onnx.ModelProto``; dimensions that are ``Any`` get names.

    Parameters whose values `params` has become initializers. With a `path` the model is written to that file, too.
    """
    if opset_version not in range(14, 18):  # where the operators below have the same form
        raise InvalidArgument("to_onnx: an opset that is not written", expected="14 to 17", found=str(opset_version))
    onnx = require("onnx", extra="onnx")
    mod = relay_ir if isinstance(relay_ir, ir.IRModule) else ir.IRModule.from_expr(relay_ir)
    function: Any = InferType()(ToGraphNormalForm()(InferType()(mod)))["main"]
    writer = _Writer(onnx.helper, onnx.numpy_helper)
    given = {k: np.asarray(v.numpy() if hasattr(v, "numpy") else v) for k, v in (params or {}).items()}
    opsets = [onnx.helper.make_opsetid("", opset_version)]
    model = onnx.helper.make_model(writer.graph(function, given, name), ir_version=8, opset_imports=opsets)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        raise InvalidArgument("to_onnx: ONNX has no such program, by its checker", found=str(e)) from e
    if path:
        onnx.save(model, path)
    return model


class _Writer:
    """The nodes and initializers of a graph, and the names of what has been written."""

    def __init__(self, helper: Any, arrays: Any) -> None:
        self.helper, self.arrays = helper, arrays
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.taken: dict[str, int] = {}  # and how often each was wished for again

    def name(self, wish: str) -> str:
        """A name that nothing else of the graph has."""
        return counted_name(wish, self.taken)

    def emit(self, kind: str, inputs: Sequence[str], n_outputs: int = 1, **attributes: Any) -> Names:
        outputs = tuple(self.name(kind.lower()) for _ in range(n_outputs))
        self.nodes.append(self.helper.make_node(kind, list(inputs), list(outputs), **attributes))
        return outputs

    def constant(self, value: Any, dtype: str = "int64", wish: str = "constant") -> str:
        name = self.name(wish)
        self.initializers.append(self.arrays.from_array(np.asarray(value, ir.numpy_dtype(dtype)), name))
        return name

    def value_info(self, name: str, ty: Any) -> Any:
        dims = [d if (d := ir.as_int(dim)) is not None else f"{name}_{i}" for i, dim in enumerate(ty.shape)]
        return self.helper.make_tensor_value_info(name, self.data_type(ty.dtype), dims)

    def data_type(self, dtype: str) -> int:
        return self.helper.np_dtype_to_tensor_dtype(np.dtype(ir.numpy_dtype(dtype)))

    def graph(self, function: ir.Function, given: Mapping[str, np.ndarray], name: str) -> Any:
        """Write a function: operands first, each expression once."""
        written: dict[ir.Expr, Names] = {}
        inputs = []
        for parameter in function.params:
            hint, ty = parameter.name_hint, parameter.checked_type
            if hint in given:
                written[parameter] = (self.constant(given[hint], getattr(ty, "dtype", ""), hint),)
            else:
                called = self.name(hint)
                written[parameter] = (called,)
                inputs.append(self.value_info(called, ty))
        for expr in operands_first([function.body], _operands):
            if expr not in written:
                written[expr] = self.rule(expr, [written[e] for e in _operands(expr)])
        types = getattr(function.body.checked_type, "fields", (function.body.checked_type,))
        results = zip(written[function.body], types, strict=True)
        outputs = [self.value_info(self.emit("Identity", [result])[0], ty) for result, ty in results]
        return self.helper.make_graph(self.nodes, name, inputs, outputs, self.initializers)

    def rule(self, expr: ir.Expr, operands: list[Names]) -> Names:
        if isinstance(expr, ir.Constant):
            return (self.constant(expr.data.numpy(), getattr(expr.checked_type, "dtype", "")),)
        if isinstance(expr, ir.TupleGetItem):
            return (operands[0][expr.index],)
        inputs = [name for names in operands for name in names]
        if isinstance(expr, ir.Tuple):
            return tuple(inputs)
        kind = expr.op.name if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) else type(expr).__name__
        if kind in _SAME:
            return self.emit(_SAME[kind], inputs)
        if kind not in _RULES:
            raise InvalidArgument(f"to_onnx: no rule for '{kind}'", expected=", ".join(sorted({*_SAME, *_RULES})))
        return _RULES[kind](_Node(self, expr, inputs))


def _operands(expr: ir.Expr) -> Sequence[ir.Expr]:
    if isinstance(expr, ir.TupleGetItem):
        return (expr.tuple_value,)
    return expr.args if isinstance(expr, ir.Call) else expr.fields if isinstance(expr, ir.Tuple) else ()


class _Node:
    """A call of an operator: its attributes, the types around it, and the names of its operands."""

    def __init__(self, writer: _Writer, call: Any, inputs: list[str]) -> None:
        self.writer, self.call, self.inputs = writer, call, inputs
        self.emit, self.constant = writer.emit, writer.constant
        self.attrs: dict[str, Any] = {key: call.attrs[key] for key in call.attrs.keys()} if call.attrs else {}
        self.type = call.args[0].checked_type
        self.rank = len(getattr(self.type, "shape", ()))

    def shape(self, argument: int = 0) -> list[int | None]:
        return [ir.as_int(d) for d in self.call.args[argument].checked_type.shape]

    def known(self, dims: Sequence[int | None], what: str) -> list[int]:
        """The same, all known; else an error that says what needs them."""
        if any(d is None for d in dims):
            raise self.refused(what, "dimensions that are known", str(list(dims)))
        return [d for d in dims if d is not None]

    def refused(self, what: str, expected: str, found: str) -> InvalidArgument:
        return InvalidArgument(f"to_onnx: {what} of {self.call.op.name}", expected=expected, found=found)

    def demand(self, **wanted: Any) -> _Node:
        """Refuse a call whose attributes ONNX has no words for."""
        for key, value in wanted.items():
            if self.attrs.get(key, value) not in (value, "", None):
                raise self.refused(f"attribute '{key}'", repr(value), repr(self.attrs[key]))
        return self

    def said(self, *keys: str) -> dict[str, Any]:
        return {key: self.attrs[key] for key in keys}

    def turned(self, name: str, order: Sequence[int]) -> str:
        return self.emit("Transpose", [name], perm=order)[0] if sorted(order) != list(order) else name

    def window(self, *, dilation: bool = True) -> dict[str, Any]:
        """What convolutions and pools say alike."""
        padding = [int(p) for p in self.attrs["padding"]]
        said = {"strides": [int(s) for s in self.attrs["strides"]], "pads": padding * {1: 4, 2: 2, 4: 1}[len(padding)]}
        return said | ({"dilations": [int(d) for d in self.attrs["dilation"]]} if dilation else {})


def _convolution(n: _Node) -> Names:
    transposed = n.call.op.name == "nn.conv2d_transpose"
    n.demand(data_layout="NCHW", out_layout="NCHW", kernel_layout="IOHW" if transposed else "OIHW")
    n.demand(out_dtype=n.type.dtype)
    more: dict[str, Any] = {"output_padding": [int(p) for p in n.attrs["output_padding"]]} if transposed else {}
    more |= {"kernel_shape": n.known(n.shape(1)[2:], "the window"), "group": n.attrs["groups"]}
    return n.emit("ConvTranspose" if transposed else "Conv", n.inputs, **n.window(), **more)


def _pool(n: _Node) -> Names:
    n.demand(layout="NCHW", out_layout="NCHW")
    said: dict[str, Any] = {
        "kernel_shape": [int(k) for k in n.attrs["pool_size"]],
        "ceil_mode": int(n.attrs["ceil_mode"]),
    }
    if n.call.op.name == "nn.max_pool2d":
        return n.emit("MaxPool", n.inputs, **said, **n.window())
    said |= n.demand(dilation=(1, 1)).said("count_include_pad") | n.window(dilation=False)
    return n.emit("AveragePool", n.inputs, **said)


def _batch_norm(n: _Node) -> Names:
    x, gamma, beta, mean, variance = n.inputs
    if not n.attrs["scale"]:
        gamma = n.constant(np.ones(n.known(n.shape(1), "the scale")), n.type.dtype)
    if not n.attrs["center"]:
        beta = n.constant(np.zeros(n.known(n.shape(2), "the shift")), n.type.dtype)
    order, axis = list(range(n.rank)), n.attrs["axis"]
    order[1], order[axis] = order[axis], order[1]
    inputs = [n.turned(x, order), gamma, beta, mean, variance]
    (y,) = n.emit("BatchNormalization", inputs, **n.said("epsilon"))
    return n.turned(y, order), mean, variance


def _product(n: _Node) -> Names:
    n.demand(out_dtype=n.type.dtype)
    turned = n.attrs.get("transpose_a", False), n.attrs.get("transpose_b", n.call.op.name == "nn.dense")
    orders = [list(range(len(n.shape(i)))) for i in (0, 1)]
    orders = [o[:-2] + o[:-3:-1] if turn else o for o, turn in zip(orders, turned, strict=True)]
    operands = [n.turned(name, order) for name, order in zip(n.inputs, orders, strict=True)]
    return n.emit("MatMul", operands)


def _bias_add(n: _Node) -> Names:
    behind = n.constant(range(1, n.rank - n.attrs["axis"] % n.rank))
    return n.emit("Add", [n.inputs[0], *n.emit("Unsqueeze", [n.inputs[1], behind])])


def _reduction(n: _Node) -> Names:
    said = range(n.rank) if n.attrs["axis"] in (None, ()) else [int(a) % n.rank for a in np.atleast_1d(n.attrs["axis"])]
    axes = sorted(set(range(n.rank)) - set(said) if n.attrs["exclude"] else set(said))
    kind, keep = _REDUCTIONS[n.call.op.name], int(n.attrs["keepdims"])
    if not axes:
        return n.emit("Identity", n.inputs)
    if kind == "ReduceSum":  # its axes are an operand since opset 13
        return n.emit(kind, [*n.inputs, n.constant(axes)], keepdims=keep)
    return n.emit(kind, n.inputs, keepdims=keep, axes=axes)


def _reshaped(n: _Node) -> Names:
    dims = [ir.as_int(d) for d in n.call.checked_type.shape]
    n.known(dims if dims.count(None) > 1 else [], "the shape")  # one unknown dimension can be inferred
    shape = n.constant([-1 if d is None else d for d in dims])
    return n.emit("Reshape", [n.inputs[0], shape], **({"allowzero": 1} if 0 in dims and None not in dims else {}))


def _layout_transform(n: _Node) -> Names:
    source, target = n.attrs["src_layout"], n.attrs["dst_layout"]
    if not (source + target).isalpha() or not (source + target).isupper():
        raise n.refused("a layout", "axes that are not split", f"{source} to {target}")
    return n.emit("Transpose", n.inputs, perm=[source.index(axis) for axis in target])


def _split(n: _Node) -> Names:
    axis, at = int(n.attrs["axis"]), n.attrs["indices_or_sections"]
    (extent,) = n.known([n.shape()[axis]], "the axis")
    ends = [int(i) for i in at] if isinstance(at, tuple) else [extent * i // int(at) for i in range(1, int(at))]
    sizes = np.diff([0, *ends, extent])
    return n.emit("Split", [n.inputs[0], n.constant(sizes)], len(sizes), axis=axis)


def _strided_slice(n: _Node) -> Names:
    begin, end = (n.known([ir.as_int(v) for v in n.attrs[key]], key) for key in ("begin", "end"))
    axes = [int(a) for a in n.attrs["axes"] or range(max(len(begin), len(end)))]
    strides = [int(s) for s in n.attrs["strides"] or ()]
    begin += [0] * (len(axes) - len(begin))
    if n.attrs["slice_mode"] == "size":
        strides = []
        for i, first in enumerate(begin):
            if first < 0:
                begin[i] += n.known([n.shape()[axes[i]]], "an axis whose first index counts from its end")[0]
        end = [_END if size < 0 else first + size for first, size in zip(begin, end, strict=False)]
    end += [_END] * (len(axes) - len(end))
    strides += [1] * (len(axes) - len(strides))
    return n.emit("Slice", [n.inputs[0], *(n.constant(v) for v in (begin, end, axes, strides))])


def _pad(n: _Node) -> Names:
    widths = n.constant(np.array(n.attrs["pad_width"], np.int64).T.ravel())
    if n.attrs["pad_mode"] != "constant":
        return n.emit("Pad", [n.inputs[0], widths], mode=n.attrs["pad_mode"])
    value = n.constant(0, n.type.dtype)
    if len(n.inputs) > 1:
        (value,) = n.emit("Cast", [n.inputs[1]], to=n.writer.data_type(n.type.dtype))
    return n.emit("Pad", [n.inputs[0], widths, value])


def _filled(n: _Node, value: int) -> Names:
    array = n.writer.arrays.from_array(np.array([value], ir.numpy_dtype(n.type.dtype)))
    return n.emit("ConstantOfShape", n.emit("Shape", n.inputs[:1]), value=array)


_RULES: dict[str, Callable[[_Node], Names]] = {
    "cast": lambda n: n.emit("Cast", n.inputs, to=n.writer.data_type(n.call.checked_type.dtype)),
    "clip": lambda n: n.emit("Clip", n.inputs + [n.constant(n.attrs[k], n.type.dtype) for k in ("a_min", "a_max")]),
    "concatenate": lambda n: n.emit("Concat", n.inputs, **n.said("axis")),
    "nn.dropout": lambda n: (n.inputs[0], *_filled(n, 1)),
    "nn.leaky_relu": lambda n: n.emit("LeakyRelu", n.inputs, **n.said("alpha")),
    "nn.log_softmax": lambda n: n.emit("LogSoftmax", n.inputs, **n.said("axis")),
    "nn.lrn": lambda n: n.demand(axis=1).emit("LRN", n.inputs, **n.said("alpha", "beta", "bias", "size")),
    "nn.softmax": lambda n: n.emit("Softmax", n.inputs, **n.said("axis")),
    "ones_like": lambda n: _filled(n, 1),
    "zeros_like": lambda n: _filled(n, 0),
    "transpose": lambda n: (n.turned(n.inputs[0], [a % n.rank for a in n.attrs["axes"] or range(n.rank)[::-1]]),),
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    **dict.fromkeys(("nn.conv2d", "nn.conv2d_transpose"), _convolution),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    **dict.fromkeys(("nn.dense", "nn.matmul", "nn.batch_matmul"), _product),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "nn.batch_flatten"), _reshaped),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "layout_transform": _layout_transform,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
}
