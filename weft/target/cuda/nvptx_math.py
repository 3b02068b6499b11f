"""Functions of floats in device code, without a library: what LLVM has no instruction for and no pass writes out."""

from __future__ import annotations

from collections.abc import Callable

from weft.error import CodegenError
from weft.ir import CallIntrin, DataType, Mod
from weft.target.llvm.emitter import FunctionEmitter, suffix
from weft.target.llvm.types import llvm_type

__all__ = ["MATH", "float_remainder"]

_MISSING = (
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow", "atan2", "hypot", "nextafter", "ldexp",
)  # fmt: skip


def _missing(e: CallIntrin, s: FunctionEmitter) -> str:
    raise CodegenError(
        f"target nvptx has no code for '{e.op.name}' of {e.dtype}",
        where=e.span,
        help="compute it in float32",
    )


def float_remainder(s: FunctionEmitter, dtype: str, a: str, b: str) -> str:
    """Emit the exact remainder of a truncating division, lane by lane."""
    dt = DataType(dtype)
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


def _fmod(e: CallIntrin, s: FunctionEmitter) -> str:
    return s.expr(Mod(*e.args))


MATH: dict[str, Callable[[CallIntrin, FunctionEmitter], str]] = {f"tir.{n}": _missing for n in _MISSING}
"""Intrinsic to its rule on a device; those of float32 that have polynomials do not come here."""
MATH["tir.fmod"] = _fmod
