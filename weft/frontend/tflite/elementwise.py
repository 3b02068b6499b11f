"""Element by element: activations, arithmetic, comparison, conversion; loops and choices."""

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.complex_arithmetic import Complex, fourier
from weft.frontend.tflite.importer import CONVERTERS, Node

_UNARY = {
    **{n.upper(): n for n in "abs ceil cos exp floor log round rsqrt sign sin sqrt square tanh".split()},
    **{n.upper(): f"nn.{n}" for n in "log_softmax relu relu6".split()},
    **dict(HARD_SWISH="nn.hardswish", LOGISTIC="sigmoid", NEG="negative"),
}
_SAME_BINARY = """maximum minimum floor_mod atan2 equal not_equal less less_equal greater greater_equal logical_and
    logical_or bitwise_xor right_shift"""
_BINARY = {
    **{name.upper(): name for name in _SAME_BINARY.split()},
    **dict(ADD="add", SUB="subtract", MUL="multiply", DIV="divide", POW="power", FLOOR_DIV="floor_divide"),
}
_FUSED = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


@CONVERTERS.on(*_UNARY)
def _unary(node: Node) -> Any:
    return node.result(node.op(_UNARY[node.name], node.real()))


@CONVERTERS.on("COMPLEX_ABS", "REAL", "IMAG")
def _of_complex(node: Node) -> ir.Expr:
    x = node.x()
    return node.op("abs", x) if node.name == "COMPLEX_ABS" else x.re if node.name == "REAL" else x.im


@CONVERTERS.on("RFFT2D")
def _rfft2d(node: Node) -> Complex:
    """Half of the spectrum of images that are cut, or filled up with zeros, to a size."""
    x, sizes = node.x(), node.ints(1)
    dims = node.dims(x)
    high = [0] * (len(dims) - 2) + [new - old for new, old in zip(sizes, dims[-2:], strict=True)]
    x = node.reader.pad(x, node.reader.scalar(0, "float32"), [0] * len(dims), high)
    return fourier(node.reader, x, (-2, -1), "r2c", False, node.reader.simplified(sizes[1] // 2 + 1))


@CONVERTERS.on("LOGICAL_NOT")
def _not(node: Node) -> Any:
    return node.op("logical_not", node.x())


@CONVERTERS.on("RELU_N1_TO_1", "RELU_0_TO_1")
def _limited(node: Node) -> Any:
    return node.result(node.op("clip", node.real(), min=-1.0 if node.name == "RELU_N1_TO_1" else 0.0, max=1.0))


@CONVERTERS.on("ELU")
def _elu(node: Node) -> Any:
    return node.result(node.op("nn.elu", node.real(), alpha=1.0))


@CONVERTERS.on("LEAKY_RELU")
def _leaky_relu(node: Node) -> Any:
    alpha = node.option("LeakyReluOptions", "Alpha", 0.0)
    return node.result(node.op("nn.leakyrelu", node.real(), alpha=float(alpha)))


@CONVERTERS.on("GELU")
def _gelu(node: Node) -> Any:
    rounded = node.option("GeluOptions", "Approximate", False)
    return node.result(node.op("nn.gelu_tanh" if rounded else "nn.gelu", node.real()))


@CONVERTERS.on("SOFTMAX")
def _softmax(node: Node) -> Any:
    beta, x = node.option("SoftmaxOptions", "Beta", 1.0), node.real()
    x = x if beta == 1.0 else node.op("multiply", x, node.reader.scalar(beta, x.ty.dtype))
    return node.result(node.op("nn.softmax", x, axis=-1))


@CONVERTERS.on("PRELU")
def _prelu(node: Node) -> Any:
    x = node.real()
    zero = node.reader.scalar(0, x.ty.dtype)
    scaled = node.op("multiply", x, node.real(1))
    return node.result(node.op("where", node.op("less", x, zero), scaled, x))


@CONVERTERS.on(*_BINARY)
def _binary(node: Node) -> Any:
    out = node.op(_BINARY[node.name], node.real(0), node.real(1))
    return node.result(node.activated(out, _FUSED[node.name]) if node.name in _FUSED else out)


@CONVERTERS.on("SQUARED_DIFFERENCE")
def _squared_difference(node: Node) -> Any:
    return node.result(node.op("square", node.op("subtract", node.real(0), node.real(1))))


@CONVERTERS.on("ADD_N")
def _add_n(node: Node) -> Any:
    total = node.real(0)
    for i in range(1, len(node.inputs)):
        total = node.op("add", total, node.real(i))
    return node.result(total)


@CONVERTERS.on("SELECT", "SELECT_V2")
def _select(node: Node) -> Any:
    test, (a, b) = node.x(0), node.moved(1, 2)
    if node.name == "SELECT" and len(node.dims(test)) == 1 < len(node.dims(a)):  # one choice for each row
        test = node.reader.reshape(test, [*node.dims(test), *[1] * (len(node.dims(a)) - 1)])
    return node.op("where", test, a, b)


@CONVERTERS.on("CAST")
def _cast(node: Node) -> Any:
    x = node.x()
    if node.outputs[0].dtype == "bool":
        return node.op("not_equal", x, node.reader.scalar(0, x.ty.dtype))
    return node.reader.astype(x, node.outputs[0].dtype)


@CONVERTERS.on("QUANTIZE", "DEQUANTIZE")
def _quantize(node: Node) -> Any:
    return node.result(node.real())


@CONVERTERS.on("FAKE_QUANT")
def _fake_quant(node: Node) -> Any:
    """Round to steps between limits, which move so that zero is one of the steps."""
    low, high, bits, narrow = (node.option("FakeQuantOptions", k) for k in ("Min", "Max", "NumBits", "NarrowRange"))
    first, last = int(narrow), 2**bits - 1
    step = np.float32(high - low) / np.float32(last - first)
    zero = np.clip(np.floor(first - low / step + 0.5), first, last)
    least, most = (np.float32(n - zero) * step for n in (first, last))
    x = node.op("subtract", node.op("clip", node.real(), min=float(least), max=float(most)), ir.constant(least))
    steps = node.op(
        "floor", node.op("add", node.op("multiply", x, ir.constant(1 / step)), ir.constant(np.float32(0.5)))
    )
    return node.op("add", node.op("multiply", steps, ir.constant(step)), ir.constant(least))


@CONVERTERS.on("ZEROS_LIKE")
def _zeros(node: Node) -> Any:
    return node.op("zeros_like", node.x())


# --- control ----------------------------------------------------------------------------------------------------------


@CONVERTERS.on("IF")
def _if(node: Node) -> Any:
    args = [node.x(i) for i in range(1, len(node.inputs))]
    numbers = [node.option("IfOptions", f"{name}SubgraphIndex") for name in ("Then", "Else")]
    return node.reader.choice(node.x(0), [lambda n=n: node.reader.run(n, args) for n in numbers])


@CONVERTERS.on("WHILE")
def _while(node: Node) -> Any:
    test, body = (node.option("WhileOptions", f"{name}SubgraphIndex") for name in ("Cond", "Body"))
    start = [node.x(i) for i in range(len(node.inputs))]
    return node.reader.loop(start, lambda s: node.reader.run(test, s)[0], lambda s: node.reader.run(body, s))


_CALLED = {
    "CALL": ("CallOptions", "Subgraph"),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", "DecompositionSubgraphIndex"),
}


@CONVERTERS.on(*_CALLED)
def _call(node: Node) -> Any:
    return node.reader.run(node.option(*_CALLED[node.name]), [node.x(i) for i in range(len(node.inputs))])
