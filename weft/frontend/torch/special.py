"""Special functions, and arithmetic on the parts of floating-point numbers."""

from collections.abc import Callable
from typing import Any

from weft import ir, tir
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.topi import bessel, elementwise, special

_UNARY: dict[str, Callable[[Any], Any]] = {
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": special.lgamma,
    "digamma": special.digamma,
    "exp2": tir.exp2,
    "i0": special.bessel(0, False),
    "special_i0e": special.bessel(0, True),
    "special_i1": special.bessel(1, False),
    "special_i1e": special.bessel(1, True),
    "special_erfcx": special.erfcx,
    "special_modified_bessel_i0": special.bessel(0, False),
    "special_modified_bessel_i1": special.bessel(1, False),
    "special_airy_ai": bessel.airy_ai,
    "special_spherical_bessel_j0": bessel.spherical_bessel_j0,
} | {
    f"special_{name}{order}": make(order)
    for order in (0, 1)
    for name, make in {
        "bessel_j": bessel.bessel_j,
        "bessel_y": bessel.bessel_y,
        "modified_bessel_k": lambda order: bessel.bessel_k(order, False),
        "scaled_modified_bessel_k": lambda order: bessel.bessel_k(order, True),
    }.items()
}
_BINARY = {
    **{name: getattr(tir, name) for name in ("copysign", "hypot", "nextafter")},
    "ldexp": lambda a, b: a * tir.exp2(b),
    "special_zeta": special.zeta,
}


def by_element(node: Node, fn: Callable[..., Any], *operands: Any) -> Any:
    """A scalar function of tensors and numbers, which the result's type computes."""
    return node.emit(node.bb.call_te(lambda *x: elementwise(fn, *x), *(node.tensor(x) for x in operands)))


@aten(*_UNARY)
def _unary(node: Node) -> Any:
    return by_element(node, _UNARY[node.name.split(".")[1]], node.get("self", node.args.get("x")))


@aten(*_BINARY)
def _binary(node: Node) -> Any:
    return by_element(node, _BINARY[node.name.split(".")[1]], node["self"], node["other"])


@aten("polygamma", "special_polygamma")
def _polygamma(node: Node) -> Any:
    return by_element(node, special.polygamma(node["n"]) if node["n"] else special.digamma, node["self"])


@aten("fmax", "fmin")
def _extreme(node: Node) -> Any:
    """The other one where one is NaN."""
    a, b = (node.tensor(node[k]) for k in ("self", "other"))
    found = node.op("maximum" if "fmax" in node.name else "minimum", a, b)
    if not ir.DataType(node.dtype).is_float:
        return found
    return node.op("where", node.op("isnan", a), b, node.op("where", node.op("isnan", b), a, found))


@aten("frexp")
def _parts(node: Node) -> list[Any]:
    """What is at least 1/2 and below 1 times a power of two; of 0, of infinities and of no number itself, and 0."""
    x = node.tensor(node["self"], "float64")
    tiny = node.op("less", node.op("abs", x), node.scalar(2.0**-1022, "float64"))
    usual = node.op("logical_and", node.op("isfinite", x), node.op("not_equal", x, node.scalar(0, "float64")))
    scaled = node.op("where", tiny, node.op("multiply", x, node.scalar(2.0**54, "float64")), x)
    bits = node.op("reinterpret", scaled, dtype="int64")
    power = node.op("bitwise_and", node.op("right_shift", bits, node.scalar(52, "int64")), node.scalar(2047, "int64"))
    power = node.op("subtract", power, node.op("where", tiny, node.scalar(1076, "int64"), node.scalar(1022, "int64")))
    bits = node.op("bitwise_and", bits, node.scalar(~(2047 << 52), "int64"))
    half = node.op("reinterpret", node.op("bitwise_or", bits, node.scalar(1022 << 52, "int64")), dtype="float64")
    return [node.op("where", usual, half, x), node.op("where", usual, power, node.scalar(0, "int64"))]


@aten("signbit")
def _signbit(node: Node) -> Any:
    x = node["self"]
    dtype = ir.DataType(x.ty.dtype)
    if dtype.is_float:
        x = node.op("reinterpret", x, dtype=f"int{dtype.bits}")
    elif dtype.code != "int":
        return node.full(node.shape, False, "bool")
    return node.op("less", x, node.scalar(0, x.ty.dtype))
