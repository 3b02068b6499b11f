"""Emission of ``ldexp(x, n)``, a product with a power of two: one instruction on AVX-512, else the C library's."""

from __future__ import annotations

from weft.ir import CallIntrin, Cast, DataType, with_lanes
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import lanewise, on
from weft.target.llvm.types import llvm_type

__all__: list[str] = []


@on("ldexp")
def _ldexp(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits < 32:
        wide = with_lanes("float32", dt.lanes)
        return s.expr(Cast(dt, CallIntrin(wide, e.op, tuple(Cast(wide, a) for a in e.args))))
    if dt.bits == 32 and dt.lanes in s.module.target.scaled_lanes:
        return _scale(e, s)
    name = "ldexpf" if dt.bits == 32 else "ldexp"

    def call(at: FunctionEmitter, lane: list[tuple[str, str]]) -> str:
        (t, x), (_, n) = lane
        return at.intrinsic(name, t, [(t, x), ("i32", at.value(f"fptosi {t} {n} to i32"))])

    return lanewise(e, s, call)


def _scale(e: CallIntrin, s: FunctionEmitter) -> str:
    """Multiply by a power of two in one instruction; the mask is all ones, and LLVM merges a selection into it."""
    t, lanes = llvm_type(e.dtype), DataType(e.dtype).lanes
    args = [(t, s.expr(e.args[0])), (t, s.expr(e.args[1])), (t, "zeroinitializer")]
    args.append(("i16", "-1") if lanes == 16 else ("i8", "-1"))
    if lanes == 16:
        args.append(("i32", "4"))  # round as the control register says
    name = f"llvm.x86.avx512.mask.scalef.ps.{lanes * 32}"
    # the rounding mode must be a constant
    types = ", ".join(f"{a} immarg" if a == "i32" else a for a, _ in args)
    s.module.declare(name, f"declare {t} @{name}({types})")
    return s.value(f"call {t} @{name}({', '.join(f'{a} {v}' for a, v in args)})")
