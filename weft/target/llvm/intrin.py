"""Emission of intrinsics: LLVM's own, polynomials, libm lane by lane, bits, external and packed calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import CodegenError
from weft.ir import Broadcast, CallIntrin, Cast, DataType, FloatImm, Op, PrimExpr, StringImm, Var, with_lanes
from weft.target.llvm.emitter import EXPR, FunctionEmitter, suffix
from weft.target.llvm.math import POLYNOMIALS
from weft.target.llvm.types import float_constant, llvm_type
from weft.tir import INTRINSICS

__all__: list[str] = []

_LLVM = {
    "exp": "exp", "exp2": "exp2", "exp10": "exp10", "log": "log", "log2": "log2", "log10": "log10", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "nearbyint": "rint", "fabs": "fabs", "pow": "pow", "copysign": "copysign",
}  # fmt: skip
_LIBM = (
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "atan2",
    "hypot",
    "fmod",
    "nextafter",
    "log1p",
)
_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "shift_left": "shl"}

_TABLE: dict[str, Callable[[CallIntrin, FunctionEmitter], str]] = {}


def _on(*names: str) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        for n in names:
            _TABLE["tir." + n] = fn
        return fn

    return register


@EXPR.on(CallIntrin)
def _call(e: CallIntrin, s: FunctionEmitter) -> str:
    name = e.op.name if isinstance(e.op, Op) else str(e.op)
    rule = _TABLE.get(name)
    if rule is not None:
        return rule(e, s)
    short = name.removeprefix("tir.")
    if short not in INTRINSICS:
        raise CodegenError(f"intrinsic '{name}' has no code on target llvm", where=e.span)
    return _math(short, e, s)


def _math(name: str, e: CallIntrin, s: FunctionEmitter) -> str:
    """A function of floating-point numbers."""
    dt = DataType(e.args[0].dtype)
    if dt.bits == 16 and dt.is_float:
        wide = with_lanes("float32", dt.lanes)
        args = tuple(Cast(wide, a) for a in e.args)
        if DataType(e.dtype).code == "bool":
            return s.expr(CallIntrin(e.dtype, e.op, args))
        return s.expr(Cast(e.dtype, CallIntrin(wide, e.op, args)))
    if name in POLYNOMIALS and dt.bits == 32:
        return s.expr(POLYNOMIALS[name](_bound(e.args[0], s)))
    t = llvm_type(e.args[0].dtype)
    args = [(t, s.expr(a)) for a in e.args]
    if name in _LLVM:
        if name in ("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "pow"):
            s.module.irregular = True
            return _lanes(
                e,
                s,
                lambda lane: s.intrinsic(_libm_name("pow" if name == "pow" else name, dt), llvm_type(dt.element), lane),
            )
        return s.intrinsic(f"llvm.{_LLVM[name]}.{suffix(e.dtype)}", t, args)
    if name in _LIBM:
        return _lanes(e, s, lambda lane: s.intrinsic(_libm_name(name, dt), llvm_type(dt.element), lane))
    raise CodegenError(f"intrinsic 'tir.{name}' has no code for {dt}", where=e.span)


def _libm_name(name: str, dt: DataType) -> str:
    return name + ("f" if dt.bits == 32 else "")


def _lanes(e: CallIntrin, s: FunctionEmitter, call: Callable[[list[tuple[str, str]]], str]) -> str:
    """Apply a scalar function to each lane."""
    dt = DataType(e.args[0].dtype)
    t, element = llvm_type(dt), llvm_type(dt.element)
    values = [s.expr(a) for a in e.args]
    if dt.lanes == 1:
        return call([(t, v) for v in values])
    result = "poison"
    for i in range(dt.lanes):
        lane = call([(element, s.value(f"extractelement {t} {v}, i64 {i}")) for v in values])
        result = s.value(f"insertelement {t} {result}, {element} {lane}, i64 {i}")
    return result


def _bound(x: PrimExpr, s: FunctionEmitter) -> Var:
    """Evaluate an expression once and return a variable for it."""
    if isinstance(x, Var):
        return x
    var = Var("x", x.dtype)
    s.env[id(var)] = s.expr(x)
    s.keep.append(var)
    return var


@_on("rsqrt")
def _rsqrt(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits == 16:
        return _math("rsqrt", e, s)
    t = llvm_type(e.dtype)
    root = s.intrinsic(f"llvm.sqrt.{suffix(e.dtype)}", t, [(t, s.expr(e.args[0]))])
    one = float_constant(1.0, dt.element)
    return s.value(f"fdiv contract {t} {one if dt.lanes == 1 else s.splat(one, dt.element, dt.lanes)}, {root}")


@_on("sigmoid")
def _sigmoid(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits != 64:
        return _math("sigmoid", e, s)
    one: PrimExpr = FloatImm(dt.element, 1.0) if dt.lanes == 1 else Broadcast(FloatImm(dt.element, 1.0), dt.lanes)
    x = e.args[0]
    return s.expr(
        one / (one + CallIntrin(e.dtype, Op.get("tir.exp"), (x * -1.0 if dt.lanes == 1 else (one - one) - x,)))
    )


@_on("fma")
def _fma(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if not dt.is_float:
        return s.expr(e.args[0] * e.args[1] + e.args[2])
    if dt.bits == 16:
        return _math("fma", e, s)
    t = llvm_type(e.dtype)
    product = s.value(f"fmul contract {t} {s.expr(e.args[0])}, {s.expr(e.args[1])}")
    return s.value(f"fadd contract {t} {product}, {s.expr(e.args[2])}")


@_on("abs")
def _abs(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.is_float:
        return _math("fabs", e, s)
    if dt.code == "uint":
        return s.expr(e.args[0])
    t = llvm_type(e.dtype)
    return s.intrinsic(f"llvm.abs.{suffix(e.dtype)}", t, [(t, s.expr(e.args[0])), ("i1", "false")])


@_on("isnan", "isinf", "isfinite")
def _classify(e: CallIntrin, s: FunctionEmitter) -> str:
    x = e.args[0]
    dt = DataType(x.dtype)
    if dt.bits == 16:
        return s.expr(CallIntrin(e.dtype, e.op, (Cast(with_lanes("float32", dt.lanes), x),)))
    t, value = llvm_type(x.dtype), s.expr(x)
    if e.op.name == "tir.isnan":
        return s.value(f"fcmp uno {t} {value}, {value}")
    magnitude = s.intrinsic(f"llvm.fabs.{suffix(x.dtype)}", t, [(t, value)])
    infinity = float_constant(float("inf"), dt.element)
    infinity = infinity if dt.lanes == 1 else s.splat(infinity, dt.element, dt.lanes)
    return s.value(f"fcmp {'oeq' if e.op.name == 'tir.isinf' else 'olt'} {t} {magnitude}, {infinity}")


@_on(*_BITS)
def _bits(e: CallIntrin, s: FunctionEmitter) -> str:
    name = _BITS[e.op.name.removeprefix("tir.")]
    return s.value(f"{name} {llvm_type(e.dtype)} {s.expr(e.args[0])}, {s.expr(e.args[1])}")


@_on("shift_right")
def _shift_right(e: CallIntrin, s: FunctionEmitter) -> str:
    name = "lshr" if DataType(e.dtype).code == "uint" else "ashr"
    return s.value(f"{name} {llvm_type(e.dtype)} {s.expr(e.args[0])}, {s.expr(e.args[1])}")


@_on("bitwise_not")
def _bitwise_not(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    ones = (
        ("true" if dt.code == "bool" else "-1")
        if dt.lanes == 1
        else s.splat("true" if dt.code == "bool" else "-1", dt.element, dt.lanes)
    )
    return s.value(f"xor {llvm_type(e.dtype)} {s.expr(e.args[0])}, {ones}")


@_on("popcount")
def _popcount(e: CallIntrin, s: FunctionEmitter) -> str:
    t = llvm_type(e.dtype)
    return s.intrinsic(f"llvm.ctpop.{suffix(e.dtype)}", t, [(t, s.expr(e.args[0]))])


@_on("clz")
def _clz(e: CallIntrin, s: FunctionEmitter) -> str:
    t = llvm_type(e.dtype)
    return s.intrinsic(f"llvm.ctlz.{suffix(e.dtype)}", t, [(t, s.expr(e.args[0])), ("i1", "false")])


@_on("reinterpret")
def _reinterpret(e: CallIntrin, s: FunctionEmitter) -> str:
    source, target = llvm_type(e.args[0].dtype), llvm_type(e.dtype)
    value = s.expr(e.args[0])
    if source == target:
        return value
    if "ptr" in (source, target):
        return s.value(f"{'inttoptr' if target == 'ptr' else 'ptrtoint'} {source} {value} to {target}")
    return s.value(f"bitcast {source} {value} to {target}")


@_on("likely")
def _likely(e: CallIntrin, s: FunctionEmitter) -> str:
    return s.expr(e.args[0])


@_on("assume")
def _assume(e: CallIntrin, s: FunctionEmitter) -> str:
    s.module.declare("llvm.assume", "declare void @llvm.assume(i1)")
    s.emit(f"call void @llvm.assume(i1 {s.expr(e.args[0])})")
    return "0"


@_on("prefetch")
def _prefetch(e: CallIntrin, s: FunctionEmitter) -> str:
    return "0"


@_on("if_then_else")
def _if_then_else(e: CallIntrin, s: FunctionEmitter) -> str:
    """Evaluate only the side that is taken."""
    condition = s.expr(e.args[0])
    then, otherwise, end = s.label("then"), s.label("else"), s.label("end")
    s.branch(condition, then, otherwise)
    values = []
    for label, value in ((then, e.args[1]), (otherwise, e.args[2])):
        s.start(label)
        text = s.expr(value)
        values.append((text, s.block))
        s.jump(end)
    s.start(end)
    return s.value(
        f"phi {llvm_type(e.dtype)} [ {values[0][0]}, %{values[0][1]} ], [ {values[1][0]}, %{values[1][1]} ]", "c"
    )


@_on("call_extern")
def _extern(e: CallIntrin, s: FunctionEmitter) -> str:
    name = e.args[0]
    assert isinstance(name, StringImm)
    args = [(llvm_type(a.dtype), _argument(a, s)) for a in e.args[1:]]
    result = "void" if e.dtype == "void" else llvm_type(e.dtype)
    if result == "void":
        s.module.declare(name.value, f"declare void @{name.value}({', '.join(t for t, _ in args)})")
        s.emit(f"call void @{name.value}({', '.join(f'{t} {v}' for t, v in args)})")
        return "0"
    return s.intrinsic(name.value, result, args)


def _argument(a: PrimExpr, s: FunctionEmitter) -> str:
    return s.module.string(a.value) if isinstance(a, StringImm) else s.expr(a)


@_on("call_llvm_intrin", "call_llvm_pure_intrin")
def _llvm_intrinsic(e: CallIntrin, s: FunctionEmitter) -> str:
    name = e.args[0]
    if not isinstance(name, StringImm) or not name.value.startswith("llvm."):
        raise CodegenError(
            "call_llvm_intrin needs the name of an LLVM intrinsic", expected="'llvm.fma'", found=str(name)
        )
    args = [(llvm_type(a.dtype), s.expr(a)) for a in e.args[1:]]
    full = (
        name.value
        if name.value.count(".") > 1 and name.value.rsplit(".", 1)[-1][:1] in "fiv"
        else f"{name.value}.{suffix(e.dtype)}"
    )
    return s.intrinsic(full, llvm_type(e.dtype), args)
