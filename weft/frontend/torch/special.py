"""Special functions, and arithmetic on the parts of floating-point numbers."""

from collections.abc import Callable
from typing import Any

from weft import ir, tir
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.topi import elementwise, special

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
}
_BINARY = {
    "copysign": tir.copysign,
    "hypot": tir.hypot,
    "nextafter": tir.nextafter,
    "ldexp": lambda a, b: a * tir.exp2(b),
}


def _each(node: Node, fn: Callable[..., Any], *operands: Any) -> Any:
    return node.emit(node.bb.call_te(lambda *x: elementwise(fn, *x), *(node.tensor(x) for x in operands)))


@aten(*_UNARY)
def _unary(node: Node) -> Any:
    return _each(node, _UNARY[node.name.split(".")[1]], node["self"])


@aten(*_BINARY)
def _binary(node: Node) -> Any:
    return _each(node, _BINARY[node.name.split(".")[1]], node["self"], node["other"])


@aten("polygamma", "special_polygamma")
def _polygamma(node: Node) -> Any:
    return _each(node, special.polygamma(node["n"]) if node["n"] else special.digamma, node["self"])


@aten("fmax", "fmin")
def _extreme(node: Node) -> Any:
    """The other one where one is NaN."""
    a, b = (node.tensor(node[k]) for k in ("self", "other"))
    found = node.op("maximum" if "fmax" in node.name else "minimum", a, b)
    if not ir.DataType(node.dtype).is_float:
        return found
    return node.op("where", node.op("isnan", a), b, node.op("where", node.op("isnan", b), a, found))


@aten("signbit")
def _signbit(node: Node) -> Any:
    x = node["self"]
    dtype = ir.DataType(x.ty.dtype)
    if dtype.is_float:
        x = node.op("reinterpret", x, dtype=f"int{dtype.bits}")
    elif dtype.code != "int":
        return node.full(node.shape, False, "bool")
    return node.op("less", x, node.scalar(0, x.ty.dtype))
