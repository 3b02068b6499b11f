"""Conversion to element types that are stored as wider ones: integers of 4 and 2 bits, floats of 8, 6 and 4."""

from typing import Any

from weft import ir
from weft.frontend.onnx.node import Node
from weft.runtime.host import STORED

LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
"""The least and the greatest of the small integers."""
_FLOATS = {"float4_e2m1fn": (1, 0, 6.0), "float6_e2m3fn": (3, 0, 7.5), "float6_e3m2fn": (2, -2, 28.0)}
"""Of small floats: bits of the mantissa, the exponent of the least normal number, the largest number."""


def to_narrow(node: Node, x: ir.Expr, dtype: str) -> Any:
    """Convert to a small type, in the type that stores it.

    Integers keep their low bits, as casts between integers do; floats are rounded to the nearest, ties to even, and
    what is too large becomes the largest.
    """
    if dtype in LIMITS:
        return _integer(node, x, dtype)
    wide = node.astype(x, "float32")
    if dtype == "float8_e8m0fnu":
        return _power_of_two(node, wide)
    mantissa, least, largest = _FLOATS[dtype]
    kept = node.op("clip", wide, min=-largest, max=largest)
    exponent = node.op("maximum", _exponent(node, kept), node.scalar(float(least), "float32"))
    step = _exp2(node, node.op("subtract", exponent, node.scalar(float(mantissa), "float32")))
    return node.astype(node.op("multiply", node.op("round", node.op("divide", kept, step)), step), STORED[dtype])


def _integer(node: Node, x: Any, dtype: str) -> Any:
    low, high = LIMITS[dtype]
    mask = high - low
    bits = node.op("bitwise_and", node.astype(node.astype(x, "int32"), "int32"), node.scalar(mask, "int32"))
    if low:  # the highest bit is the sign
        sign = node.scalar(-low, "int32")
        bits = node.op("subtract", node.op("bitwise_xor", bits, sign), sign)
    return node.astype(bits, STORED[dtype])


def _exponent(node: Node, x: Any) -> Any:
    """Return the exponent of float32 numbers, from their bits; those of 0 and of subnormal numbers are -127."""
    bits = node.op("reinterpret", node.op("abs", x), dtype="int32")
    shifted = node.op("right_shift", bits, node.scalar(23, "int32"))
    return node.astype(node.op("subtract", shifted, node.scalar(127, "int32")), "float32")


def _exp2(node: Node, exponent: Any) -> Any:
    """Return powers of two, exactly, of exponents of normal numbers."""
    biased = node.op("add", node.astype(exponent, "int32"), node.scalar(127, "int32"))
    return node.op("reinterpret", node.op("left_shift", biased, node.scalar(23, "int32")), dtype="float32")


def _power_of_two(node: Node, x: Any) -> Any:
    """Round to a power of two, up unless ``round_mode`` says otherwise; 0 becomes the least one."""
    mode = node.attr("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        node.error("an unknown way to round", expected="up, down or nearest", found=mode)
    bits = node.op("reinterpret", node.op("abs", x), dtype="uint32")
    exponent = node.op("right_shift", bits, node.scalar(23, "uint32"))
    rest = node.op("bitwise_and", bits, node.scalar((1 << 23) - 1, "uint32"))
    if mode != "down":
        normal, least = (0, 1 << 22) if mode == "up" else ((1 << 22) - 1, 3 << 21)  # the least is subnormal in float32
        small = node.op("equal", exponent, node.scalar(0, "uint32"))
        limit = node.op("where", small, node.scalar(least, "uint32"), node.scalar(normal, "uint32"))
        exponent = node.op("add", exponent, node.astype(node.op("greater", rest, limit), "uint32"))
    top = node.scalar(254 if node.attr("saturate", 1) else 255, "uint32")
    exponent = node.op("minimum", exponent, top)
    # bfloat16 has float32's exponent: 0 is 2 to the -127, which is a subnormal number
    code = node.op(
        "where",
        node.op("equal", exponent, node.scalar(0, "uint32")),
        node.scalar(1 << 22, "uint32"),
        node.op("left_shift", exponent, node.scalar(23, "uint32")),
    )
    wrong = node.op("logical_or", node.op("isnan", x), node.op("equal", exponent, node.scalar(255, "uint32")))
    code = node.op("where", wrong, node.scalar(0x7FC00000, "uint32"), code)
    # By its bits: the processor's conversion makes subnormal numbers zero.
    code = node.astype(node.op("right_shift", code, node.scalar(16, "uint32")), "uint16")
    return node.op("reinterpret", code, dtype=STORED["float8_e8m0fnu"])
