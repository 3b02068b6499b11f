"""Element by element: arithmetic, comparison, logic, activations."""

import math
from typing import Any

from weft import ir
from weft.frontend.torch.node import Node, dtype_name
from weft.frontend.torch.registry import aten, operators

_UNARY = {
    name: name
    for name in """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log10 log1p
    log2 reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc bitwise_not""".split()
} | {name: f"nn.{name}" for name in ("relu", "silu", "hardswish", "hardsigmoid", "relu6", "mish", "selu")}
_UNARY["neg"] = "negative"
_ROUNDING = {"ceil", "floor", "round", "trunc"}
_BINARY = (
    {name: name for name in "atan2 maximum minimum bitwise_and bitwise_or bitwise_xor floor_divide".split()}
    | {"mul": "multiply", "remainder": "floor_mod", "logaddexp": "log_add_exp"}
    | {f"bitwise_{side}_shift": f"{side}_shift" for side in ("left", "right")}
)
_OTHER_NAMES = {"max.other": "maximum", "min.other": "minimum"}
_COMPARISON = dict(eq="equal", ne="not_equal", lt="less", le="less_equal", gt="greater", ge="greater_equal")


@aten(*_UNARY)
def _unary(node: Node) -> Any:
    name, x = node.name.split(".")[1], node["self"]
    if name in _ROUNDING and not ir.DataType(x.ty.dtype).is_float:
        return x
    if name == "sign" and ir.DataType(x.ty.dtype).is_float:  # zero for what is no number
        x = node.op("where", node.op("isnan", x), node.scalar(0, x.ty.dtype), x)
    if name in ("abs", "sign", "neg", "relu", "bitwise_not", "square"):
        if name == "bitwise_not" and x.ty.dtype == "bool":
            return node.op("logical_not", x)
        return node.op(_UNARY[name], node.astype(x, node.dtype)) if x.ty.dtype != "bool" else x
    return node.op(_UNARY[name], node.astype(x, node.dtype))


@aten("round.decimals")
def _round_decimals(node: Node) -> Any:
    scale = 10.0 ** node["decimals"]
    x, factor = node.astype(node["self"], node.dtype), node.scalar(scale, node.dtype)
    return node.op("divide", node.op("round", node.op("multiply", x, factor)), factor)


@aten(*_BINARY, *_OTHER_NAMES)
def _binary(node: Node) -> Any:
    name = node.name.split(".")[1]
    name = _OTHER_NAMES.get(f"{name}.other", name)
    a, b = _operands(node)
    if node.dtype == "bool" and name in ("maximum", "minimum", "mul"):
        return node.op("logical_or" if name == "maximum" else "logical_and", a, b)
    if node.dtype == "bool" and name.startswith("bitwise_"):
        return node.op(name.replace("bitwise", "logical"), a, b)
    if name in ("remainder", "floor_divide") and ir.DataType(node.dtype).is_float:
        return _floored(node, name, a, b)
    return node.op(_BINARY[name], a, b)


def _floored(node: Node, name: str, a: Any, b: Any) -> Any:
    """The quotient that rounds down and its remainder, from C's remainder, which is exact."""
    rest, zero = node.op("fmod", a, b), node.scalar(0, node.dtype)
    other_sign = node.op("not_equal", node.op("less", rest, zero), node.op("less", b, zero))
    moves = node.op("logical_and", node.op("not_equal", rest, zero), other_sign)
    if name == "remainder":
        return node.op("where", moves, node.op("add", rest, b), rest)
    whole = node.op("divide", node.op("subtract", a, rest), b)
    whole = node.op("where", moves, node.op("subtract", whole, node.scalar(1, node.dtype)), whole)
    quotient = node.op("divide", a, b)
    rounded = node.op("round", whole)
    return node.op("where", node.op("equal", b, zero), quotient, rounded)


def _operands(node: Node, dtype: str | None = None) -> tuple[Any, Any]:
    """Both operands in the type that PyTorch computes in."""
    other = "other" if "other" in node.args else "exponent"
    dtype = dtype or node.dtype
    return node.tensor(node["self"], dtype), node.tensor(node[other], dtype)


def _promoted(node: Node) -> str:
    """The type in which operands of different types meet."""
    import torch

    a, b = node.metas["self"], node.metas["other"]
    plain = [
        v if isinstance(v, (bool, int, float)) or hasattr(v, "dtype") else 1.0 if type(v).__name__ == "SymFloat" else 1
        for v in (a, b)
    ]
    return dtype_name(torch.result_type(*plain))


@aten(*_COMPARISON)
def _compare(node: Node) -> Any:
    dtype = _promoted(node)
    a, b = _operands(node, dtype if dtype != "bool" else "uint8")
    return node.op(_COMPARISON[node.name.split(".")[1]], a, b)


@aten("logical_and", "logical_or", "logical_xor")
def _logical(node: Node) -> Any:
    return node.op(node.name.split(".")[1], *(node.truth(x) for x in (node["self"], node["other"])))


@aten("logical_not")
def _logical_not(node: Node) -> Any:
    return node.op("logical_not", node.truth(node["self"]))


@aten("add", "sub", "rsub")
def _add(node: Node) -> Any:
    a, b = _operands(node)
    name = node.name.split(".")[1]
    if name == "rsub":
        a, b = b, a
    if node.dtype == "bool":
        return node.op("logical_or", a, b)
    if node.get("alpha", 1) != 1:
        b = node.op("multiply", b, node.tensor(node["alpha"]))
    return node.op("add" if name == "add" else "subtract", a, b)


@aten("div")
def _divide(node: Node) -> Any:
    a, b = _operands(node)
    mode = node.get("rounding_mode")
    is_float = ir.DataType(node.dtype).is_float
    if mode == "floor":
        return _floored(node, "floor_divide", a, b) if is_float else node.op("floor_divide", a, b)
    found = node.op("divide", a, b)
    return node.op("trunc", found) if mode == "trunc" and is_float else found


@aten("fmod")
def _fmod(node: Node) -> Any:
    a, b = _operands(node)
    if ir.DataType(node.dtype).is_float:
        return node.op("fmod", a, b)
    return node.op("subtract", a, node.op("multiply", node.op("divide", a, b), b))


@aten("pow")
def _power(node: Node) -> Any:
    a, b = _operands(node)
    exponent = node["exponent"]
    if ir.DataType(node.dtype).is_float and isinstance(exponent, (int, float)):
        simple = {1: lambda: a, 2: lambda: node.op("multiply", a, a), 0.5: lambda: node.op("sqrt", a)}
        if exponent in simple:
            return simple[exponent]()
    return node.op("power", a, b)


@aten("angle")
def _angle(node: Node) -> Any:
    """Of real numbers: zero, or half a turn; what is no number stays."""
    x, zero = node.astype(node["self"], node.dtype), node.scalar(0, node.dtype)
    found = node.op("where", node.op("less", x, zero), node.scalar(math.pi, node.dtype), zero)
    return node.op("where", node.op("isnan", x), x, found)


@aten("isnan", "isinf", "isfinite")
def _is(node: Node) -> Any:
    x, name = node["self"], node.name.split(".")[1]
    if ir.DataType(x.ty.dtype).is_float:
        return node.op(name, x)
    return node.full(node.shape, name == "isfinite", "bool")


@aten("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(node: Node) -> Any:
    x = node.astype(node["self"], node.dtype)
    low, high = node.get("min", node.get("min_val")), node.get("max", node.get("max_val"))
    if low is not None:
        x = node.op("maximum", x, node.tensor(low))
    return x if high is None else node.op("minimum", x, node.tensor(high))


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(node: Node) -> Any:
    return node.op("where", node.truth(node["condition"]), node.tensor(node["self"]), node.tensor(node["other"]))


@aten("masked_fill")
def _masked_fill(node: Node) -> Any:
    return node.op("where", node["mask"], node.tensor(node["value"]), node["self"])


@aten("gelu")
def _gelu(node: Node) -> Any:
    return node.op("nn.gelu_tanh" if node["approximate"] == "tanh" else "nn.gelu", node["self"])


@aten("leaky_relu")
def _leaky_relu(node: Node) -> Any:
    return node.op("nn.leakyrelu", node["self"], alpha=float(node["negative_slope"]))


@aten("rrelu", "rrelu_with_noise", "rrelu_with_noise_functional")
def _rrelu(node: Node) -> Any:
    if node["training"]:
        node.error("random slopes in training mode", help="export the module after .eval()")
    found = node.op("nn.leakyrelu", node["self"], alpha=(float(node["lower"]) + float(node["upper"])) / 2)
    return [found, node["noise"]] if isinstance(node.value, (tuple, list)) else found


@aten("prelu", "_prelu_kernel")
def _prelu(node: Node) -> Any:
    x, weight = node["self"], node["weight"]
    if len(weight.ty.shape) == 1 and len(x.ty.shape) > 1:
        weight = node.reshape(weight, [node.dims(weight)[0], *[1] * (len(x.ty.shape) - 2)])
    return node.op("where", node.op("greater", x, node.scalar(0, node.dtype)), x, node.op("multiply", x, weight))


@aten("elu")
def _elu(node: Node) -> Any:
    x, zero = node["self"], node.scalar(0, node.dtype)
    alpha, scale, slope = (node.scalar(node[k], node.dtype) for k in ("alpha", "scale", "input_scale"))
    negative = node.op("multiply", node.op("expm1", node.op("multiply", node.op("minimum", x, zero), slope)), alpha)
    return node.op("multiply", node.op("where", node.op("greater", x, zero), x, negative), scale)


@aten("softplus")
def _softplus(node: Node) -> Any:
    return node.op("nn.softplus", node["self"], beta=float(node["beta"]), threshold=float(node["threshold"]))


@aten("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "view_of")
def _identity(node: Node) -> Any:
    return node["self"]


@operators("prims.convert_element_type")
@aten("_to_copy", "to", "copy", "type_as")
def _convert(node: Node) -> Any:
    node.get("other")  # whose type is the result's
    node.get("copy")  # what is computed is never written to
    x = next(node[k] for k in ("src", "a", "self") if k in node.args)
    node.get("self")
    if node.dtype == "bool":
        return node.truth(x)
    return node.expand(node.astype(x, node.dtype), node.shape)


@aten("native_dropout", "dropout")
def _dropout(node: Node) -> Any:
    if node["train"] and node["p"] > 0:
        node.error("dropout in training mode", help="export the module after .eval()")
    x = node["input"]
    if not isinstance(node.value, (tuple, list)):
        return x
    return [x, node.full(node.dims(x), True, "bool") if 1 in node.used else None]
