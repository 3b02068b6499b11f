"""Element-wise operators and concatenation of quantized tensors: their operands get one scale and zero point first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.relay.expr import Tuple, TupleGetItem, const
from weft.relay.op.construct import constructs
from weft.relay.op.registry import REQUIRED, get, infer_call, op_call
from weft.relay.qnn.define import clipped, constant, define, is_value, limits, zero
from weft.relay.qnn.requantization import requantized

__all__: list[str] = []

_BINARY = "lhs rhs " + " ".join(
    f"{n}:constant"
    for n in ("lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point", "output_scale", "output_zero_point")
)
_UNARY = "x scale zero_point output_scale output_zero_point"


def _same(a: Any, b: Any) -> bool:
    both = isinstance(a, ir.Constant) and isinstance(b, ir.Constant)
    return a is b or (both and np.array_equal(a.data.numpy(), b.data.numpy()))


def _with_scale(x: Any, scale: Any, shift: Any, to_scale: Any, to_shift: Any, axis: int, dtype: str = "int32") -> Any:
    """Requantize where scale or zero point differ."""
    if _same(scale, to_scale) and _same(shift, to_shift):
        return op_call("cast", x, dtype=dtype) if x.ty.dtype != dtype else x
    return requantized(x, scale, shift, to_scale, to_shift, axis, out_dtype=dtype)


def _sum(name: str, back: str) -> Callable[..., Any]:
    """Make the rule of a sum: on the output's scale, the zero points of both operands stand for one too many."""

    def decompose(lhs: Any, rhs: ir.Expr, *numbers: ir.Expr, lhs_axis: int, rhs_axis: int) -> Any:
        lhs_scale, lhs_shift, rhs_scale, rhs_shift, scale, shift = numbers
        left = _with_scale(lhs, lhs_scale, lhs_shift, scale, shift, lhs_axis)
        right = _with_scale(rhs, rhs_scale, rhs_shift, scale, shift, rhs_axis)
        value = op_call(name, left, right)
        if not is_value(shift, 0):
            value = op_call(back, value, shift)
        return clipped(value, lhs.ty.dtype)

    return decompose


def _product(lhs: Any, rhs: Any, *numbers: ir.Expr, lhs_axis: int, rhs_axis: int) -> Any:
    lhs_scale, lhs_shift, rhs_scale, rhs_shift, scale, shift = numbers
    operands = []
    for x, s in ((lhs, lhs_shift), (rhs, rhs_shift)):
        wide = op_call("cast", x, dtype="int32")
        operands.append(wide if is_value(s, 0) else op_call("subtract", wide, s))
    both = constant("mul", "lhs_scale", lhs_scale) * constant("mul", "rhs_scale", rhs_scale)
    value = op_call("multiply", *operands)
    return requantized(
        value, const(both), zero(), scale, shift, lhs_axis, out_dtype=lhs.ty.dtype, ndim=max(lhs.ty.ndim, rhs.ty.ndim)
    )


def _like(name: str) -> Callable[..., Any]:
    """Make the rule that the type is that of an operator on the tensors alone."""

    def infer(types: Sequence[Any], attrs: ir.Attrs) -> Any:
        tensors = [ir.ExprVar("x", t) for t in types[: len(get(name).inputs)]]
        known = {k: v for k, v in attrs.items if k in get(name).attrs}
        return infer_call(ir.Call(ir.Op.get(name), tuple(tensors), ir.Attrs.of(known)))

    return infer


for _name, _rule in (("add", _sum("add", "subtract")), ("subtract", _sum("subtract", "add")), ("mul", _product)):
    _shared = "multiply" if _name == "mul" else _name
    define(
        _name,
        _BINARY,
        {"lhs_axis": -1, "rhs_axis": -1},
        _rule,
        _like(_shared),
        doc=f"``{_shared}`` of quantized tensors, with broadcasting.",
    )


def _fields(tensors: ir.Expr) -> list[Any]:
    """Return the fields of a tuple, whatever computes it."""
    if isinstance(tensors, ir.Tuple):
        return list(tensors.fields)
    return [TupleGetItem(tensors, i, ty=t) for i, t in enumerate(tensors.ty.fields)]


def _concatenated(
    data: Any, input_scales: Any, input_zero_points: Any, output_scale: Any, output_zero_point: Any, axis: int
) -> Any:
    fields = zip(*map(_fields, (data, input_scales, input_zero_points)), strict=True)
    same = [_with_scale(x, s, z, output_scale, output_zero_point, -1, x.ty.dtype) for x, s, z in fields]
    return op_call("concatenate", Tuple(tuple(same)), axis=axis)


_SCALES = " ".join(f"{n}:constant" for n in ("input_scales", "input_zero_points", "output_scale", "output_zero_point"))
define(
    "concatenate",
    f"data:tensors {_SCALES}",
    {"axis": REQUIRED},
    _concatenated,
    _like("concatenate"),
    doc="Concatenate quantized tensors that may differ in scale.",
)


def _through_reals(name: str) -> Callable[..., Any]:
    """Make the rule of a function of one operand: through the real numbers that it stands for."""

    def decompose(x: Any, scale: Any, shift: Any, to_scale: Any, to_shift: Any, **attrs: Any) -> Any:
        value = op_call(
            "multiply",
            op_call("cast", op_call("subtract", op_call("cast", x, dtype="int32"), shift), dtype="float32"),
            scale,
        )
        made = _FUNCTIONS[name](value, **attrs)
        shifted = op_call("add", op_call("divide", made, to_scale), op_call("cast", to_shift, dtype="float32"))
        low, high = limits(x.ty.dtype)
        clip = op_call("clip", op_call("round", shifted), a_min=float(low), a_max=float(high))
        return op_call("cast", clip, dtype=x.ty.dtype)

    return decompose


def _hardswish(x: ir.Expr) -> Any:
    gate = op_call("clip", op_call("add", x, const(np.float32(3))), a_min=0.0, a_max=6.0)
    return op_call("divide", op_call("multiply", x, gate), const(np.float32(6)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{n: (lambda x, n=n: op_call(n, x)) for n in ("abs", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt", "tanh")},
    "hardswish": _hardswish,
    "leaky_relu": lambda x, alpha: op_call("nn.leaky_relu", x, alpha=alpha),
    "softmax": lambda x, axis: op_call("nn.softmax", x, axis=axis),
}
_ATTRS: dict[str, dict[str, Any]] = {"leaky_relu": {"alpha": REQUIRED}, "softmax": {"axis": -1}}

for _name in _FUNCTIONS:
    define(_name, _UNARY, _ATTRS.get(_name, {}), _through_reals(_name), doc=f"``{_name}`` of a quantized tensor.")


@constructs("qnn.leaky_relu")
def leaky_relu(
    x: ir.Expr,
    alpha: float,
    input_scale: ir.Expr | None = None,
    input_zero_point: ir.Expr | None = None,
    output_scale: ir.Expr | None = None,
    output_zero_point: ir.Expr | None = None,
    *,
    scale: ir.Expr | None = None,
    zero_point: ir.Expr | None = None,
) -> Any:
    """Call ``qnn.leaky_relu``, whose slope comes before the scales; ``scale`` and ``zero_point`` say both at once."""
    given = (
        (scale, zero_point) * 2
        if scale is not None
        else (input_scale, input_zero_point, output_scale, output_zero_point)
    )
    return op_call("qnn.leaky_relu", x, *given, alpha=alpha)
