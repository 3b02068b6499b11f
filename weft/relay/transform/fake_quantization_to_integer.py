"""FakeQuantizationToInteger: what lies between dequantize and quantize is computed with integers.

Each operator has a rule, ``rule(call, types) -> [expression, type]``: `call` has integer operands, `types` says what
numbers they stand for, and ``types[call]`` what the region's result is quantized to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from weft import error, ir
from weft.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, const
from weft.relay.infer import inferred_type
from weft.relay.op.registry import get, op_call
from weft.relay.transform.infer_type import infer_type
from weft.relay.walk import rewrite

_KEY = "FTVMFakeQuantizationToInteger"


class _Refused(Exception):
    """A region has something that integers do not compute."""


def _refuse(what: str) -> NoReturn:
    raise _Refused(what)


def _per_tensor(what: str, *types: Any) -> None:
    """Demand that one scale and zero point hold for each tensor, whatever becomes of its dimensions."""
    for v in (v for t in types for v in (t.scale, t.zero_point)):
        if _number(v) is None or _number(v).size != 1:
            _refuse(f"{what} of channels with scales of their own, or of computed ones")


@ir.module_pass(opt_level=0)
def fake_quantization_to_integer(mod: ir.IRModule, hard_fail: bool = False, use_qat: bool = False) -> ir.IRModule:
    """Compute with integers what lies between ``qnn.dequantize`` and ``qnn.quantize``, where each operator allows it.

    Parameters
    ----------
    hard_fail : bool
        Whether an operator without a rule is an error; its region stays as it is otherwise.
    use_qat : bool
        Whether operators on dequantized numbers that no ``qnn.quantize`` follows are computed with integers, too, where
        what they are given says how their results are quantized.

    Requires: Graph form.
    Ensures: The same form, with types.
    Before::

        def @main(%x: Tensor[(2), int8]) {
          qnn.quantize(nn.relu(qnn.dequantize(%x, 2f, 0)), 2f, 0)
        }

    After::

        def @main(%x: Tensor[(2), int8]) { maximum(%x, 0i8) }
    Cost: Linear in the regions, which may overlap.
    Source: TVM's ``FakeQuantizationToInteger``.
    """
    typed = infer_type(mod)
    quantize = ir.Op.get("qnn.quantize")

    def rule(e: ir.Expr) -> Any:
        if type(e) is not Call or e.op is not quantize:
            return e
        try:
            return _Region(ir.TensorAffineType(e.args[1], e.args[2], e.attrs["out_dtype"], e.attrs["axis"])).result(e)
        except (_Refused, NotImplementedError) as refusal:  # the second is what a program's own rule says
            if hard_fail:
                raise error.UnsupportedOperator(f"FakeQuantizationToInteger: {refusal}", where=e.span) from None
            return e

    for step in (rule, _alone) if use_qat else (rule,):
        typed = infer_type(
            typed.with_functions({v: rewrite(f, step) if type(f) is Function else f for v, f in typed.items()})
        )
    return typed


class _Unknown:
    """The type of a result that nothing quantizes."""

    def __getattr__(self, name: str) -> Any:
        _refuse("nothing says how the result is quantized")


def _alone(e: Call) -> Any:
    """Compute with integers, and dequantize, a call on dequantized numbers and constants."""
    rule = e.op.get_attr(_KEY) if type(e) is Call and isinstance(e.op, ir.Op) else None
    dequantize = ir.Op.get("qnn.dequantize")
    given = (
        [a.op for a in e.args if isinstance(a, Call)]
        if rule and all(isinstance(a, (Call, Constant)) for a in e.args)
        else []
    )
    if set(given) != {dequantize} or not (rule in _OF_OPERANDS or getattr(e.op, "name", "") == "nn.bias_add"):
        return e
    try:
        made, ty = _Region(_Unknown()).converted(e)
    except (_Refused, NotImplementedError):
        return e
    if not isinstance(ty, ir.TensorAffineType):
        return e
    return op_call("qnn.dequantize", made, ty.scale, ty.zero_point, axis=ty.axis)


class _Region:
    """What one quantize asks for, and what has been converted for it."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.types: dict[Any, Any] = {}
        self.memo: dict[Any, Any] = {}

    def result(self, e: Call) -> Any:
        made = self.convert(e.args[0])
        return _as(made, self.types.get(made) or _refuse("nothing in the region was quantized"), self.out)

    def convert(self, e: ir.Expr) -> Any:
        """Return the integers that stand for an expression, or a constant as it is."""
        if e not in self.memo:
            made, ty = self.converted(e)
            self.memo[e] = made
            if ty is not None:
                self.types[made] = ty
        return self.memo[e]

    def converted(self, e: Any) -> Any:
        if isinstance(e, Constant):
            return e, None
        if isinstance(e, Tuple):
            fields = tuple(self.convert(f) for f in e.fields)
            return Tuple(fields, span=e.span), ir.TupleAffineType(tuple(self.types.get(f) for f in fields))
        if isinstance(e, TupleGetItem):
            whole = self.convert(e.tuple_value)
            return TupleGetItem(whole, e.index, span=e.span), self.types[whole].types[e.index]
        name = e.op.name if isinstance(e, Call) and isinstance(e.op, ir.Op) else type(e).__name__
        if name == "qnn.dequantize":
            x, scale, zero = e.args
            ty: Any = x.ty or inferred_type(x)  # what another region became has no type yet
            return x, ir.TensorAffineType(scale, zero, ty.dtype, e.attrs["axis"])
        rule = e.op.get_attr(_KEY) if isinstance(e, Call) and isinstance(e.op, ir.Op) else None
        if rule is None:
            _refuse(f"there is no rule for {name}")
        call = Call(e.op, tuple(self.convert(a) for a in e.args), e.attrs, span=e.span)
        self.types[call] = self.out
        return rule(call, self.types)


# --- quantities -------------------------------------------------------------------------------------------------------


def _number(e: ir.Expr) -> Any:
    return e.data.numpy() if isinstance(e, Constant) else None


def _equal(a: Any, b: Any) -> bool:
    x, y = _number(a), _number(b)
    return ir.structural_equal(a, b) if x is None or y is None else x.size == y.size and np.allclose(x, y)


def _same(t: Any, u: Any) -> bool:
    return _equal(t.scale, u.scale) and _equal(t.zero_point, u.zero_point) and t.dtype == u.dtype


def _as(x: Any, t: Any, u: Any) -> Any:
    """Bring integers that stand for one kind of numbers into another."""
    if t is None:
        return op_call("qnn.quantize", x, u.scale, u.zero_point, axis=u.axis, out_dtype=u.dtype)
    if _same(t, u):
        return x
    have, want, zero = t.scale, u.scale, u.zero_point
    if (wide := _number(want)) is not None and wide.size > 1:  # scales of channels are those of what comes in
        if _number(have) is None or _number(zero) is None or np.any(_number(zero)):
            _refuse("a change into channels with zero points of their own, or from a computed scale")
        have, want, zero = const((_number(have) / wide).astype("float32")), const(np.float32(1)), const(np.int32(0))
    return op_call("qnn.requantize", x, have, t.zero_point, want, zero, axis=t.axis, out_dtype=u.dtype)


def _bound(real: float, t: Any, x: ir.Expr) -> Any:
    """Return the integer, of each channel if scales are, that stands for a number."""
    scale, zero = (_number(v) for v in (t.scale, t.zero_point))
    if scale is None or zero is None:
        _refuse("a scale or zero point is computed")
    ndim, info = inferred_type(x).ndim, np.iinfo(t.dtype)  # type: ignore[attr-defined]
    value = np.clip(np.round(real / scale + zero), info.min, info.max).astype(t.dtype)
    shape = [value.size if d == t.axis % ndim else 1 for d in range(ndim)] if value.size > 1 else []
    return const(np.asarray(value).reshape(shape))


# --- rules ------------------------------------------------------------------------------------------------------------


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        for name in names:
            ir.register_op_attr(name, _KEY, fn)
        return fn

    return register


@_rule(
    *(
        "reshape squeeze strided_slice transpose expand_dims nn.max_pool1d nn.max_pool2d nn.max_pool3d "
        "nn.batch_flatten nn.depth_to_space nn.space_to_depth max min broadcast_to tile repeat reverse split"
    ).split()
)
def _rearranged(call: Any, types: Any) -> list[Any]:
    t = types[call.args[0]]
    if not call.op.name.startswith("nn.max_pool"):
        _per_tensor(call.op.name, t)
    if call.op.name != "split":
        return [call, t]
    parts = call.attrs["indices_or_sections"]
    return [call, ir.TupleAffineType((t,) * (parts if isinstance(parts, int) else len(parts) + 1))]


@_rule("nn.avg_pool2d", "nn.global_avg_pool2d", "nn.adaptive_avg_pool2d", "mean")
def _averaged(call: Any, types: Any) -> list[Any]:
    """The mean of what is above the zero point, so that padding is zero; rounded to a whole number."""
    x, t = call.args[0], types[call.args[0]]
    _per_tensor(call.op.name, t)
    shift = op_call("cast", t.zero_point, dtype="int32")
    wide = op_call("cast", op_call("subtract", op_call("cast", x, dtype="int32"), shift), dtype="float32")
    made = op_call("round", Call(call.op, (wide,), call.attrs))
    whole = op_call("add", op_call("cast", made, dtype="int32"), shift)
    return [whole, ir.TensorAffineType(t.scale, t.zero_point, "int32")]


@_rule("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.batch_matmul")
def _product(call: Any, types: Any) -> list[Any]:
    (x, w), name = call.args, call.op.name.removeprefix("nn.")
    a, b = (types.get(v) or _refuse(f"an operand of {call.op.name} is not quantized") for v in (x, w))
    scales = [_number(t.scale) for t in (a, b)]
    if any(v is None for v in scales):
        _refuse("a scale is computed")
    attrs = {k: v for k, v in call.attrs.items if k != "out_dtype" and k in get(ir.Op.get(f"qnn.{name}")).attrs}
    made = op_call(f"qnn.{name}", x, w, a.zero_point, b.zero_point, a.scale, b.scale, **attrs)
    layout = attrs.get("out_layout") or attrs.get("data_layout")
    scale = const((scales[0] * scales[1]).astype("float32"))
    axis = layout.index("C") if layout else -1
    return [made, ir.TensorAffineType(scale, const(np.zeros(np.shape(_number(scale)), "int32")), "int32", axis)]


@_rule("nn.bias_add", "add", "subtract", "multiply", "minimum", "maximum")
def _of_two(call: Any, types: Any) -> list[Any]:
    """Two operands, of which one may be a constant; sums of 32 bits in the scale of the first."""
    x, y = call.args
    name, out = call.op.name, types[call]
    t, u = types.get(x), types.get(y)
    if t is None or u is None:
        whole = t or u or _refuse(f"no operand of {name} is quantized")
        _per_tensor(name, whole)
        x, y, t, u = _as(x, t, whole), _as(y, u, whole), whole, whole
    if name == "nn.bias_add" or (name in ("add", "subtract") and t.dtype == "int32"):
        axis = 0 if name == "nn.bias_add" else u.axis
        aside = ir.TensorAffineType(u.scale, u.zero_point, u.dtype, axis)
        if np.any(_number(t.zero_point)):
            _refuse(f"{name} of 32 bits around a zero point")
        return [Call(call.op, (x, _as(y, aside, t)), call.attrs), t]
    if name in ("minimum", "maximum"):
        return [Call(call.op, (_as(x, t, out), _as(y, u, out)), call.attrs), out]
    out = out if t.dtype == out.dtype else t
    _per_tensor(name, t, u, out)
    if t.dtype != u.dtype:
        _refuse(f"{name} of tensors of two types")
    both = (t.scale, t.zero_point, u.scale, u.zero_point, out.scale, out.zero_point)
    return [op_call(f"qnn.{'mul' if name == 'multiply' else name}", x, y, *both), out]


@_rule("concatenate")
def _joined(call: Any, types: Any) -> list[Any]:
    out = types[call]
    kinds = types[call.args[0]].types
    fields = [_as(f, t, out) for f, t in zip(call.args[0].fields, kinds, strict=True)]
    return [Call(call.op, (Tuple(tuple(fields)),), call.attrs), out]


@_rule("clip", "nn.relu")
def _bounded(call: Any, types: Any) -> list[Any]:
    x, t = call.args[0], types[call.args[0]]
    if call.op.name == "nn.relu":
        return [op_call("maximum", x, _bound(0.0, t, x)), t]
    low, high = (_bound(call.attrs[k], t, x) for k in ("a_min", "a_max"))
    return [op_call("minimum", op_call("maximum", x, low), high), t]


@_rule("nn.pad")
def _padded(call: Call, types: Any) -> list[Any]:
    (x, value), t = call.args, types[call.args[0]]
    _per_tensor("nn.pad", t)
    return [Call(call.op, (x, _as(value, types.get(value), t)), call.attrs), t]


@_rule("sqrt", "rsqrt", "exp", "erf", "sigmoid", "tanh", "abs", "log", "nn.leaky_relu")
def _of_one(call: Any, types: Any) -> list[Any]:
    (x,), t, out = call.args, types[call.args[0]], types[call]
    _per_tensor(call.op.name, t, out)
    if t.dtype != out.dtype:
        _refuse(f"{call.op.name} that changes the data type")
    name = call.op.name.removeprefix("nn.")
    made = op_call(f"qnn.{name}", x, t.scale, t.zero_point, out.scale, out.zero_point, **dict(call.attrs.items))
    return [made, out]


_OF_OPERANDS = (_rearranged, _averaged, _product, _bounded, _padded)
"""Rules that need not know what the result is quantized to."""
