"""Element by element: arithmetic, comparison, logic, conversion; constants and choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir, tir
from weft.frontend.common import pairs
from weft.frontend.complex_arithmetic import Complex, conjugate
from weft.frontend.stablehlo.importer import CONVERTERS, Node
from weft.frontend.stablehlo.text import Operation
from weft.topi import elementwise, special

_UNARY = {
    **{f"stablehlo.{name}": name for name in "abs ceil floor log rsqrt sign sqrt tan tanh".split()},
    **{f"chlo.{name}": name for name in "acos acosh asin asinh atan atanh cosh erf sinh square tan".split()},
    **pairs("""stablehlo.cosine:cos stablehlo.exponential:exp stablehlo.exponential_minus_one:expm1 stablehlo.sine:sin
        stablehlo.is_finite:isfinite stablehlo.log_plus_one:log1p stablehlo.logistic:sigmoid stablehlo.negate:negative
        stablehlo.round_nearest_even:round chlo.is_inf:isinf"""),
}
_BINARY = {
    name: (usual, of_bool)
    for name, usual, of_bool in (
        words.split(":")
        for words in """add:add:logical_or subtract:subtract: multiply:multiply:logical_and divide:divide:
        maximum:maximum:logical_or minimum:minimum:logical_and power:power: atan2:atan2: and:bitwise_and:logical_and
        or:bitwise_or:logical_or xor:bitwise_xor:logical_xor""".split()
    )
}
COMPARISONS = dict(EQ="equal", NE="not_equal", LT="less", LE="less_equal", GT="greater", GE="greater_equal")


@CONVERTERS.on("stablehlo.constant")
def _constant(node: Node) -> Any:
    value = node.source.attrs["value"]
    if not node.source.types[0].is_complex:
        return ir.constant(value)
    return Complex(*(ir.constant(np.array(value[..., i])) for i in (0, 1)))


@CONVERTERS.on("stablehlo.complex")
def _complex(node: Node) -> Any:
    return Complex(*node.operands)


@CONVERTERS.on("stablehlo.real", "stablehlo.imag")
def _one_part(node: Node) -> Any:
    x = node.graph.complex_of(node.x)
    return x.re if node.name == "real" else x.im


@CONVERTERS.on("chlo.conj")
def _conjugate(node: Node) -> Any:
    return conjugate(node.graph, node.x) if isinstance(node.x, Complex) else node.x


@CONVERTERS.on(*_UNARY)
def _unary(node: Node) -> Any:
    return node.op(_UNARY[node.source.name], node.x)


@CONVERTERS.on("stablehlo.optimization_barrier")
def _identity(node: Node) -> Any:
    return node.operands


@CONVERTERS.on(*(f"stablehlo.{name}" for name in _BINARY))
def _binary(node: Node) -> Any:
    usual, of_bool = _BINARY[node.name]
    return node.op(of_bool if node.x.ty.dtype == "bool" and of_bool else usual, *node.operands)


@CONVERTERS.on("stablehlo.not")
def _not(node: Node) -> Any:
    return node.op("logical_not" if node.x.ty.dtype == "bool" else "bitwise_not", node.x)


@CONVERTERS.on("stablehlo.remainder")
def _remainder(node: Node) -> Any:
    a, b = node.operands
    if ir.DataType(a.ty.dtype).is_float:
        return node.op("fmod", a, b)
    return node.op("subtract", a, node.op("multiply", node.op("divide", a, b), b))


@CONVERTERS.on("chlo.mulhi")
def _upper_half(node: Node) -> Any:
    """The upper half of a product, by the factors' halves: no sum of two such products leaves the type."""
    kind, scalar = ir.DataType(node.dtype), node.graph.scalar
    bits, mask = (scalar(v, node.dtype) for v in (kind.bits // 2, (1 << kind.bits // 2) - 1))
    (a, b), (low, other) = (
        [node.op(name, v, by) for v in node.operands] for name, by in (("right_shift", bits), ("bitwise_and", mask))
    )
    whole = node.graph.astype(node.op("multiply", low, other), f"uint{kind.bits}")
    carried = node.graph.astype(node.op("right_shift", whole, scalar(kind.bits // 2, f"uint{kind.bits}")), node.dtype)
    first = node.op("add", node.op("multiply", a, other), carried)
    second = node.op("add", node.op("bitwise_and", first, mask), node.op("multiply", low, b))
    carried = node.op("add", node.op("right_shift", first, bits), node.op("right_shift", second, bits))
    return node.op("add", node.op("multiply", a, b), carried)


@CONVERTERS.on("stablehlo.cbrt")
def _cube_root(node: Node) -> Any:
    size = node.op("power", node.op("abs", node.x), node.graph.scalar(1 / 3, node.x.ty.dtype))
    return node.op("multiply", node.op("sign", node.x), size)


@CONVERTERS.on("stablehlo.round_nearest_afz")
def _round_away(node: Node) -> Any:
    whole, dtype = node.op("trunc", node.x), node.x.ty.dtype
    rest = node.op("abs", node.op("subtract", node.x, whole))
    farther = node.op("add", whole, node.op("sign", node.x))
    return node.op("where", node.op("less", rest, node.graph.scalar(0.5, dtype)), whole, farther)


_SPECIAL = {
    **{name: getattr(special, name) for name in ("erfc", "lgamma", "digamma", "zeta")},
    "erf_inv": special.erfinv,
    "bessel_i1e": special.bessel(1, True),
    "next_after": tir.nextafter,
    "popcnt": tir.popcount,
    "count_leading_zeros": tir.clz,
    "polygamma": special.polygamma_of,
}


@CONVERTERS.on(*(f"{dialect}.{name}" for name in _SPECIAL for dialect in ("chlo", "stablehlo")))
def _special(node: Node) -> Any:
    return node.graph.emit(node.graph.bb.call_te(lambda *x: elementwise(_SPECIAL[node.name], *x), *node.operands))


@CONVERTERS.on("stablehlo.shift_left", "stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical")
def _shift(node: Node) -> Any:
    """Shifts; those by as many bits as there are, or more, leave nothing, or the sign."""
    x, by = node.operands
    dtype, bits, unsigned = str(x.ty.dtype), ir.DataType(x.ty.dtype).bits, f"uint{ir.DataType(x.ty.dtype).bits}"
    amount = by if by.ty.dtype == unsigned else node.op("reinterpret", by, dtype=unsigned)
    logical = node.name != "shift_right_arithmetic"
    plain = dtype.removeprefix("u") if not logical else dtype if dtype.startswith("u") else f"u{dtype}"
    op = "left_shift" if node.name == "shift_left" else "right_shift"
    known = by.data.numpy() if isinstance(by, ir.Constant) else None
    inside = known is not None and bool(((known >= 0) & (known < bits)).all())
    last = node.graph.scalar(bits - 1, unsigned)
    held = amount if inside else node.op("minimum", amount, last)
    found = x if dtype == plain else node.op("reinterpret", x, dtype=plain)
    found = node.op(op, found, held if plain == unsigned else node.op("reinterpret", held, dtype=plain))
    if logical and not inside:
        is_far = node.op("greater", amount, last)
        found = node.op("where", is_far, node.graph.scalar(0, plain), found)
    return found if dtype == plain else node.op("reinterpret", found, dtype=dtype)


@CONVERTERS.on("stablehlo.compare")
def _compare(node: Node) -> Any:
    direction = comparison(node.source)
    a, b = node.operands
    if a.ty.dtype == "bool":
        a, b = (node.graph.astype(v, "uint8") for v in (a, b))
    if "TOTALORDER" in str(node.source.words[-1:] or node.attr("compare_type")) and ir.DataType(a.ty.dtype).is_float:
        a, b = _in_total_order(node, a), _in_total_order(node, b)
    return node.op(COMPARISONS[direction], a, b)


def _in_total_order(node: Node, x: Any) -> Any:
    """Floats as integers in their total order: negative NaN, negative infinity, -0, 0, infinity, NaN."""
    bits = ir.DataType(x.ty.dtype).bits
    dtype = f"int{bits}"
    x = node.op("reinterpret", x, dtype=dtype)
    sign = node.op("right_shift", x, node.graph.scalar(bits - 1, dtype))
    return node.op("bitwise_xor", x, node.op("bitwise_and", sign, node.graph.scalar((1 << (bits - 1)) - 1, dtype)))


def comparison(op: Operation) -> str:
    """The direction of a comparison: EQ, NE, LT, LE, GT or GE."""
    return op.words[0] if op.words else op.attrs["comparison_direction"]


@CONVERTERS.on("stablehlo.select")
def _select(node: Node) -> Any:
    return node.op("where", *node.operands)


@CONVERTERS.on("stablehlo.clamp")
def _clamp(node: Node) -> Any:
    low, x, high = node.operands
    return node.op("minimum", node.op("maximum", x, low), high)


@CONVERTERS.on("stablehlo.convert")
def _convert(node: Node) -> Any:
    x = node.x
    if node.dtype == "bool" and x.ty.dtype != "bool":
        return node.op("not_equal", x, node.graph.scalar(0, x.ty.dtype))
    return node.graph.astype(x, node.dtype)


@CONVERTERS.on("stablehlo.reduce_precision")
def _reduced(node: Node) -> Any:
    """Round to fewer digits, to even; what leaves the range of the exponents is infinite, or zero of its sign."""
    given = str(node.attr("format", ""))
    exponent, mantissa = (
        (int(n) for n in given[1:].split("m")) if given else (node.attr("exponent_bits"), node.attr("mantissa_bits"))
    )
    info = np.finfo(ir.numpy_dtype(str(node.x.ty.dtype)))
    dtype, digits, bias = f"uint{info.bits}", int(info.nmant), (1 << (int(info.nexp) - 1)) - 1
    op, bits = node.op, node.op("reinterpret", node.x, dtype=dtype)

    def number(value: int) -> Any:
        return node.graph.scalar(value, dtype)

    infinite, sign = ((1 << int(info.nexp)) - 1) << digits, 1 << (info.bits - 1)
    if mantissa < digits:
        last = op("right_shift", bits, number(digits - mantissa))
        last = op("bitwise_and", last, number(1))
        bits = op("add", bits, op("add", last, number((1 << (digits - mantissa - 1)) - 1)))
        bits = op("bitwise_and", bits, number((1 << info.bits) - (1 << (digits - mantissa))))
    if exponent < int(info.nexp):
        own, most = op("bitwise_and", bits, number(infinite)), (1 << (exponent - 1)) - 1
        zero = op("bitwise_and", bits, number(sign))
        far = op("bitwise_or", zero, number(infinite))
        bits = op("where", op("greater", own, number((bias + most) << digits)), far, bits)
        bits = op("where", op("less_equal", own, number((bias - most) << digits)), zero, bits)
    return op("where", op("isnan", node.x), node.x, op("reinterpret", bits, dtype=str(node.x.ty.dtype)))


@CONVERTERS.on("stablehlo.bitcast_convert")
def _bitcast(node: Node) -> Any:
    """The same bits in another type; one of another size has one dimension more, or less, the lowest part first."""
    x, own, wanted = node.x, ir.DataType(node.x.ty.dtype).bits, ir.DataType(node.dtype).bits
    if own != wanted:
        narrow, wide = sorted((own, wanted))
        if narrow < 8 or wide % narrow or (own < wanted and node.dims(x)[-1:] != [wide // narrow]):
            node.unsupported("element types whose sizes do not divide", found=f"{x.ty.dtype} to {node.dtype}")
        graph, dtype = node.graph, f"uint{wide}"
        places = graph.op("multiply", graph.arange(wide // narrow, dtype), graph.scalar(narrow, dtype))
        x = x if x.ty.dtype == f"uint{own}" else node.op("reinterpret", x, dtype=f"uint{own}")
        if own < wanted:
            x = node.op("sum", node.op("left_shift", graph.astype(x, dtype), places), axis=[-1])
        else:
            x = node.op("right_shift", graph.reshape(x, [*node.dims(x), 1]), places)
            x = graph.astype(node.op("bitwise_and", x, graph.scalar((1 << narrow) - 1, dtype)), f"uint{narrow}")
    return x if x.ty.dtype == node.dtype else node.op("reinterpret", x, dtype=node.dtype)


@CONVERTERS.on("stablehlo.iota", "stablehlo.dynamic_iota")
def _iota(node: Node) -> Any:
    axis, shape = node.attr("dim", node.attr("iota_dimension")), node.sizes(0) if node.operands else node.shape
    line = node.graph.arange(shape[axis], node.dtype)
    return node.graph.expand(node.graph.reshape(line, [n if i == axis else 1 for i, n in enumerate(shape)]), shape)


# --- control ----------------------------------------------------------------------------------------------------------


@CONVERTERS.on("stablehlo.if", "stablehlo.case")
def _choice(node: Node) -> Any:
    count = len(node.source.regions)
    if node.name == "if":
        return node.graph.choice(node.x, [lambda: node.inlined(0, [], False), lambda: node.inlined(1, [], False)])

    def from_branch(i: int) -> list[Any]:
        """The results of branch `i` or a later one; the last is for all numbers that have none."""
        if i == count - 1:
            return node.inlined(i, [], False)
        test = node.op("equal", node.x, node.graph.scalar(i, node.x.ty.dtype))
        return node.graph.choice(test, [lambda: node.inlined(i, [], False), lambda: from_branch(i + 1)])

    return from_branch(0)


@CONVERTERS.on("stablehlo.while")
def _while(node: Node) -> Any:
    return node.graph.loop(
        node.operands, lambda state: node.inlined(0, state, False)[0], lambda state: node.inlined(1, state, False)
    )
