"""Emission of arithmetic, comparisons and choices, on scalars and vectors.

Integers wrap. Division by zero gives 0, and so does its remainder; the least integer divided by -1 is itself: no
program stops the process. Minimum and maximum pass NaN on. Arithmetic of 16-bit floats is done in float32.
"""

from typing import Any

from weft import error, ir, tir
from weft.target.llvm.convert import shorten
from weft.target.llvm.emitter import EXPR, FunctionEmitter, condition_type, suffix
from weft.target.llvm.types import float_constant, llvm_type


@EXPR.on(ir.Var)
def _var(e: ir.Var, s: FunctionEmitter) -> str:
    known = s.env.get(e) or s.pointers.get(e)
    if known is None:
        raise error.CodegenError(
            f"variable '{e.name}' has no value",
            where=e.span,
            help="is it a parameter or a symbolic dimension of a parameter?",
        )
    return known


@EXPR.on(ir.IntImm)
def _int(e: ir.IntImm, s: FunctionEmitter) -> str:
    return ("true" if e.value else "false") if e.dtype == "bool" else str(e.value)


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: FunctionEmitter) -> str:
    return float_constant(e.value, e.dtype)


_ARITHMETIC = {ir.Add: "add", ir.Sub: "sub", ir.Mul: "mul", ir.Div: "div"}


@EXPR.on(ir.Add, ir.Sub, ir.Mul)
def _arithmetic(e: Any, s: FunctionEmitter) -> str:
    dt, name = ir.DataType(e.a.dtype), _ARITHMETIC[type(e)]
    if dt.is_float and dt.bits < 32:
        return through_float32(e, s)
    a, b, t = s.expr(e.a), s.expr(e.b), llvm_type(dt)
    return s.value(f"f{name} contract {t} {a}, {b}" if dt.is_float else f"{name} {t} {a}, {b}")


def through_float32(e: ir.BinaryOp, s: FunctionEmitter) -> str:
    """Do an operation on 16-bit floats in float32."""
    wide = ir.with_lanes("float32", ir.DataType(e.a.dtype).lanes)
    result = type(e)(ir.Cast(wide, e.a), ir.Cast(wide, e.b))
    if isinstance(e, (ir.Min, ir.Max)) and ir.DataType(e.dtype).code == "bfloat":  # one of the two
        return shorten(s, s.expr(result), ir.DataType(e.dtype).lanes)
    return s.expr(result if ir.DataType(result.dtype).code == "bool" else ir.Cast(e.dtype, result))


# --- integer division -------------------------------------------------------------------------------------------------


def _constant(e: ir.PrimExpr) -> int | None:
    return ir.as_int(e.value) if isinstance(e, ir.Broadcast) else ir.as_int(e)


def _is_positive(e: ir.PrimExpr, s: FunctionEmitter) -> bool:
    """Whether a divisor is positive in the machine, where sums and products wrap around."""
    dt, bound = ir.DataType(e.dtype), s.analyzer.const_int_bound
    if dt.lanes > 1:
        return isinstance(e, ir.Broadcast) and _is_positive(e.value, s)
    if isinstance(e, ir.Max):
        return _is_positive(e.a, s) or _is_positive(e.b, s)
    most = (1 << dt.bits - 1) - 1
    sums = [bound(n) for n in ir.find(e, ir.Add, ir.Sub, ir.Mul)]
    exact = all(-most < b.min_value and b.max_value < most for b in sums)
    return exact and dt.code == "int" and bound(e).min_value > 0


def _is_non_negative(e: ir.PrimExpr, s: FunctionEmitter) -> bool:
    if ir.DataType(e.dtype).code == "uint":
        return True
    if isinstance(e, ir.Broadcast):
        return _is_non_negative(e.value, s)
    if isinstance(e, ir.Ramp):
        stride = ir.as_int(e.stride)
        return stride is not None and stride >= 0 and _is_non_negative(e.base, s)
    return ir.DataType(e.dtype).lanes == 1 and s.analyzer.const_int_bound(e).min_value >= 0


def _divide(e: Any, s: FunctionEmitter, *, floor: bool, quotient: bool) -> str:
    """Emit a quotient or remainder of integers, guarded unless the divisor is known to be harmless."""
    dt, t = ir.DataType(e.dtype), llvm_type(e.dtype)
    a, known = s.expr(e.a), _constant(e.b)
    unsigned = dt.code == "uint" or (_is_non_negative(e.a, s) and _is_non_negative(e.b, s))
    if known is not None and known > 0 and known & (known - 1) == 0 and (floor or unsigned):
        shift = s.constant(str(known.bit_length() - 1), dt)
        if quotient:
            return s.value(f"{'lshr' if unsigned else 'ashr'} {t} {a}, {shift}")
        return s.value(f"and {t} {a}, {s.constant(str(known - 1), dt)}")
    b, zero = s.expr(e.b), None
    if known == 0:
        return s.constant("0", dt)
    if known is None and not _is_positive(e.b, s):
        cond = condition_type(dt)
        zero = s.value(f"icmp eq {t} {b}, {s.constant('0', dt)}")
        unsafe = zero
        if not unsigned:
            least = s.value(f"icmp eq {t} {a}, {s.constant(str(-(1 << (dt.bits - 1))), dt)}")
            minus = s.value(f"icmp eq {t} {b}, {s.constant('-1', dt)}")
            unsafe = s.value(f"or {cond} {zero}, {s.value(f'and {cond} {least}, {minus}')}")
        b = s.value(f"select {cond} {unsafe}, {t} {s.constant('1', dt)}, {t} {b}")
    elif known == -1 and not unsigned:
        result = s.value(f"sub {t} {s.constant('0', dt)}, {a}") if quotient else s.constant("0", dt)
        return result
    if known is None and zero is None:  # a test may be what keeps it from trapping here: ahead of that a guard does
        less = s.value(f"icmp {'ult' if unsigned else 'slt'} {t} {b}, {s.constant('1', dt)}")
        b = s.value(f"select {condition_type(dt)} {less}, {t} {s.constant('1', dt)}, {t} {b}")
    if floor and not unsigned:
        result = _floor(e, a, b, s, quotient)
    else:
        result = _truncated(e, a, b, s, quotient, "u" if unsigned else "s")
    if zero is None:
        return result
    return s.value(f"select {condition_type(dt)} {zero}, {t} {s.constant('0', dt)}, {t} {result}")


def _truncated(e: Any, a: str, b: str, s: FunctionEmitter, quotient: bool, sign: str = "s") -> str:
    """Emit a quotient or remainder towards zero.

    Machines divide no vectors of integers. Of 32 bits, quotients of float64 do: one that is no integer is further from
    the next than half a unit of its last place.
    """
    dt, t = ir.DataType(e.dtype), llvm_type(e.dtype)
    if dt.lanes == 1 or dt.bits > 32 or _constant(e.b) is not None:
        return s.value(f"{sign}{'div' if quotient else 'rem'} {t} {a}, {b}")
    wide = llvm_type(f"float64x{dt.lanes}")
    x, y = (s.value(f"{sign}itofp {t} {v} to {wide}") for v in (a, b))
    whole = s.value(f"fpto{sign}i {wide} {s.value(f'fdiv {wide} {x}, {y}')} to {t}")
    return whole if quotient else s.value(f"sub {t} {a}, {s.value(f'mul {t} {whole}, {b}')}")


def _floor(e: Any, a: str, b: str, s: FunctionEmitter, quotient: bool) -> str:
    """Correct a truncating division towards minus infinity."""
    t, cond = llvm_type(e.dtype), condition_type(e.dtype)
    zero = s.constant("0", e.dtype)
    remainder = _truncated(e, a, b, s, False)
    nonzero = s.value(f"icmp ne {t} {remainder}, {zero}")
    signs = s.value(f"icmp slt {t} {s.value(f'xor {t} {remainder}, {b}')}, {zero}")
    wrong = s.value(f"and {cond} {nonzero}, {signs}")
    if quotient:
        return s.value(f"add {t} {_truncated(e, a, b, s, True)}, {s.value(f'sext {cond} {wrong} to {t}')}")
    return s.value(f"add {t} {remainder}, {s.value(f'select {cond} {wrong}, {t} {b}, {t} {zero}')}")


@EXPR.on(ir.Div)
def _div(e: ir.Div, s: FunctionEmitter) -> str:
    if ir.DataType(e.dtype).is_float:
        return _arithmetic(e, s)
    return _divide(e, s, floor=False, quotient=True)


@EXPR.on(ir.Mod)
def _mod(e: ir.Mod, s: FunctionEmitter) -> str:
    if ir.DataType(e.dtype).is_float:
        return _remainder(e, s) if ir.DataType(e.dtype).bits >= 32 else through_float32(e, s)
    return _divide(e, s, floor=False, quotient=False)


@EXPR.on(ir.FloorDiv)
def _floordiv(e: ir.FloorDiv, s: FunctionEmitter) -> str:
    if not ir.DataType(e.dtype).is_float:
        return _divide(e, s, floor=True, quotient=True)
    if ir.DataType(e.dtype).bits < 32:
        return through_float32(e, s)
    t, cond = llvm_type(e.dtype), condition_type(e.dtype)
    a, b = s.expr(e.a), s.expr(e.b)
    zero, half, one = (s.constant(float_constant(v, ir.DataType(e.dtype).element), e.dtype) for v in (0.0, 0.5, 1.0))
    plain = s.value(f"fdiv {t} {a}, {b}")
    m, wrong = _float_remainder(e, s)
    exact = s.value(f"fdiv {t} {s.value(f'fsub {t} {a}, {m}')}, {b}")
    exact = s.value(f"select {cond} {wrong}, {t} {s.value(f'fsub {t} {exact}, {one}')}, {t} {exact}")
    floor = s.intrinsic(f"llvm.floor.{suffix(e.dtype)}", t, [(t, exact)])
    above = s.value(f"fcmp ogt {t} {s.value(f'fsub {t} {exact}, {floor}')}, {half}")
    rounded = s.value(f"select {cond} {above}, {t} {s.value(f'fadd {t} {floor}, {one}')}, {t} {floor}")
    signed = s.intrinsic(f"llvm.copysign.{suffix(e.dtype)}", t, [(t, zero), (t, plain)])
    rounded = s.value(f"select {cond} {s.value(f'fcmp oeq {t} {exact}, {zero}')}, {t} {signed}, {t} {rounded}")
    return s.value(f"select {cond} {s.value(f'fcmp oeq {t} {b}, {zero}')}, {t} {plain}, {t} {rounded}")


@EXPR.on(ir.FloorMod)
def _floormod(e: ir.FloorMod, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.dtype)
    if not dt.is_float:
        return _divide(e, s, floor=True, quotient=False)
    if dt.bits < 32:
        return through_float32(e, s)
    t, cond, b = llvm_type(dt), condition_type(dt), s.expr(e.b)
    zero = s.constant(float_constant(0.0, dt.element), dt)
    m, wrong = _float_remainder(e, s)
    signed = s.intrinsic(f"llvm.copysign.{suffix(dt)}", t, [(t, zero), (t, b)])
    fixed = s.value(f"select {cond} {wrong}, {t} {s.value(f'fadd {t} {m}, {b}')}, {t} {m}")
    return s.value(f"select {cond} {s.value(f'fcmp oeq {t} {m}, {zero}')}, {t} {signed}, {t} {fixed}")


def _remainder(e: Any, s: FunctionEmitter) -> str:
    return s.module.remainder(s, e.dtype, s.expr(e.a), s.expr(e.b))


def _float_remainder(e: Any, s: FunctionEmitter) -> tuple[str, str]:
    """Return the remainder with the sign of the dividend, and where that is not the sign of the divisor."""
    t, cond = llvm_type(e.dtype), condition_type(e.dtype)
    zero = s.constant(float_constant(0.0, ir.DataType(e.dtype).element), e.dtype)
    b = s.expr(e.b)
    m = _remainder(e, s)
    signs = s.value(f"xor {cond} {s.value(f'fcmp olt {t} {m}, {zero}')}, {s.value(f'fcmp olt {t} {b}, {zero}')}")
    return m, s.value(f"and {cond} {signs}, {s.value(f'fcmp one {t} {m}, {zero}')}")


# --- choices ----------------------------------------------------------------------------------------------------------


_EXTREMES = {ir.Min: ("ogt", "min"), ir.Max: ("olt", "max")}


@EXPR.on(*_EXTREMES)
def _extreme(e: Any, s: FunctionEmitter) -> str:
    fcmp, name = _EXTREMES[type(e)]
    a, b, t, dt = s.expr(e.a), s.expr(e.b), llvm_type(e.dtype), ir.DataType(e.dtype)
    cond = condition_type(dt)
    if not dt.is_float:
        if dt.code == "bool":
            return s.value(f"{'or' if isinstance(e, ir.Max) else 'and'} {t} {a}, {b}")
        return s.intrinsic(f"llvm.{'u' if dt.code == 'uint' else 's'}{name}.{suffix(dt)}", t, [(t, a), (t, b)])
    if dt.bits < 32:
        return through_float32(e, s)
    if _is_number(e.a):  # the variable side comes first, so that its NaN survives
        a, b = b, a
    if _is_number(e.a) or _is_number(e.b):
        return s.value(f"select {cond} {s.value(f'fcmp {fcmp} {t} {a}, {b}')}, {t} {b}, {t} {a}")
    # x86 tests the first operand for NaN apart; the second, which passes through, is the accumulator of a reduction
    name = f"llvm.{name}imum.{suffix(dt)}"
    s.module.declare(name, f"declare {t} @{name}({t}, {t})")
    return s.value(f"call nsz {t} @{name}({t} {b}, {t} {a})")


def _is_number(e: ir.PrimExpr) -> bool:
    value = e.value if isinstance(e, ir.Broadcast) else e
    return isinstance(value, ir.FloatImm) and value.value == value.value


_COMPARE = {
    ir.EQ: ("oeq", "eq", "eq"),
    ir.NE: ("une", "ne", "ne"),
    ir.LT: ("olt", "slt", "ult"),
    ir.LE: ("ole", "sle", "ule"),
    ir.GT: ("ogt", "sgt", "ugt"),
    ir.GE: ("oge", "sge", "uge"),
}


@EXPR.on(*_COMPARE)
def _compare(e: Any, s: FunctionEmitter) -> str:
    dt = ir.DataType(e.a.dtype)
    if dt.is_float and dt.bits < 32:
        return through_float32(e, s)
    names = _COMPARE[type(e)]
    op = f"fcmp {names[0]}" if dt.is_float else f"icmp {names[1] if dt.code == 'int' else names[2]}"
    return s.value(f"{op} {llvm_type(dt)} {s.expr(e.a)}, {s.expr(e.b)}")


@EXPR.on(ir.And)
def _and(e: ir.And, s: FunctionEmitter) -> str:
    if e.a.dtype == "bool" and _needs_guard(e.b):
        return guarded(s, s.expr(e.a), e.b, ir.FALSE)
    return s.value(f"and {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.expr(e.b)}")


def _needs_guard(e: ir.PrimExpr) -> bool:
    """Whether evaluating an expression may be wrong where the condition before it does not hold."""
    return bool(ir.find(e, tir.BufferLoad))


@EXPR.on(ir.Or)
def _or(e: ir.Or, s: FunctionEmitter) -> str:
    if e.a.dtype == "bool" and _needs_guard(e.b):
        return guarded(s, s.expr(e.a), ir.TRUE, e.b)
    return s.value(f"or {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.expr(e.b)}")


@EXPR.on(ir.Not)
def _not(e: ir.Not, s: FunctionEmitter) -> str:
    return s.value(f"xor {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.constant('true', e.a.dtype)}")


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: FunctionEmitter) -> str:
    t = llvm_type(e.dtype)
    c, a, b = s.expr(e.condition), s.expr(e.true_value), s.expr(e.false_value)
    return s.value(f"select {llvm_type(e.condition.dtype)} {c}, {t} {a}, {t} {b}")


@EXPR.on(ir.Let)
def _let(e: ir.Let, s: FunctionEmitter) -> str:
    value = s.expr(e.value)
    if s.env.get(e.var, value) != value:
        s.forget(names=True)
    s.env[e.var] = value
    return s.expr(e.body)


def guarded(s: FunctionEmitter, condition: str, then_value: ir.PrimExpr, else_value: ir.PrimExpr) -> str:
    """Choose between two values by a branch."""
    then, otherwise, end = s.label("then"), s.label("else"), s.label("end")
    s.branch(condition, then, otherwise)
    values = []
    for label, value in ((then, then_value), (otherwise, else_value)):
        with s.scope():
            s.start(label)
            text = s.expr(value)
            values.append((text, s.block))
            s.jump(end)
    s.start(end)
    return s.effect(
        f"phi {llvm_type(then_value.dtype)} [ {values[0][0]}, %{values[0][1]} ], [ {values[1][0]}, %{values[1][1]} ]",
        "c",
    )


# --- vectors ----------------------------------------------------------------------------------------------------------


@EXPR.on(ir.Ramp)
def _ramp(e: ir.Ramp, s: FunctionEmitter) -> str:
    element = ir.DataType(e.base.dtype)
    scalar, t = llvm_type(element), f"<{e.lanes} x {llvm_type(element)}>"
    known = ir.as_int(e.stride)
    if known is not None:
        steps = "<" + ", ".join(f"{scalar} {_wrapped(i * known, element)}" for i in range(e.lanes)) + ">"
    else:
        count = "<" + ", ".join(f"{scalar} {i}" for i in range(e.lanes)) + ">"
        steps = s.value(f"mul {t} {s.splat(s.expr(e.stride), element, e.lanes)}, {count}")
    if ir.as_int(e.base) == 0:
        return steps
    return s.value(f"add {t} {s.splat(s.expr(e.base), element, e.lanes)}, {steps}")


def _wrapped(value: int, dt: ir.DataType) -> int:
    return (
        value & ((1 << dt.bits) - 1)
        if dt.code == "uint"
        else (value + (1 << dt.bits - 1)) % (1 << dt.bits) - (1 << dt.bits - 1)
    )


@EXPR.on(ir.Broadcast)
def _broadcast(e: ir.Broadcast, s: FunctionEmitter) -> str:
    return s.splat(s.expr(e.value), ir.DataType(e.value.dtype), e.lanes)


@EXPR.on(ir.Shuffle)
def _shuffle(e: ir.Shuffle, s: FunctionEmitter) -> str:
    """Pick lanes: of one vector by ``extractelement``, else by joining scalars and vectors pairwise."""
    picks = [ir.as_int(i) for i in e.indices]
    vectors: tuple[ir.PrimExpr, ...] = e.vectors
    element = llvm_type(ir.DataType(e.vectors[0].dtype).element)
    if len(e.vectors) == 1 and ir.DataType(e.vectors[0].dtype).lanes > 1 and len(picks) == 1:
        return s.value(
            f"extractelement {llvm_type(e.vectors[0].dtype)} {s.expr(e.vectors[0])}, i64 {s.expr(e.indices[0])}"
        )
    if any(p is None for p in picks):
        raise error.CodegenError("a shuffle of several lanes needs constant indices", where=e.span, found=str(e))
    types = {str(v.dtype) for v in e.vectors}
    if len(picks) > 1 and len(e.vectors) <= 2 and len(types) == 1 and ir.DataType(vectors[0].dtype).lanes > 1:
        t = llvm_type(vectors[0].dtype)
        values = [s.expr(v) for v in e.vectors]
        order = ", ".join(f"i32 {p}" for p in picks)
        return s.value(f"shufflevector {t} {values[0]}, {t} {values[-1]}, <{len(picks)} x i32> <{order}>")
    lanes: list[tuple[ir.PrimExpr, int]] = [(v, i) for v in e.vectors for i in range(ir.DataType(v.dtype).lanes)]
    result = "poison"
    for n, p in enumerate(picks):
        source, lane = lanes[p]  # type: ignore[index]
        text = s.expr(source)
        if ir.DataType(source.dtype).lanes > 1:
            text = s.value(f"extractelement {llvm_type(source.dtype)} {text}, i64 {lane}")
        if len(picks) == 1:
            return text
        result = s.value(f"insertelement <{len(picks)} x {element}> {result}, {element} {text}, i64 {n}")
    return result
