"""The state of emitting one LLVM function as text, and the emission of scalar and vector expressions."""

from __future__ import annotations

from typing import Any

from weft.arith import Analyzer
from weft.error import CodegenError
from weft.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Cast,
    DataType,
    Dispatch,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Sub,
    Var,
    as_int,
)
from weft.target.llvm.types import float_constant, llvm_type, memory_type
from weft.tir import BufferLoad

__all__ = ["EXPR", "FunctionEmitter", "ModuleEmitter"]


class ModuleEmitter:
    """One LLVM module: functions, declarations and string constants."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self._strings: dict[str, str] = {}
        self.irregular = False

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function once."""
        self.declarations[name] = signature

    def string(self, text: str) -> str:
        """Return the symbol of a zero-terminated string constant."""
        if text not in self._strings:
            name = f"@.str{len(self._strings)}"
            data = text.encode() + b"\0"
            body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
            self.globals.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}"')
            self._strings[text] = name
        return self._strings[text]

    def text(self) -> str:
        """The whole module."""
        return "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                *self.globals,
                *self.declarations.values(),
                *self.functions,
                self._attributes(),
            ]
        )

    def _attributes(self) -> str:
        t = self.target
        cpu = f'"target-cpu"="{t.cpu}" ' if t.cpu else ""
        wide = ' "prefer-vector-width"="512"' if t.vector_bits == 512 else ""
        return f'attributes #0 = {{ nounwind {cpu}"target-features"="{t.attribute_string}"{wide} }}\nattributes #1 = {{ cold }}'


class FunctionEmitter:
    """One LLVM function: its lines, the entry block's allocas, and the values of variables."""

    def __init__(self, module: ModuleEmitter, name: str) -> None:
        self.module, self.name = module, name
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.env: dict[int, str] = {}
        self.pointers: dict[int, str] = {}
        self.analyzer = Analyzer()
        self.cse: dict[tuple[Any, ...], str] = {}
        self._n = 0
        self.block = "entry"
        self.cleanup: list[str] = []
        self.keep: list[Any] = []
        self.noalias = True

    def fresh(self, hint: str = "v") -> str:
        """Return a new register name."""
        self._n += 1
        return f"%{hint}{self._n}"

    def label(self, hint: str) -> str:
        """Return a new block label."""
        self._n += 1
        return f"{hint}{self._n}"

    def emit(self, text: str) -> None:
        """Append an instruction."""
        self.lines.append("  " + text)

    def value(self, text: str, hint: str = "v") -> str:
        """Append an instruction that makes a value; an equal one in the same block is used again."""
        key = (self.block, text)
        known = self.cse.get(key)
        if known is not None:
            return known
        name = self.fresh(hint)
        self.lines.append(f"  {name} = {text}")
        if not text.startswith(("load", "call", "alloca")):
            self.cse[key] = name
        return name

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, condition: str, then: str, otherwise: str, weights: str = "") -> None:
        """Branch on an i1."""
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}{weights}")

    def jump(self, label: str) -> None:
        """Jump to a block."""
        self.emit(f"br label %{label}")

    def expr(self, e: Any) -> str:
        """Emit an expression and return its value."""
        return EXPR(e, self)

    def splat(self, value: str, dtype: str, lanes: int) -> str:
        """Repeat a scalar value over lanes."""
        scalar, vector = llvm_type(dtype), f"<{lanes} x {llvm_type(dtype)}>"
        inserted = self.value(f"insertelement {vector} poison, {scalar} {value}, i64 0")
        return self.value(
            f"shufflevector {vector} {inserted}, {vector} poison, <{lanes} x i32> zeroinitializer", "splat"
        )

    def intrinsic(self, name: str, result: str, args: list[tuple[str, str]]) -> str:
        """Call an LLVM intrinsic or external function, declaring it."""
        types = ", ".join(t for t, _ in args)
        self.module.declare(name, f"declare {result} @{name}({types})")
        return self.value(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})")


EXPR = Dispatch("LLVM expression")


def suffix(dtype: str) -> str:
    """The overload suffix of an intrinsic: ``v16f32``."""
    dt = DataType(dtype)
    base = {"float": f"f{dt.bits}", "bfloat": "bf16", "bool": "i1"}.get(dt.code, f"i{dt.bits}")
    return base if dt.lanes == 1 else f"v{dt.lanes}{base}"


@EXPR.on(Var)
def _var(e: Var, s: FunctionEmitter) -> str:
    known = s.env.get(id(e)) or s.pointers.get(id(e))
    if known is None:
        raise CodegenError(
            f"variable '{e.name}' has no value",
            where=e.span,
            help="is it a parameter or a symbolic dimension of a parameter?",
        )
    return known


@EXPR.on(IntImm)
def _int(e: IntImm, s: FunctionEmitter) -> str:
    return ("true" if e.value else "false") if e.dtype == "bool" else str(e.value)


@EXPR.on(FloatImm)
def _float(e: FloatImm, s: FunctionEmitter) -> str:
    return float_constant(e.value, e.dtype)


def _arithmetic(e: Any, s: FunctionEmitter, float_op: str, signed: str, unsigned: str | None = None) -> str:
    a, b = s.expr(e.a), s.expr(e.b)
    dt = DataType(e.a.dtype)
    t = llvm_type(e.a.dtype)
    if dt.is_float:
        if dt.bits == 16:
            return _through_float32(e, s)
        return s.value(f"{float_op} contract {t} {a}, {b}")
    return s.value(f"{unsigned if unsigned and dt.code == 'uint' else signed} {t} {a}, {b}")


def _through_float32(e: Any, s: FunctionEmitter) -> str:
    """Do 16-bit floating-point arithmetic in float32."""
    wide = "float32" if DataType(e.a.dtype).lanes == 1 else f"float32x{DataType(e.a.dtype).lanes}"
    result = type(e)(Cast(wide, e.a), Cast(wide, e.b))
    return s.expr(result if DataType(result.dtype).code == "bool" else Cast(e.dtype, result))


@EXPR.on(Add)
def _add(e: Add, s: FunctionEmitter) -> str:
    if type(e.a) is Mul and DataType(e.dtype).is_float and DataType(e.dtype).bits >= 32:
        return _fma(e.a.a, e.a.b, e.b, s)
    if type(e.b) is Mul and DataType(e.dtype).is_float and DataType(e.dtype).bits >= 32:
        return _fma(e.b.a, e.b.b, e.a, s)
    return _arithmetic(e, s, "fadd", "add")


def _fma(a: PrimExpr, b: PrimExpr, c: PrimExpr, s: FunctionEmitter) -> str:
    t = llvm_type(a.dtype)
    product = s.value(f"fmul contract {t} {s.expr(a)}, {s.expr(b)}")
    return s.value(f"fadd contract {t} {product}, {s.expr(c)}")


@EXPR.on(Sub)
def _sub(e: Sub, s: FunctionEmitter) -> str:
    return _arithmetic(e, s, "fsub", "sub")


@EXPR.on(Mul)
def _mul(e: Mul, s: FunctionEmitter) -> str:
    return _arithmetic(e, s, "fmul", "mul")


def _safe_divisor(e: Any, s: FunctionEmitter) -> str:
    """The divisor of an integer division, with 1 in place of 0, so that the machine cannot trap."""
    b = s.expr(e.b)
    t = llvm_type(e.b.dtype)
    dt = DataType(e.b.dtype)
    if isinstance(e.b, IntImm) or (isinstance(e.b, Broadcast) and isinstance(e.b.value, IntImm)):
        return b
    if dt.lanes == 1 and s.analyzer.const_int_bound(e.b).min_value > 0:
        return b
    zero = s.value(f"icmp eq {t} {b}, {'0' if dt.lanes == 1 else 'zeroinitializer'}")
    one = "1" if dt.lanes == 1 else s.splat("1", dt.element, dt.lanes)
    cond = "i1" if dt.lanes == 1 else f"<{dt.lanes} x i1>"
    return s.value(f"select {cond} {zero}, {t} {one}, {t} {b}")


@EXPR.on(Div)
def _div(e: Div, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.is_float:
        return _arithmetic(e, s, "fdiv", "sdiv")
    t = llvm_type(e.dtype)
    return s.value(f"{'udiv' if dt.code == 'uint' else 'sdiv'} {t} {s.expr(e.a)}, {_safe_divisor(e, s)}")


@EXPR.on(Mod)
def _mod(e: Mod, s: FunctionEmitter) -> str:
    dt = DataType(e.dtype)
    if dt.is_float:
        return _arithmetic(e, s, "frem", "srem")
    t = llvm_type(e.dtype)
    return s.value(f"{'urem' if dt.code == 'uint' else 'srem'} {t} {s.expr(e.a)}, {_safe_divisor(e, s)}")


def _power_of_two(e: PrimExpr) -> int | None:
    value = as_int(e.value) if isinstance(e, Broadcast) else as_int(e)
    return value.bit_length() - 1 if value is not None and value > 0 and value & (value - 1) == 0 else None


def _int_splat(value: int, dtype: str, s: FunctionEmitter) -> str:
    dt = DataType(dtype)
    return str(value) if dt.lanes == 1 else s.splat(str(value), dt.element, dt.lanes)


def _non_negative(e: Any, s: FunctionEmitter) -> bool:
    if DataType(e.dtype).code == "uint":
        return True
    if DataType(e.dtype).lanes > 1:
        return False
    return s.analyzer.const_int_bound(e.a).min_value >= 0 and s.analyzer.const_int_bound(e.b).min_value >= 0


@EXPR.on(FloorDiv)
def _floordiv(e: FloorDiv, s: FunctionEmitter) -> str:
    t, a, shift = llvm_type(e.dtype), s.expr(e.a), _power_of_two(e.b)
    if shift is not None:
        return s.value(
            f"{'lshr' if DataType(e.dtype).code == 'uint' else 'ashr'} {t} {a}, {_int_splat(shift, e.dtype, s)}"
        )
    b = _safe_divisor(e, s)
    if _non_negative(e, s):
        return s.value(f"udiv {t} {a}, {b}")
    quotient = s.value(f"sdiv {t} {a}, {b}")
    return s.value(f"sub {t} {quotient}, {_floor_correction(e, a, b, s)[0]}")


@EXPR.on(FloorMod)
def _floormod(e: FloorMod, s: FunctionEmitter) -> str:
    t, a, shift = llvm_type(e.dtype), s.expr(e.a), _power_of_two(e.b)
    if shift is not None:
        return s.value(f"and {t} {a}, {_int_splat((1 << shift) - 1, e.dtype, s)}")
    b = _safe_divisor(e, s)
    if _non_negative(e, s):
        return s.value(f"urem {t} {a}, {b}")
    _, wrong, remainder = _floor_correction(e, a, b, s)
    cond = llvm_type("bool" if DataType(e.dtype).lanes == 1 else f"boolx{DataType(e.dtype).lanes}")
    zero = _int_splat(0, e.dtype, s)
    return s.value(f"add {t} {remainder}, {s.value(f'select {cond} {wrong}, {t} {b}, {t} {zero}')}")


def _floor_correction(e: Any, a: str, b: str, s: FunctionEmitter) -> tuple[str, str, str]:
    """Return (1 where truncation must be corrected, that as i1, the remainder)."""
    t, zero = llvm_type(e.dtype), _int_splat(0, e.dtype, s)
    cond = llvm_type("bool" if DataType(e.dtype).lanes == 1 else f"boolx{DataType(e.dtype).lanes}")
    remainder = s.value(f"srem {t} {a}, {b}")
    nonzero = s.value(f"icmp ne {t} {remainder}, {zero}")
    signs = s.value(f"icmp slt {t} {s.value(f'xor {t} {remainder}, {b}')}, {zero}")
    wrong = s.value(f"and {cond} {nonzero}, {signs}")
    return s.value(f"zext {cond} {wrong} to {t}"), wrong, remainder


def _extreme(e: Any, s: FunctionEmitter, fcmp: str, signed: str, unsigned: str) -> str:
    a, b, t, dt = s.expr(e.a), s.expr(e.b), llvm_type(e.dtype), DataType(e.dtype)
    cond = llvm_type("bool" if dt.lanes == 1 else f"boolx{dt.lanes}")
    if not dt.is_float:
        if dt.code == "bool":
            return s.value(f"{'or' if isinstance(e, Max) else 'and'} {t} {a}, {b}")
        return s.intrinsic(f"llvm.{unsigned if dt.code == 'uint' else signed}.{suffix(e.dtype)}", t, [(t, a), (t, b)])
    if _is_number(e.a):  # the variable side comes first, so that its NaN survives
        a, b = b, a
    chosen = s.value(f"select {cond} {s.value(f'fcmp {fcmp} {t} {a}, {b}')}, {t} {b}, {t} {a}")
    if _is_number(e.a) or _is_number(e.b):
        return chosen
    nan = s.value(f"fcmp uno {t} {b}, {b}")
    return s.value(f"select {cond} {nan}, {t} {b}, {t} {chosen}")


def _is_number(e: PrimExpr) -> bool:
    return isinstance(e, FloatImm) or (isinstance(e, Broadcast) and isinstance(e.value, FloatImm))


@EXPR.on(Min)
def _min(e: Min, s: FunctionEmitter) -> str:
    return _extreme(e, s, "ogt", "smin", "umin")


@EXPR.on(Max)
def _max(e: Max, s: FunctionEmitter) -> str:
    return _extreme(e, s, "olt", "smax", "umax")


_COMPARE = {
    EQ: ("oeq", "eq", "eq"),
    NE: ("une", "ne", "ne"),
    LT: ("olt", "slt", "ult"),
    LE: ("ole", "sle", "ule"),
    GT: ("ogt", "sgt", "ugt"),
    GE: ("oge", "sge", "uge"),
}


@EXPR.on(*_COMPARE)
def _compare(e: Any, s: FunctionEmitter) -> str:
    dt = DataType(e.a.dtype)
    if dt.is_float and dt.bits == 16:
        return _through_float32(e, s)
    names = _COMPARE[type(e)]
    if dt.code == "handle":
        return s.value(f"icmp {names[2]} ptr {s.expr(e.a)}, {s.expr(e.b)}")
    op = f"fcmp {names[0]}" if dt.is_float else f"icmp {names[1] if dt.code == 'int' else names[2]}"
    return s.value(f"{op} {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.expr(e.b)}")


@EXPR.on(And)
def _and(e: And, s: FunctionEmitter) -> str:
    return s.value(f"and {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.expr(e.b)}")


@EXPR.on(Or)
def _or(e: Or, s: FunctionEmitter) -> str:
    return s.value(f"or {llvm_type(e.a.dtype)} {s.expr(e.a)}, {s.expr(e.b)}")


@EXPR.on(Not)
def _not(e: Not, s: FunctionEmitter) -> str:
    t = llvm_type(e.a.dtype)
    lanes = DataType(e.a.dtype).lanes
    ones = "true" if lanes == 1 else s.splat("true", "bool", lanes)
    return s.value(f"xor {t} {s.expr(e.a)}, {ones}")


@EXPR.on(Select)
def _select(e: Select, s: FunctionEmitter) -> str:
    t = llvm_type(e.dtype)
    return s.value(
        f"select {llvm_type(e.condition.dtype)} {s.expr(e.condition)}, {t} {s.expr(e.true_value)}, {t} {s.expr(e.false_value)}"
    )


@EXPR.on(Let)
def _let(e: Let, s: FunctionEmitter) -> str:
    s.env[id(e.var)] = s.expr(e.value)
    s.keep.append(e.var)
    return s.expr(e.body)


@EXPR.on(Ramp)
def _ramp(e: Ramp, s: FunctionEmitter) -> str:
    dt = DataType(e.base.dtype)
    t = f"<{e.lanes} x {llvm_type(dt)}>"
    base, stride = s.splat(s.expr(e.base), dt, e.lanes), s.splat(s.expr(e.stride), dt, e.lanes)
    steps = "<" + ", ".join(f"{llvm_type(dt)} {i}" for i in range(e.lanes)) + ">"
    return s.value(f"add {t} {base}, {s.value(f'mul {t} {stride}, {steps}')}")


@EXPR.on(Broadcast)
def _broadcast(e: Broadcast, s: FunctionEmitter) -> str:
    return s.splat(s.expr(e.value), DataType(e.value.dtype), e.lanes)


@EXPR.on(Shuffle)
def _shuffle(e: Shuffle, s: FunctionEmitter) -> str:
    if len(e.vectors) != 1 or len(e.indices) != 1:
        raise CodegenError("only extraction of one lane is supported by this shuffle", found=str(e))
    t = llvm_type(e.vectors[0].dtype)
    return s.value(f"extractelement {t} {s.expr(e.vectors[0])}, i64 {s.expr(e.indices[0])}")


@EXPR.on(Cast)
def _cast(e: Cast, s: FunctionEmitter) -> str:
    source, target = DataType(e.value.dtype), DataType(e.dtype)
    value, ts, tt = s.expr(e.value), llvm_type(e.value.dtype), llvm_type(e.dtype)
    if ts == tt:
        return value
    if source.code == "handle" or target.code == "handle":
        return s.value(f"{'ptrtoint' if source.code == 'handle' else 'inttoptr'} {ts} {value} to {tt}")
    if target.code == "bool":
        zero = "zeroinitializer" if source.lanes > 1 else "0" if not source.is_float else float_constant(0.0, source)
        return s.value(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {value}, {zero}")
    if source.is_float and target.is_float:
        if source.bits == 16 and target.bits == 16:
            return s.expr(Cast(e.dtype, Cast("float32" if target.lanes == 1 else f"float32x{target.lanes}", e.value)))
        return s.value(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {ts} {value} to {tt}")
    if source.is_float:
        if source.bits == 16:
            return s.expr(Cast(e.dtype, Cast("float32" if target.lanes == 1 else f"float32x{target.lanes}", e.value)))
        name = f"llvm.fpto{'u' if target.code == 'uint' else 's'}i.sat.{suffix(e.dtype)}.{suffix(e.value.dtype)}"
        return s.intrinsic(name, tt, [(ts, value)])
    if target.is_float:
        if target.bits == 16:
            return s.expr(Cast(e.dtype, Cast("float32" if target.lanes == 1 else f"float32x{target.lanes}", e.value)))
        return s.value(f"{'sitofp' if source.code == 'int' else 'uitofp'} {ts} {value} to {tt}")
    if target.bits < source.bits and source.code != "bool":
        return s.value(f"trunc {ts} {value} to {tt}")
    if source.code != "bool" and target.bits == source.bits:
        return value
    return s.value(f"{'sext' if source.code == 'int' else 'zext'} {ts} {value} to {tt}")


# --- memory ------------------------------------------------------------------------------------------------------------


def element_pointer(s: FunctionEmitter, buffer: Any, index: PrimExpr) -> str:
    """Return the address of an element of a flat buffer."""
    pointer = s.pointers.get(id(buffer.data))
    if pointer is None:
        raise CodegenError(
            f"buffer '{buffer.name}' has no memory", help="is it a parameter, or allocated around its use?"
        )
    if as_int(index) == 0:
        return pointer
    text = s.expr(index)
    if index.dtype != "int64":
        text = s.value(f"sext {llvm_type(index.dtype)} {text} to i64")
    return s.value(f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {pointer}, i64 {text}", "p")


def alignment(buffer: Any) -> int:
    """The alignment of an element in bytes."""
    return max(1, DataType(buffer.dtype).itemsize)


@EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: FunctionEmitter) -> str:
    index = e.indices[0]
    dt = DataType(e.dtype)
    m, align = memory_type(e.dtype), alignment(e.buffer)
    if dt.lanes == 1:
        return _from_memory(s.value(f"load {m}, ptr {element_pointer(s, e.buffer, index)}, align {align}"), e.dtype, s)
    if isinstance(index, Ramp) and as_int(index.stride) == 1:
        pointer = element_pointer(s, e.buffer, index.base)
        if e.predicate is None:
            return _from_memory(s.value(f"load {m}, ptr {pointer}, align {align}"), e.dtype, s)
        mask = s.expr(e.predicate)
        name = f"llvm.masked.load.{_memory_suffix(e.dtype)}.p0"
        args = [("ptr", pointer), ("i32", str(align)), (f"<{dt.lanes} x i1>", mask), (m, "zeroinitializer")]
        return _from_memory(s.intrinsic(name, m, args), e.dtype, s)
    if isinstance(index, Broadcast) and e.predicate is None:
        return s.splat(s.expr(BufferLoad(e.buffer, (index.value,))), dt.element, dt.lanes)
    mask = s.expr(e.predicate) if e.predicate is not None else s.splat("true", "bool", dt.lanes)
    name = f"llvm.masked.gather.{_memory_suffix(e.dtype)}.v{dt.lanes}p0"
    pt = f"<{dt.lanes} x ptr>"
    args = [
        (pt, _pointers(e.buffer, index, s)),
        ("i32", str(align)),
        (f"<{dt.lanes} x i1>", mask),
        (m, "zeroinitializer"),
    ]
    return _from_memory(s.intrinsic(name, m, args), e.dtype, s)


def _memory_suffix(dtype: str) -> str:
    dt = DataType(dtype)
    return suffix(f"uint8x{dt.lanes}" if dt.code == "bool" else dtype)


def _pointers(buffer: Any, index: PrimExpr, s: FunctionEmitter) -> str:
    dt = DataType(index.dtype)
    base = s.pointers[id(buffer.data)]
    return s.value(
        f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {base}, <{dt.lanes} x {llvm_type(dt.element)}> {s.expr(index)}"
    )


def _from_memory(value: str, dtype: str, s: FunctionEmitter) -> str:
    dt = DataType(dtype)
    if dt.code != "bool":
        return value
    m = memory_type(dtype)
    return s.value(f"icmp ne {m} {value}, {'0' if dt.lanes == 1 else 'zeroinitializer'}")


def store(s: FunctionEmitter, buffer: Any, index: PrimExpr, value: PrimExpr, predicate: PrimExpr | None) -> None:
    """Emit a store, masked where there is a predicate."""
    dt = DataType(value.dtype)
    text, m, align = s.expr(value), memory_type(value.dtype), alignment(buffer)
    if dt.code == "bool":
        text = s.value(f"zext {llvm_type(value.dtype)} {text} to {m}")
    if dt.lanes == 1:
        s.emit(f"store {m} {text}, ptr {element_pointer(s, buffer, index)}, align {align}")
        return
    if isinstance(index, Ramp) and as_int(index.stride) == 1:
        pointer = element_pointer(s, buffer, index.base)
        if predicate is None:
            s.emit(f"store {m} {text}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.{_memory_suffix(value.dtype)}.p0"
        args = [(m, text), ("ptr", pointer), ("i32", str(align)), (f"<{dt.lanes} x i1>", s.expr(predicate))]
    else:
        name = f"llvm.masked.scatter.{_memory_suffix(value.dtype)}.v{dt.lanes}p0"
        mask = s.expr(predicate) if predicate is not None else s.splat("true", "bool", dt.lanes)
        args = [
            (m, text),
            (f"<{dt.lanes} x ptr>", _pointers(buffer, index, s)),
            ("i32", str(align)),
            (f"<{dt.lanes} x i1>", mask),
        ]
    s.module.declare(name, f"declare void @{name}({', '.join(t for t, _ in args)})")
    s.emit(f"call void @{name}({', '.join(f'{t} {v}' for t, v in args)})")


__all__ += ["alignment", "element_pointer", "store", "suffix"]
