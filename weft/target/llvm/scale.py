"""Emission of ``ldexp``, ``logb`` and ``mantissa``: one instruction on AVX-512, else the C library's where it has one.

They multiply by a power of two, and take a number apart into a power of two and a factor.
"""

from weft.error import CodegenError
from weft.ir import CallIntrin, Cast, DataType, with_lanes
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import lanewise, on
from weft.target.llvm.types import llvm_type


@on("ldexp")
def _ldexp(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits < 32:
        wide = with_lanes("float32", dt.lanes)
        return s.expr(Cast(dt, CallIntrin(wide, e.op, tuple(Cast(wide, a) for a in e.args))))
    if dt.bits == 32 and dt.lanes in s.module.target.machine.scaled_lanes:
        return _masked(e, s, "scalef")  # LLVM merges a selection into the mask
    name = "ldexpf" if dt.bits == 32 else "ldexp"

    def call(at: FunctionEmitter, lane: list[tuple[str, str]]) -> str:
        (t, x), (_, n) = lane
        return at.intrinsic(name, t, [(t, x), ("i32", at.value(f"fptosi {t} {n} to i32"))])

    return lanewise(e, s, call)


@on("logb")
def _logb(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits < 32:
        wide = with_lanes("float32", dt.lanes)
        return s.expr(Cast(dt, CallIntrin(wide, e.op, (Cast(wide, e.args[0]),))))
    if dt.bits == 32 and dt.lanes in s.module.target.machine.scaled_lanes:
        return _masked(e, s, "getexp")
    name = "logbf" if dt.bits == 32 else "logb"
    return lanewise(e, s, lambda at, lane: at.intrinsic(name, lane[0][0], lane))


@on("mantissa")
def _mantissa(e: CallIntrin, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.bits != 32 or dt.lanes not in s.module.target.machine.scaled_lanes:
        lanes = s.module.target.machine.scaled_lanes or "no"
        raise CodegenError(
            f"tir.mantissa is for vectors of {lanes} float32 here",
            found=str(dt),
            where=e.span,
            help="use tir.logb and tir.ldexp",
        )
    return _masked(e, s, "getmant", ("i32", "11"))  # 3: in 3/4...3/2; 8: NaN for what is negative


def _masked(e: CallIntrin, s: FunctionEmitter, name: str, *more: tuple[str, str]) -> str:
    """Emit an instruction with a mask, all ones, and a rounding mode, which the longest form alone has."""
    t, lanes = llvm_type(e.dtype), DataType(e.dtype).lanes
    args = [*((t, s.expr(a)) for a in e.args), *more, (t, "zeroinitializer")]
    args.append(("i16", "-1") if lanes == 16 else ("i8", "-1"))
    if lanes == 16:
        args.append(("i32", "4"))  # round as the control register says
    full = f"llvm.x86.avx512.mask.{name}.ps.{lanes * 32}"
    types = ", ".join(f"{a} immarg" if a == "i32" else a for a, _ in args)  # those must be constants
    s.module.declare(full, f"declare {t} @{full}({types})")
    return s.value(f"call {t} @{full}({', '.join(f'{a} {v}' for a, v in args)})")
