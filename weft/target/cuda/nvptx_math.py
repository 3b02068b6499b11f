"""Functions of floats in device code, without a library: what LLVM has no instruction for and no pass writes out."""

import math
from collections.abc import Callable

from weft import ir
from weft.target.cuda.nvptx_trig import trigonometric
from weft.target.llvm.emitter import FunctionEmitter, suffix
from weft.target.llvm.types import llvm_type


def float_remainder(s: FunctionEmitter, dtype: str, a: str, b: str) -> str:
    """Emit the exact remainder of a truncating division, lane by lane."""
    dt = ir.DataType(dtype)
    t, element, name = llvm_type(dt), llvm_type(dt.element), f"weft.fmod.{suffix(dt.element)}"
    s.module.declare("llvm.ctlz." + f"i{dt.bits}", f"declare i{dt.bits} @llvm.ctlz.i{dt.bits}(i{dt.bits}, i1)")
    s.module.support(name, lambda: _remainder_function(name, element, dt.bits))
    if dt.lanes == 1:
        return s.value(f"call {t} @{name}({t} {a}, {t} {b})")
    result = "poison"
    for i in range(dt.lanes):
        x, y = (s.value(f"extractelement {t} {v}, i64 {i}") for v in (a, b))
        lane = s.value(f"call {element} @{name}({element} {x}, {element} {y})")
        result = s.value(f"insertelement {t} {result}, {element} {lane}, i64 {i}")
    return result


def _remainder_function(name: str, t: str, n: int) -> str:
    """Long division of mantissas, one bit at a time."""
    mantissa = 23 if n == 32 else 52
    sign, implicit, exponent_bits = -(1 << (n - 1)), 1 << mantissa, n - 1 - mantissa
    infinity = ((1 << exponent_bits) - 1) << mantissa

    def normal(v: str) -> str:
        """The mantissa of ``%v`` with its highest bit in place, and its exponent."""
        return f"""
  %{v}.e = lshr i{n} %{v}, {mantissa}
  %{v}.low = and i{n} %{v}, {implicit - 1}
  %{v}.sub = icmp eq i{n} %{v}.e, 0
  %{v}.full = or i{n} %{v}.low, {implicit}
  %{v}.raw = select i1 %{v}.sub, i{n} %{v}.low, i{n} %{v}.full
  %{v}.zeros = call i{n} @llvm.ctlz.i{n}(i{n} %{v}.raw, i1 false)
  %{v}.shift = sub i{n} %{v}.zeros, {exponent_bits}
  %{v}.m = shl i{n} %{v}.raw, %{v}.shift
  %{v}.at = select i1 %{v}.sub, i{n} 1, i{n} %{v}.e
  %{v}.exp = sub i{n} %{v}.at, %{v}.shift"""

    return f"""define internal {t} @{name}({t} %x, {t} %y) #0 {{
entry:
  %xbits = bitcast {t} %x to i{n}
  %ybits = bitcast {t} %y to i{n}
  %sign = and i{n} %xbits, {sign}
  %a = and i{n} %xbits, {-sign - 1}
  %b = and i{n} %ybits, {-sign - 1}
  %by_zero = icmp eq i{n} %b, 0
  %by_nan = icmp ugt i{n} %b, {infinity}
  %of_infinite = icmp uge i{n} %a, {infinity}
  %either = or i1 %by_zero, %by_nan
  %none = or i1 %either, %of_infinite
  br i1 %none, label %nan, label %compare
nan:
  %product = fmul {t} %x, %y
  %undefined = fdiv {t} %product, %product
  ret {t} %undefined
compare:
  %less = icmp ult i{n} %a, %b
  br i1 %less, label %itself, label %divide
itself:
  ret {t} %x
divide:{normal("a")}{normal("b")}
  %steps = sub i{n} %a.exp, %b.exp
  br label %step
step:
  %r = phi i{n} [ %a.m, %divide ], [ %doubled, %more ]
  %k = phi i{n} [ %steps, %divide ], [ %left, %more ]
  %fits = icmp uge i{n} %r, %b.m
  %difference = sub i{n} %r, %b.m
  %rest = select i1 %fits, i{n} %difference, i{n} %r
  %last = icmp eq i{n} %k, 0
  br i1 %last, label %done, label %more
more:
  %doubled = shl i{n} %rest, 1
  %left = sub i{n} %k, 1
  br label %step
done:
  %exact = icmp eq i{n} %rest, 0
  br i1 %exact, label %zero, label %pack
zero:
  %nothing = bitcast i{n} %sign to {t}
  ret {t} %nothing
pack:
  %zeros = call i{n} @llvm.ctlz.i{n}(i{n} %rest, i1 false)
  %shift = sub i{n} %zeros, {exponent_bits}
  %m = shl i{n} %rest, %shift
  %exp = sub i{n} %b.exp, %shift
  %is_normal = icmp sgt i{n} %exp, 0
  %fraction = and i{n} %m, {implicit - 1}
  %placed = shl i{n} %exp, {mantissa}
  %whole = or i{n} %fraction, %placed
  %below = sub i{n} 1, %exp
  %safe = select i1 %is_normal, i{n} 0, i{n} %below
  %small = lshr i{n} %m, %safe
  %magnitude = select i1 %is_normal, i{n} %whole, i{n} %small
  %bits = or i{n} %sign, %magnitude
  %result = bitcast i{n} %bits to {t}
  ret {t} %result
}}"""


def _fmod(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    return s.expr(ir.Mod(*e.args))


# --- bits of floats ---------------------------------------------------------------------------------------------------


def _call(name: str, dtype: str, *args: ir.PrimExpr) -> ir.PrimExpr:
    return ir.CallIntrin(dtype, ir.Op.get("tir." + name), args)


def _bound(value: ir.PrimExpr, body: Callable[[ir.Var], ir.PrimExpr]) -> ir.PrimExpr:
    var = ir.Var("t", value.dtype)
    return ir.Let(var, value, body(var))


def _number(value: float, like: ir.PrimExpr) -> ir.PrimExpr:
    dt = ir.DataType(like.dtype)
    c = ir.FloatImm(dt.element, value) if dt.is_float else ir.IntImm(dt.element, int(value))
    return c if dt.lanes == 1 else ir.Broadcast(c, dt.lanes)


def _power_of_two(n: ir.PrimExpr) -> ir.PrimExpr:
    """2 to the `n`, an int64 within -1022 ... 1023."""
    bits = _call("shift_left", n.dtype, n + _number(1023, n), _number(52, n))
    return _call("reinterpret", ir.with_lanes("float64", ir.DataType(n.dtype).lanes), bits)


def _ldexp(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Scale in float64, in steps of which only the last can round."""
    dt = ir.DataType(e.dtype)
    wide, whole = (ir.with_lanes(t, dt.lanes) for t in ("float64", "int64"))
    x, n = ir.Cast(wide, e.args[0]), ir.Cast(whole, e.args[1])
    if dt.bits < 64:
        near = ir.Min(ir.Max(n, _number(-1022, n)), _number(1023, n))
        return s.expr(ir.Cast(dt, x * _power_of_two(near)))

    def step(x: ir.PrimExpr, n: ir.Var, left: int) -> ir.PrimExpr:
        if left == 0:
            return x * _power_of_two(ir.Min(ir.Max(n, _number(-1022, n)), _number(1023, n)))
        down, up = n < _number(-1022, n), n > _number(1023, n)
        scaled = ir.Select(down, x * _number(2.0**-969, x), ir.Select(up, x * _number(2.0**1023, x), x))
        rest = ir.Select(down, n + _number(969, n), ir.Select(up, n - _number(1023, n), n))
        return _bound(scaled, lambda y: _bound(rest, lambda m: step(y, m, left - 1)))

    return s.expr(_bound(n, lambda n: step(x, n, 2)))


def _nextafter(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """The next number of the type's own in the direction of another."""
    dt = ir.DataType(e.dtype)
    whole = ir.with_lanes(f"int{dt.bits}", dt.lanes)

    def value(x: ir.Var, y: ir.Var) -> ir.PrimExpr:
        bits = _call("reinterpret", whole, x)
        zero, one = _number(0.0, x), _number(1, bits)
        outwards = ir.EQ(
            ir.Cast(ir.with_lanes("int8", dt.lanes), x < y), ir.Cast(ir.with_lanes("int8", dt.lanes), x > zero)
        )
        moved = _call("reinterpret", dt, ir.Select(outwards, bits + one, bits - one))
        least = _call("copysign", dt, _call("reinterpret", dt, one), y)
        result = ir.Select(ir.EQ(x, y), y, ir.Select(ir.EQ(x, zero), least, moved))
        return ir.Select(ir.NE(x, x), x, ir.Select(ir.NE(y, y), y, result))

    return s.expr(_bound(e.args[0], lambda x: _bound(e.args[1], lambda y: value(x, y))))


def _logb(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """The exponent; subnormal numbers of the narrow types are normal in float64."""
    dt = ir.DataType(e.dtype)
    wide, whole = (ir.with_lanes(t, dt.lanes) for t in ("float64", "int64"))

    def value(a: ir.Var) -> ir.PrimExpr:
        small = a < _number(2.0**-1022, a)
        bits = _call("reinterpret", whole, ir.Select(small, a * _number(2.0**54, a), a))
        raw = _call("shift_right", whole, bits, _number(52, bits))
        exponent = ir.Cast(wide, raw - ir.Select(small, _number(1077, raw), _number(1023, raw)))
        finite = ir.Select(ir.EQ(a, _number(0.0, a)), _number(-math.inf, a), exponent)
        return ir.Select(a < _number(math.inf, a), finite, a)

    magnitude = _call("fabs", wide, ir.Cast(wide, e.args[0]))
    return s.expr(ir.Cast(dt, _bound(magnitude, value)))


MATH: dict[str, Callable[[ir.CallIntrin, FunctionEmitter], str]] = {
    "tir.fmod": _fmod,
    "tir.sin": trigonometric,
    "tir.cos": trigonometric,
    "tir.tan": trigonometric,
    "tir.ldexp": _ldexp,
    "tir.logb": _logb,
    "tir.nextafter": _nextafter,
}
"""Intrinsic to its rule on a device; functions of float32 that have polynomials do not come here."""
