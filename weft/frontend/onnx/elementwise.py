"""Element-wise operators: arithmetic, activations, casts, clipping."""

from typing import Any

import numpy as np

from weft.frontend.common import pairs
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.narrow import to_narrow
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.ir import DataType
from weft.runtime.host import STORED, Kind

_SAME_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log Reciprocal Round Sigmoid
    Sign Sin Sinh Sqrt Tan Tanh"""
_UNARY = {
    **{name: name.lower() for name in _SAME_UNARY.split()},
    **{name: f"nn.{name.lower()}" for name in "HardSwish Mish Relu Softplus Softsign".split()},
    **dict(BitwiseNot="bitwise_not", Neg="negative", Not="logical_not"),
}
_BINARY = pairs("""Add:add And:logical_and BitwiseAnd:bitwise_and BitwiseOr:bitwise_or BitwiseXor:bitwise_xor Div:divide
    Mul:multiply Or:logical_or Sub:subtract Xor:logical_xor""")
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


@converter(*_UNARY)
def _unary(node: Node) -> Any:
    return node.op(_UNARY[node.op_type], node.x())


@converter(*_BINARY)
def _binary(node: Node) -> Any:
    return node.op(_BINARY[node.op_type], *node.broadcasting(node.x(0), node.x(1)))


@converter(*_VARIADIC)
def _variadic(node: Node) -> Any:
    operands = node.xs()
    out = operands[0]
    for x in operands[1:]:
        out = node.op(_VARIADIC[node.op_type], *node.broadcasting(out, x))
    return node.op("divide", out, node.scalar(len(operands), out.ty.dtype)) if node.op_type == "Mean" else out


@converter("Pow")
def _pow(node: Node) -> Any:
    x, dtype = node.x(0), node.dtype()
    exponent = node.const(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= node.ndim():
        value = float(exponent.reshape(()))
        if value in (2.0, 3.0):
            square = node.op("multiply", x, x)
            return square if value == 2.0 else node.op("multiply", square, x)
        if value == 0.5 and node.is_float():
            return node.op("sqrt", x)
    if node.is_float():
        return node.op("power", x, node.astype(node.x(1), dtype))
    return _integer_pow(node, x, node.x(1))


def _integer_pow(node: Node, x: Any, exponent: Any) -> Any:
    """Compute as ONNX Runtime: by floats, what leaves the type becomes its least number; squares and cubes wrap."""
    dtype = node.dtype()
    wide = node.op("power", node.astype(x, "float64"), node.astype(exponent, "float64"))
    limit = 2.0 ** (DataType(dtype).bits - 1)
    least = node.scalar(-limit if DataType(dtype).code == "int" else 0, "float64")
    fits = node.op("less", node.op("abs", wide), node.scalar(limit, "float64"))
    out = node.astype(node.op("where", fits, wide, least), dtype)
    square = node.op("multiply", x, x)
    for number, product in ((2, square), (3, node.op("multiply", square, x))):
        out = node.op("where", node.op("equal", exponent, node.scalar(number, exponent.ty.dtype)), product, out)
    return out


@converter("Mod")
def _mod(node: Node) -> Any:
    fmod, by = bool(node.attr("fmod", 0)), node.const(1)
    if by is not None and by.dtype.kind in "iu" and not by.all():
        node.error("an integer is divided by 0", found="a constant divisor with an element of 0")
    return node.op("fmod" if fmod else "mod", *node.broadcasting(node.x(0), node.x(1)))


@converter("PRelu")
def _prelu(node: Node) -> Any:
    return node.op("nn.prelu", *node.broadcasting(node.x(0), node.x(1)), axis=None)


_WITH_NUMBERS: dict[str, tuple[str, dict[str, float]]] = {
    "LeakyRelu": ("nn.leakyrelu", {"alpha": 0.01}),
    "Elu": ("nn.elu", {"alpha": 1.0}),
    "Celu": ("nn.celu", {"alpha": 1.0}),
    "HardSigmoid": ("nn.hardsigmoid", {"alpha": 0.2, "beta": 0.5}),
    "Selu": ("nn.selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "ThresholdedRelu": ("nn.thresholded_relu", {"alpha": 1.0}),
    "Shrink": ("nn.shrink", {"bias": 0.0, "lambd": 0.5}),
}


@converter(*_WITH_NUMBERS)
def _with_numbers(node: Node) -> Any:
    (op, numbers), dtype = _WITH_NUMBERS[node.op_type], node.dtype()
    x = node.x() if "float" in dtype else node.astype(node.x(), "float64")
    out = node.op(op, x, **{name: node.attr(name, default) for name, default in numbers.items()})
    return out if "float" in dtype else node.astype(out, dtype)


@converter("Gelu")
def _gelu(node: Node) -> Any:
    approximate = node.attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        node.error("attribute 'approximate' has an unknown value", expected="'none' or 'tanh'", found=approximate)
    return node.op("nn.gelu" if approximate == "none" else "nn.gelu_tanh", node.x())


@converter("Clip")
def _clip(node: Node) -> Any:
    x, dtype = node.x(), node.dtype()
    if node.opset < 11:
        low, high = node.attr("min"), node.attr("max")
        return node.op("clip", x, min=low, max=high) if low is not None or high is not None else x
    bounds = [node.const(i) if node.has(i) else None for i in (1, 2)]
    if all(b is not None or not node.has(i) for i, b in zip((1, 2), bounds, strict=True)):
        low, high = (None if b is None else b.reshape(-1)[0].item() for b in bounds)
        return node.op("clip", x, min=low, max=high) if low is not None or high is not None else x
    for i, name in ((1, "maximum"), (2, "minimum")):
        if node.has(i):
            x = node.op(name, x, node.reshape(node.astype(node.x(i), dtype), ()))
    return x


@converter("Cast")
def _cast(node: Node) -> Any:
    return cast_to(node, dtype_name(node.attr("to"), "Cast: attribute 'to'"))


@converter("CastLike")
def _cast_like(node: Node) -> Any:
    return cast_to(node, node.logical(1))


def cast_to(node: Node, dtype: str) -> Any:
    """Convert the first input as ONNX does; small floats out of range become the largest unless ``saturate`` is 0."""
    kind, logical = Kind("tensor", dtype, node.ndim()), node.logical()
    if logical == dtype:
        return node.value(0)
    if logical == "string":
        wide = kind if kind.is_plain else Kind("tensor", "float32" if "float" in dtype else "int8", node.ndim())
        (numbers,) = node.host("ParseNumbers", node.inputs[:1], [wide], dtype=wide.dtype)
        return numbers if kind.is_plain else Value.of_expr(to_narrow(node, node.graph.expr(numbers), dtype), kind)
    if dtype == "string":
        return node.host("FormatNumbers", node.inputs[:1], [kind])
    if not kind.is_plain:
        return Value.of_expr(to_narrow(node, node.x(), dtype), kind)
    return _cast_plain(node, node.x(), dtype)


def _cast_plain(node: Node, x: Any, dtype: str) -> Any:
    source, target = DataType(x.ty.dtype), DataType(dtype)
    if source == target:
        return x
    if target.code.startswith("float8") and node.attr("saturate", 1):
        largest = _LARGEST[dtype]
        wide = node.astype(x, "float32")
        kept = node.op("clip", wide, min=-largest, max=largest)
        return node.op("astype", kept, dtype=dtype)
    return node.op("astype", x, dtype=dtype)


@converter("BitCast")
def _bit_cast(node: Node) -> Any:
    dtype = dtype_name(node.attr("to"), "BitCast: attribute 'to'")
    kind = Kind("tensor", dtype, node.ndim())
    if not kind.is_plain or node.logical() in STORED:
        if node.logical() == dtype:
            return node.value(0)
        node.unsupported("this element type is not stored in its own bits", found=f"{node.logical()}, {dtype}")
    if DataType(dtype).bits != DataType(node.dtype()).bits:
        node.error("element types of different sizes", expected=f"{DataType(node.dtype()).bits} bits", found=dtype)
    if dtype == "bool":
        return node.op("not_equal", node.x(), node.scalar(0, node.dtype()))
    return node.op("reinterpret", node.astype(node.x(), "uint8") if node.dtype() == "bool" else node.x(), dtype=dtype)


@converter("Identity")
def _identity(node: Node) -> Any:
    return node.value(0)


@converter("IsInf")
def _is_inf(node: Node) -> Any:
    x = node.x()
    positive, negative = bool(node.attr("detect_positive", 1)), bool(node.attr("detect_negative", 1))
    if positive and negative:
        return node.op("isinf", x)
    bound = node.scalar(np.inf if positive else -np.inf, node.dtype())
    found = node.op("equal", x, bound)
    return found if positive or negative else node.op("logical_and", found, node.scalar(False, "bool"))


@converter("BitShift")
def _bit_shift(node: Node) -> Any:
    return node.op("left_shift" if node.attr("direction") == "LEFT" else "right_shift", node.x(0), node.x(1))
