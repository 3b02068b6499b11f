"""Sine, cosine and tangent of float64 for every argument, without a library.

The argument times ``2 / pi`` modulo 4 comes from a window of 192 bits of ``2 / pi`` (Payne and Hanek, 1983), so that no
argument is too large; what is left, within ``-pi / 4 ... pi / 4``, goes into Taylor polynomials.
"""

import math
from functools import cache

from weft.ir import CallIntrin, DataType
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import lanewise
from weft.target.llvm.types import float_constant

_WORDS = 21  # of which the first is 0, for arguments with digits behind the point


@cache
def _two_over_pi() -> list[int]:
    """The bits of ``2 / pi``, behind a word of zeros, in words of 64."""
    scale = 1 << 64 * _WORDS

    def inverse_tangent(n: int) -> int:
        total, term, k = 0, scale // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    pi = 16 * inverse_tangent(5) - 4 * inverse_tangent(239)  # Machin, 1706
    bits = (2 * scale * scale // pi) >> 64
    return [bits >> 64 * (_WORDS - 1 - i) & ((1 << 64) - 1) for i in range(_WORDS)]


def _double(value: float) -> str:
    return float_constant(value, "float64")


def _polynomial(name: str, of: str, coefficients: list[float]) -> list[str]:
    """Lines that leave a polynomial in ``%name.0``."""
    lines, last = [], _double(coefficients[-1])
    for i in range(len(coefficients) - 2, -1, -1):
        c = _double(coefficients[i])
        lines.append(f"%{name}.{i} = call double @llvm.fma.f64(double {last}, double {of}, double {c})")
        last = f"%{name}.{i}"
    return lines


def _reduction() -> str:
    """``weft.quarters(x)``: the angle left over from the nearest multiple of ``pi / 2``, and its number modulo 4."""
    loads = []
    for i in range(4):
        loads.append(f"%at{i} = getelementptr inbounds i64, ptr addrspace(1) %from, i64 {i}")
        loads.append(f"%w{i} = load i64, ptr addrspace(1) %at{i}, align 8")
    for i in range(3):
        loads.append(f"%s{i} = call i64 @llvm.fshl.i64(i64 %w{i}, i64 %w{i + 1}, i64 %bit)")
        loads.append(f"%z{i} = zext i64 %s{i} to i192")
    body = f"""  %bits = bitcast double %x to i64
  %magnitude = and i64 %bits, {(1 << 63) - 1}
  %small = icmp ult i64 %magnitude, {0x3FE921FB54442D18}
  br i1 %small, label %near, label %test
near:
  %r0 = insertvalue {{ double, i32 }} poison, double %x, 0
  %r1 = insertvalue {{ double, i32 }} %r0, i32 0, 1
  ret {{ double, i32 }} %r1
test:
  %endless = icmp uge i64 %magnitude, {0x7FF << 52}
  br i1 %endless, label %none, label %far
none:
  %nan = fsub double %x, %x
  %n0 = insertvalue {{ double, i32 }} poison, double %nan, 0
  %n1 = insertvalue {{ double, i32 }} %n0, i32 0, 1
  ret {{ double, i32 }} %n1
far:
  %exponent = lshr i64 %magnitude, 52
  %fraction = and i64 %magnitude, {(1 << 52) - 1}
  %mantissa = or i64 %fraction, {1 << 52}
  %position = sub i64 %exponent, {1075 + 2 - 64}
  %word = lshr i64 %position, 6
  %bit = and i64 %position, 63
  %from = getelementptr inbounds i64, ptr addrspace(1) @weft.two_over_pi, i64 %word
  {chr(10).join(loads).replace(chr(10), chr(10) + "  ")}
  %high = shl i192 %z0, 128
  %middle = shl i192 %z1, 64
  %upper = or i192 %high, %middle
  %window = or i192 %upper, %z2
  %wide = zext i64 %mantissa to i192
  %quarters = mul i192 %window, %wide
  %half = add i192 %quarters, {1 << 189}
  %top = lshr i192 %half, 190
  %count = trunc i192 %top to i32
  %whole = shl i192 %top, 190
  %left = sub i192 %quarters, %whole
  %is_below = icmp slt i192 %left, 0
  %minus = sub i192 0, %left
  %size = select i1 %is_below, i192 %minus, i192 %left
  %zeros = call i192 @llvm.ctlz.i192(i192 %size, i1 false)
  %first = shl i192 %size, %zeros
  %digits192 = lshr i192 %first, 128
  %digits = trunc i192 %digits192 to i64
  %number = uitofp i64 %digits to double
  %zeros64 = trunc i192 %zeros to i64
  %scale.e = sub i64 {1023 + 2 - 64}, %zeros64
  %scale.b = shl i64 %scale.e, 52
  %scale = bitcast i64 %scale.b to double
  %turns = fmul double %number, %scale
  %angle = fmul double %turns, {_double(math.pi / 2)}
  %x.negative = icmp slt i64 %bits, 0
  %flip = xor i1 %is_below, %x.negative
  %opposite = fneg double %angle
  %signed = select i1 %flip, double %opposite, double %angle
  %back = sub i32 0, %count
  %n.signed = select i1 %x.negative, i32 %back, i32 %count
  %n.last = and i32 %n.signed, 3
  %f0 = insertvalue {{ double, i32 }} poison, double %signed, 0
  %f1 = insertvalue {{ double, i32 }} %f0, i32 %n.last, 1
  ret {{ double, i32 }} %f1"""
    table = ", ".join(f"i64 {w}" for w in _two_over_pi())
    return f"""@weft.two_over_pi = internal unnamed_addr addrspace(1) constant [{_WORDS} x i64] [{table}], align 8
define internal {{ double, i32 }} @weft.quarters(double %x) #0 {{
{body}
}}"""


def _function(name: str) -> str:
    """``weft.<name>(x)``: the polynomials of the angle, chosen by its quarter."""
    sines = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(1, 9)]
    cosines = [(-1.0) ** k / math.factorial(2 * k) for k in range(2, 9)]
    lines = [
        "%pair = call { double, i32 } @weft.quarters(double %x)",
        "%r = extractvalue { double, i32 } %pair, 0",
        "%count = extractvalue { double, i32 } %pair, 1",
        "%n = add i32 %count, " + ("1" if name == "cos" else "0"),
        "%z = fmul double %r, %r",
        *_polynomial("p", "%z", sines),
        "%cube = fmul double %z, %r",
        "%sum = call double @llvm.fma.f64(double %cube, double %p.0, double %r)",
        f"%zero = fcmp oeq double %r, {_double(0.0)}",
        "%sine = select i1 %zero, double %r, double %sum",
        *_polynomial("q", "%z", cosines),
        "%square = fmul double %z, %z",
        f"%rest = call double @llvm.fma.f64(double %z, double {_double(-0.5)}, double {_double(1.0)})",
        "%cosine = call double @llvm.fma.f64(double %square, double %q.0, double %rest)",
        "%odd.bit = and i32 %n, 1",
        "%odd = icmp ne i32 %odd.bit, 0",
    ]
    if name == "tan":
        lines += [
            "%over = fneg double %cosine",
            "%a = select i1 %odd, double %over, double %sine",
            "%b = select i1 %odd, double %sine, double %cosine",
            "%result = fdiv double %a, %b",
        ]
    else:
        lines += [
            "%picked = select i1 %odd, double %cosine, double %sine",
            "%turned.bit = and i32 %n, 2",
            "%turned = icmp ne i32 %turned.bit, 0",
            "%opposite = fneg double %picked",
            "%result = select i1 %turned, double %opposite, double %picked",
        ]
    body = "\n".join("  " + line for line in lines)
    return f"define internal double @weft.{name}.f64(double %x) #0 {{\n{body}\n  ret double %result\n}}"


def trigonometric(e: CallIntrin, s: FunctionEmitter) -> str:
    """Emit the sine, cosine or tangent of float64; of float32 only those of large arguments come here."""
    name = e.op.name.removeprefix("tir.")
    assert DataType(e.dtype).bits == 64
    for intrinsic, params in (("fma.f64", "double, double, double"), ("fshl.i64", "i64, i64, i64")):
        result = params.split(",")[0]
        s.module.declare(f"llvm.{intrinsic}", f"declare {result} @llvm.{intrinsic}({params})")
    s.module.declare("llvm.ctlz.i192", "declare i192 @llvm.ctlz.i192(i192, i1)")
    s.module.support("weft.quarters", _reduction)
    s.module.support(f"weft.{name}.f64", lambda: _function(name))
    return lanewise(e, s, lambda at, lane: at.value(f"call double @weft.{name}.f64(double {lane[0][1]})"))
