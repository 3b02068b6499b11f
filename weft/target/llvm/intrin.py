"""Emission of intrinsics: LLVM's own, the C library's lane by lane, bits, calls of external and packed functions.

The functions of float32 that have polynomials never come here: pass ``lower_math`` wrote them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import llvmlite.binding as llvm

from weft import error, ir, registry, tir
from weft.target.llvm.emitter import EXPR, FunctionEmitter, condition_type, suffix
from weft.target.llvm.expr import guarded
from weft.target.llvm.memory import alignment, element_pointer
from weft.target.llvm.support import raise_error
from weft.target.llvm.trial import check_intrinsic, llvm_get_intrinsic_name
from weft.target.llvm.types import float_constant, llvm_type, memory_type

_LLVM = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "nearbyint": "roundeven",
    "fabs": "fabs",
    "copysign": "copysign",
}
_LIBM = frozenset(
    (
        "exp exp2 exp10 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow "
        "atan2 hypot fmod nextafter"
    ).split()
)
_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}

CALLS: dict[type, Callable[[ir.CallIntrin, FunctionEmitter], str]] = {}
"""What emits calls of something else than intrinsics, by its class."""

_TABLE: registry.Registry[Callable[[ir.CallIntrin, FunctionEmitter], str]] = registry.Registry("tir.")
on = _TABLE.on
"""Register the emission of the intrinsics ``tir.<name>``."""


@EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    if type(e.op) in CALLS:
        return CALLS[type(e.op)](e, s)
    name = e.op.name if isinstance(e.op, ir.Op) else str(e.op)
    short = name.removeprefix("tir.")
    rule, known = s.module.intrinsics.get(name) or _TABLE.get(name), tir.INTRINSICS.get(short)
    if known is not None and len(e.args) > known.n_args:
        rule = known = None
    if rule is not None:
        return rule(e, s)
    if known is None:
        raise error.CodegenError(f"intrinsic '{name}' of {len(e.args)} operands has no code here", where=e.span)
    return _math(short, e, s)


def _math(name: str, e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """A function of floating-point numbers."""
    dt = ir.DataType(e.args[0].dtype)
    if dt.is_float and dt.bits < 32:
        wide = ir.with_lanes("float32", dt.lanes)
        return s.expr(ir.Cast(e.dtype, ir.CallIntrin(wide, e.op, tuple(ir.Cast(wide, a) for a in e.args))))
    if not dt.is_float:
        raise error.CodegenError(f"intrinsic 'tir.{name}' takes floating-point numbers", where=e.span, found=str(dt))
    t = llvm_type(dt)
    if name in _LLVM:
        return s.intrinsic(f"llvm.{_LLVM[name]}.{suffix(dt)}", t, [(t, s.expr(a)) for a in e.args])
    if name in _LIBM:
        return lanewise(
            e, s, lambda at, lane: at.intrinsic(name + ("f" if dt.bits == 32 else ""), llvm_type(dt.element), lane)
        )
    raise error.CodegenError(f"intrinsic 'tir.{name}' has no code for {dt}", where=e.span)


def lanewise(
    e: ir.CallIntrin, s: FunctionEmitter, call: Callable[[FunctionEmitter, list[tuple[str, str]]], str]
) -> str:
    """Apply a scalar function to each lane, in a function of its own."""
    dt = ir.DataType(e.dtype)
    types = [(llvm_type(a.dtype), llvm_type(ir.DataType(a.dtype).element)) for a in e.args]
    values = [s.expr(a) for a in e.args]
    if dt.lanes == 1:
        return call(s, [(t, v) for (t, _), v in zip(types, values, strict=True)])
    name = f"weft.lanes.{e.op.name.removeprefix('tir.')}.{suffix(dt)}"

    def make() -> str:
        inner = FunctionEmitter(s.module, name)
        result = "poison"
        for i in range(dt.lanes):
            lane = [
                (element, inner.value(f"extractelement {t} %a{n}, i64 {i}")) for n, (t, element) in enumerate(types)
            ]
            result = inner.value(
                f"insertelement {llvm_type(dt)} {result}, {llvm_type(dt.element)} {call(inner, lane)}, i64 {i}"
            )
        params = ", ".join(f"{t} %a{n}" for n, (t, _) in enumerate(types))
        body = "\n".join(cast(list[str], inner.lines))  # straight code, without loops that nest lists
        return f"define internal {llvm_type(dt)} @{name}({params}) #2 {{\n{body}\n  ret {llvm_type(dt)} {result}\n}}"

    s.module.support(name, make)
    args = ", ".join(f"{t} {v}" for (t, _), v in zip(types, values, strict=True))
    return s.value(f"call {llvm_type(dt)} @{name}({args})")


@on("rsqrt")
def _rsqrt(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if dt.bits < 32:
        return _math("rsqrt", e, s)
    t = llvm_type(dt)
    root = s.intrinsic(f"llvm.sqrt.{suffix(dt)}", t, [(t, s.expr(e.args[0]))])
    return s.value(f"fdiv {t} {s.constant(float_constant(1.0, dt.element), dt)}, {root}")


@on("sigmoid")
def _sigmoid(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if dt.bits < 32:
        return _math("sigmoid", e, s)
    one, zero = _number(1.0, dt), _number(-0.0, dt)
    return s.expr(one / (one + ir.CallIntrin(dt, ir.Op.get("tir.exp"), (zero - e.args[0],))))


def _number(value: float, dt: ir.DataType) -> ir.PrimExpr:
    c = ir.FloatImm(dt.element, value)
    return c if dt.lanes == 1 else ir.Broadcast(c, dt.lanes)


@on("fma")
def _fma(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if not dt.is_float:
        return s.expr(e.args[0] * e.args[1] + e.args[2])
    if dt.bits < 32:
        return _math("fma", e, s)
    t = llvm_type(dt)
    args = [s.expr(a) for a in e.args]
    if _has_fma(s):
        return s.intrinsic(f"llvm.fma.{suffix(dt)}", t, [(t, a) for a in args])
    return s.value(f"fadd contract {t} {s.value(f'fmul contract {t} {args[0]}, {args[1]}')}, {args[2]}")


def _has_fma(s: FunctionEmitter) -> bool:
    target = s.module.target
    return "fma" in target.features or target.architecture.has_fma or target.triple.startswith("nvptx")


@on("abs")
def _abs(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if dt.is_float:
        return _math("fabs", e, s)
    if dt.code in ("uint", "bool"):
        return s.expr(e.args[0])
    t = llvm_type(dt)
    return s.intrinsic(f"llvm.abs.{suffix(dt)}", t, [(t, s.expr(e.args[0])), ("i1", "false")])


@on("pow")
def _pow(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if dt.is_float:
        return _math("pow", e, s)
    t = llvm_type(dt.element)
    name = f"weft.pow.{'u' if dt.code == 'uint' else 'i'}{dt.bits}"
    s.module.support(name, lambda: _integer_power(name, t, dt.code == "uint"))
    return lanewise(e, s, lambda at, lane: at.value(f"call {t} @{name}({', '.join(f'{a} {v}' for a, v in lane)})"))


def _integer_power(name: str, t: str, unsigned: bool) -> str:
    """Integer power by squaring.

    A negative exponent gives the truncated quotient 1 / base**-exponent, and 0 for base 0.
    """
    negative = f"icmp slt {t} %n, 0" if not unsigned else "icmp slt i8 0, 0"
    return f"""define internal {t} @{name}({t} %a, {t} %n) #0 {{
entry:
  %negative = {negative}
  br i1 %negative, label %inverse, label %loop
inverse:
  %is_one = icmp eq {t} %a, 1
  %is_minus = icmp eq {t} %a, -1
  %odd = and {t} %n, 1
  %is_odd = icmp ne {t} %odd, 0
  %sign = select i1 %is_odd, {t} -1, {t} 1
  %small = select i1 %is_minus, {t} %sign, {t} 0
  %result = select i1 %is_one, {t} 1, {t} %small
  ret {t} %result
loop:
  %r = phi {t} [ 1, %entry ], [ %next, %loop ]
  %b = phi {t} [ %a, %entry ], [ %square, %loop ]
  %k = phi {t} [ %n, %entry ], [ %half, %loop ]
  %bit = and {t} %k, 1
  %on = icmp ne {t} %bit, 0
  %product = mul {t} %r, %b
  %next = select i1 %on, {t} %product, {t} %r
  %square = mul {t} %b, %b
  %half = lshr {t} %k, 1
  %done = icmp eq {t} %half, 0
  br i1 %done, label %out, label %loop
out:
  ret {t} %next
}}"""


@on("isnan", "isinf", "isfinite")
def _classify(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    x = e.args[0]
    dt = ir.DataType(x.dtype)
    if not dt.is_float:
        return s.constant("true" if e.op.name == "tir.isfinite" else "false", e.dtype)
    if dt.bits < 32:
        return s.expr(ir.CallIntrin(e.dtype, e.op, (ir.Cast(ir.with_lanes("float32", dt.lanes), x),)))
    t, value = llvm_type(dt), s.expr(x)
    if e.op.name == "tir.isnan":
        return s.value(f"fcmp uno {t} {value}, {value}")
    magnitude = s.intrinsic(f"llvm.fabs.{suffix(dt)}", t, [(t, value)])
    infinity = s.constant(float_constant(float("inf"), dt.element), dt)
    return s.value(f"fcmp {'oeq' if e.op.name == 'tir.isinf' else 'olt'} {t} {magnitude}, {infinity}")


# --- bits -------------------------------------------------------------------------------------------------------------


@on(*_BITS)
def _bits(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    name = _BITS[e.op.name.removeprefix("tir.")]
    return s.value(f"{name} {llvm_type(e.dtype)} {s.expr(e.args[0])}, {s.expr(e.args[1])}")


@on("shift_left", "shift_right")
def _shift(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """A shift; by as many bits as the type has, or more, it leaves zeros (the sign, where it shifts right)."""
    dt, t = ir.DataType(e.dtype), llvm_type(e.dtype)
    value, amount = s.expr(e.args[0]), s.expr(e.args[1])
    left = e.op.name == "tir.shift_left"
    op = "shl" if left else "lshr" if dt.code == "uint" else "ashr"
    known = e.args[1].value if isinstance(e.args[1], ir.Broadcast) else e.args[1]
    count = ir.as_int(known)
    if count is not None and 0 <= count < dt.bits:
        return s.value(f"{op} {t} {value}, {amount}")
    inside = s.value(f"icmp ult {t} {amount}, {s.constant(str(dt.bits), dt)}")
    if op == "ashr":
        last = s.constant(str(dt.bits - 1), dt)
        return s.value(
            f"ashr {t} {value}, {s.value(f'select {condition_type(dt)} {inside}, {t} {amount}, {t} {last}')}"
        )
    shifted = s.value(f"{op} {t} {value}, {amount}")
    return s.value(f"select {condition_type(dt)} {inside}, {t} {shifted}, {t} {s.constant('0', dt)}")


@on("bitwise_not")
def _bitwise_not(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    ones = s.constant("true" if ir.DataType(e.dtype).code == "bool" else "-1", e.dtype)
    return s.value(f"xor {llvm_type(e.dtype)} {s.expr(e.args[0])}, {ones}")


@on("popcount", "clz")
def _count(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    t = llvm_type(e.dtype)
    name, flags = ("ctpop", []) if e.op.name == "tir.popcount" else ("ctlz", [("i1", "false")])
    return s.intrinsic(f"llvm.{name}.{suffix(e.dtype)}", t, [(t, s.expr(e.args[0])), *flags])


@on("reinterpret")
def _reinterpret(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    source, target = llvm_type(e.args[0].dtype), llvm_type(e.dtype)
    value = s.expr(e.args[0])
    if source == target:
        return value
    if "ptr" in (source, target):
        return s.value(f"{'inttoptr' if target == 'ptr' else 'ptrtoint'} {source} {value} to {target}")
    return s.value(f"bitcast {source} {value} to {target}")


_DOTS = {
    ("uint8", "int32", 16): ("llvm.x86.avx512.vpdpbusd.512", "<64 x i8>"),
    ("uint8", "int32", 8): ("llvm.x86.avx512.vpdpbusd.256", "<32 x i8>"),
    ("int16", "int32", 16): ("llvm.x86.avx512.pmaddw.d.512", "<32 x i16>"),
    ("int16", "int32", 8): ("llvm.x86.avx2.pmadd.wd", "<16 x i16>"),
    ("bfloat16", "float32", 16): ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),
}


@on("dot_accumulate")
def _dot_accumulate(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Add to each lane the products of its group of narrow neighbours, by one instruction."""
    dt, factor = ir.DataType(e.dtype), ir.DataType(e.args[1].dtype).element
    found = _DOTS.get((str(factor), str(dt.element), dt.lanes))
    if found is None:
        raise error.CodegenError(f"this target has no dot product of {factor} into {dt}", where=e.span)
    name, wanted = found
    if str(factor) == "int16" or (factor.bits == 8 and not s.module.target.machine.adds_four_bytes):
        return _paired_dot(dt.lanes, factor.bits == 16, [s.expr(a) for a in e.args], s)
    args = [(llvm_type(dt), s.expr(e.args[0]))]
    for a in e.args[1:]:
        value, given = s.expr(a), llvm_type(a.dtype)
        args.append((wanted, value if given == wanted else s.value(f"bitcast {given} {value} to {wanted}")))
    return s.intrinsic(name, llvm_type(dt), args)


def _paired_dot(lanes: int, words: bool, operands: list[str], s: FunctionEmitter) -> str:
    """Add products to each lane, exactly: of two words and two bytes, or of even and of odd bytes, widened."""
    (name, wide), t, eight = _DOTS["int16", "int32", lanes], f"<{lanes} x i32>", "splat (i16 8)"
    total, a, b = operands
    if words:
        pairs = [(a, s.value(f"sext <{2 * lanes} x i8> {b} to {wide}"))]
    else:
        a, b = (s.value(f"bitcast <{4 * lanes} x i8> {x} to {wide}") for x in (a, b))
        even = f"and {wide} {a}, splat (i16 255)", f"ashr {wide} {s.value(f'shl {wide} {b}, {eight}')}, {eight}"
        odd = f"lshr {wide} {a}, {eight}", f"ashr {wide} {b}, {eight}"
        pairs = [(s.value(x), s.value(y)) for x, y in (even, odd)]
    for pair in pairs:
        total = s.value(f"add {t} {total}, {s.intrinsic(name, t, [(wide, x) for x in pair])}")
    return total


_PAIRS = {8: ("llvm.x86.avx2.pmadd.ub.sw", 32), 16: ("llvm.x86.avx2.pmadd.wd", 16)}


@on("dot_pairs")
def _dot_pairs(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Add products of neighbours: an instruction of x86 for 256 bits, elsewhere widened factors."""
    (a, b), dt = e.args, ir.DataType(e.dtype)
    narrow = ir.DataType(b.dtype)
    name, lanes = _PAIRS[narrow.bits]
    x, y, t = s.expr(a), s.expr(b), llvm_type(dt)
    if "avx2" in s.module.target.features and narrow.lanes == lanes:
        return s.intrinsic(name, t, [(llvm_type(a.dtype), x), (llvm_type(b.dtype), y)])
    wide = llvm_type(ir.with_lanes(dt.element, narrow.lanes))
    left = s.value(f"{'zext' if narrow.bits == 8 else 'sext'} {llvm_type(a.dtype)} {x} to {wide}")
    product = s.value(f"mul {wide} {left}, {s.value(f'sext {llvm_type(b.dtype)} {y} to {wide}')}")
    halves = [
        s.value(f"shufflevector {wide} {product}, {wide} poison, <{dt.lanes} x i32> <{places}>")
        for places in (", ".join(f"i32 {i}" for i in range(first, narrow.lanes, 2)) for first in (0, 1))
    ]
    return s.value(f"add {t} {halves[0]}, {halves[1]}")


# --- hints ------------------------------------------------------------------------------------------------------------


@on("any_lane")
def _any_lane(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Whether a condition holds in any lane."""
    lanes, mask = ir.DataType(e.args[0].dtype).lanes, s.expr(e.args[0])
    return mask if lanes == 1 else s.intrinsic(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [(f"<{lanes} x i1>", mask)])


@on("likely")
def _likely(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    return s.expr(e.args[0])


@on("assume")
def _assume(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    s.module.declare("llvm.assume", "declare void @llvm.assume(i1)")
    s.emit(f"call void @llvm.assume(i1 {s.expr(e.args[0])})")
    return "0"


@on("address_of")
def _address_of(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    load = e.args[0]
    if not isinstance(load, tir.BufferLoad):
        raise error.CodegenError("address_of needs an element of a buffer", where=e.span, found=str(load))
    return element_pointer(s, load.buffer, load.indices[0])


@on("prefetch")
def _prefetch(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """``prefetch(address, write, locality, is_data)``."""
    address, *given = e.args
    flags = [*(str(ir.as_int(a)) for a in given[:3]), "0", "3", "1"][:3] if given else ["0", "3", "1"]
    s.module.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    s.emit(f"call void @llvm.prefetch.p0(ptr {s.expr(address)}, i32 {flags[0]}, i32 {flags[1]}, i32 {flags[2]})")
    return "0"


# --- control and calls ------------------------------------------------------------------------------------------------


def _load_or_zero(e: ir.CallIntrin, s: FunctionEmitter) -> str | None:
    """Emit ``if_then_else(c, x[i], 0)`` as a load from ``c ? &x[i] : zeros``; None for another expression."""
    condition, load, zero = e.args
    while isinstance(load, ir.CallIntrin) and load.op is e.op and ir.structural_equal(load.args[2], zero):
        condition, load = ir.And(condition, load.args[0]), load.args[1]
    if isinstance(zero, ir.Broadcast):
        zero = zero.value
    if not isinstance(zero, (ir.IntImm, ir.FloatImm)) or zero.value != 0 or math.copysign(1.0, zero.value) < 0:
        return None
    if not isinstance(load, tir.BufferLoad) or load.predicate is not None or ir.DataType(condition.dtype).lanes != 1:
        return None
    index, dt = load.indices[0], ir.DataType(load.dtype)
    plain = dt.lanes == 1 or (isinstance(index, ir.Ramp) and ir.as_int(index.stride) == 1)
    asked = index if condition is e.args[0] else (index, condition)  # where the outer test fails, no inner one may run
    if not plain or dt.code == "bool" or ir.find(asked, tir.BufferLoad, ir.CallIntrin):
        return None
    if dt.lanes * ir.DataType(dt.element).itemsize > 64:
        return None
    test = s.expr(condition)
    at = element_pointer(s, load.buffer, index.base if isinstance(index, ir.Ramp) else index)
    chosen = s.value(f"select i1 {test}, ptr {at}, ptr {s.module.zeros()}", "p")
    return s.effect(f"load {memory_type(load.dtype)}, ptr {chosen}, align {alignment(load.buffer)}")


@on("if_then_else")
def _if_then_else(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Evaluate only the side that is taken; where that is a load or zero, choose an address instead of branching."""
    pointer = _load_or_zero(e, s)
    if pointer is not None:
        return pointer
    return guarded(s, s.expr(e.args[0]), e.args[1], e.args[2])


@on("call_extern", "call_pure_extern")
def _extern(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    name = e.args[0]
    if not isinstance(name, ir.StringImm):
        raise error.CodegenError("call_extern needs the name of a function", where=e.span, found=str(name))
    args = [
        (llvm_type(a.dtype), s.module.string(a.value) if isinstance(a, ir.StringImm) else s.expr(a)) for a in e.args[1:]
    ]
    result = "void" if e.dtype == "void" else llvm_type(e.dtype)
    types = ", ".join(t for t, _ in args)
    if llvm.address_of_symbol(name.value) is None:
        _check_present(s, name.value, f"{result} @{name.value}({types})")
    else:
        s.module.declare(name.value, f"declare {result} @{name.value}({types})")
    call = f"call {result} @{name.value}({', '.join(f'{t} {v}' for t, v in args)})"
    if e.dtype != "void":
        return s.effect(call)
    s.emit(call)
    return "0"


def _check_present(s: FunctionEmitter, name: str, signature: str) -> None:
    """Refer weakly to a function that is not in this process: it may be linked later, and a call finds out."""
    s.module.declare(name, f"declare extern_weak {signature}")
    there, missing = s.label("there"), s.label("missing")
    s.branch(s.value(f"icmp ne ptr @{name}, null"), there, missing, ", !prof !0")
    s.start(missing)
    text = s.module.string(f"there is no external function '{name}'; load or link it before the kernel runs")
    s.leave(s.effect(raise_error(s.module, s.module.string("EvaluationError"), text)))
    s.start(there)


_ARCHITECTURES = frozenset(
    "aarch64 amdgcn arm hexagon loongarch mips nvvm ppc r600 riscv s390 spv ve wasm x86 xcore".split()
)


@on("call_llvm_intrin", "call_llvm_pure_intrin")
def llvm_intrinsic(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    """Emit a call of the intrinsic of LLVM that the first argument names; its suffix may be left out."""
    name = e.args[0]
    if isinstance(name, ir.IntImm):
        name = ir.StringImm(llvm_get_intrinsic_name(name.value))
    if not isinstance(name, ir.StringImm) or not name.value.startswith("llvm."):
        raise error.CodegenError(
            "call_llvm_intrin needs the name of an LLVM intrinsic", where=e.span, expected="'llvm.fma'", found=str(name)
        )
    args = [(llvm_type(a.dtype), s.expr(a)) for a in e.args[1:]]
    parts = name.value.split(".")
    is_full = len(parts) > 2 and parts[-1][:1] in "fiv" and any(c.isdigit() for c in parts[-1])
    of_machine = parts[1] in _ARCHITECTURES
    if e.dtype == "void":
        check_intrinsic(name.value, "void", args, s.module.target)
        s.module.declare(name.value, f"declare void @{name.value}({', '.join(t for t, _ in args)})")
        s.emit(f"call void @{name.value}({', '.join(f'{t} {v}' for t, v in args)})")
        return "0"
    full = name.value if is_full or of_machine else f"{name.value}.{suffix(e.dtype)}"
    check_intrinsic(full, llvm_type(e.dtype), args, s.module.target)
    emit = s.intrinsic if e.op.name == "tir.call_llvm_pure_intrin" else s.call
    return emit(full, llvm_type(e.dtype), args)
