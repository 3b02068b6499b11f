"""Emission of conversions between data types.

Float to integer truncates, saturates at the ends and turns NaN into 0. Conversions of 16-bit floats round to the
nearest even value; where the target has no instruction for them they are done on their bits, so that no code ever
needs a helper library.
"""

from weft.ir import Broadcast, CallIntrin, Cast, DataType, FloatImm, Max, Min, Op, PrimExpr, with_lanes
from weft.target.llvm.emitter import EXPR, FunctionEmitter, condition_type, suffix
from weft.target.llvm.types import float_constant, llvm_type

_ROUND = (Op.get("tir.round"), Op.get("tir.nearbyint"))


@EXPR.on(Cast)
def _cast(e: Cast, s: FunctionEmitter) -> str:
    source, target = DataType(e.value.dtype), DataType(e.dtype)
    if _is_narrowing(e):
        number = _limited(s, e, as_float=False)
        return s.value(f"trunc {llvm_type(with_lanes('int32', source.lanes))} {number} to {llvm_type(target)}")
    if target.element == "float32" and isinstance(e.value, Cast) and _is_narrowing(e.value):
        return _limited(s, e.value, as_float=True)
    return convert(s, s.expr(e.value), source, target)


def _is_narrowing(e: Cast) -> bool:
    """Whether vectors of float32 become integers that int32 holds and float32 has exactly."""
    source, target = DataType(e.value.dtype), DataType(e.dtype)
    return source.element == "float32" and source.lanes > 1 and target.is_integer and target.bits in (8, 16)


def _limited(s: FunctionEmitter, e: Cast, *, as_float: bool) -> str:
    """Emit the integers that float32 vectors become, as int32 or as float32.

    They are brought between the limits first; comparisons that NaN fails, in this order, are machines' minimum and
    maximum.
    """
    target, source = DataType(e.dtype), DataType(e.value.dtype)
    t, wide = llvm_type(source), with_lanes("int32", source.lanes)
    signed = target.code == "int"
    low, high = (-(1 << target.bits - 1), (1 << target.bits - 1) - 1) if signed else (0, (1 << target.bits) - 1)
    x = _unlimited(e.value, low, high)
    rounded = isinstance(x, CallIntrin) and x.op in _ROUND
    value = s.expr(x.args[0]) if isinstance(x, CallIntrin) and rounded else s.expr(x)
    if signed:  # where 0 is the lowest number, NaN becomes it below
        value = _kept(s, value, source, "ord", 0.0)
    value = _kept(s, value, source, "ogt", float(low))
    value = _kept(s, value, source, "olt", float(high))
    if not as_float and rounded and s.module.target.triple.startswith("x86_64"):  # to nearest, ties to even
        return s.intrinsic(f"llvm.lrint.{suffix(wide)}.{suffix(source)}", llvm_type(wide), [(t, value)])
    if rounded or as_float:
        value = s.intrinsic(f"llvm.{'roundeven' if rounded else 'trunc'}.{suffix(source)}", t, [(t, value)])
    return value if as_float else s.value(f"fptosi {t} {value} to {llvm_type(wide)}")


def _unlimited(x: PrimExpr, low: int, high: int) -> PrimExpr:
    """Take off limits of a value that a conversion keeps to anyway."""
    while isinstance(x, (Max, Min)):
        bound = x.b.value if isinstance(x.b, Broadcast) else x.b
        if not isinstance(bound, FloatImm) or (bound.value > low if isinstance(x, Max) else bound.value < high):
            break
        x = x.a
    return x


def convert(s: FunctionEmitter, value: str, source: DataType, target: DataType) -> str:
    """Emit the conversion of a value."""
    ts, tt = llvm_type(source), llvm_type(target)
    if source == target:
        return value
    if source.code == "handle" or target.code == "handle":
        return s.value(f"{'ptrtoint' if source.code == 'handle' else 'inttoptr'} {ts} {value} to {tt}")
    if source.is_float and source.bits == 16:
        wide = with_lanes("float32", source.lanes)
        return convert(s, _widen(s, value, source), wide, target)
    if target.is_float and target.bits == 16:
        return _narrow(s, value, source, target)
    if target.code == "bool":
        zero = s.constant(float_constant(0.0, source.element) if source.is_float else "0", source)
        return s.value(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {value}, {zero}")
    if source.is_float and target.is_float:
        return s.value(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {ts} {value} to {tt}")
    if source.is_float:
        if target.lanes > 1 and s.module.target.triple.startswith("x86_64"):
            return _saturated(s, value, source, target)
        kind = "u" if target.code == "uint" else "s"
        return s.intrinsic(f"llvm.fpto{kind}i.sat.{suffix(target)}.{suffix(source)}", tt, [(ts, value)])
    if target.is_float:
        return s.value(f"{'sitofp' if source.code == 'int' else 'uitofp'} {ts} {value} to {tt}")
    if source.code != "bool" and target.bits < source.bits:
        return s.value(f"trunc {ts} {value} to {tt}")
    if source.code != "bool" and target.bits == source.bits:
        return value
    return s.value(f"{'sext' if source.code == 'int' else 'zext'} {ts} {value} to {tt}")


def _saturated(s: FunctionEmitter, value: str, source: DataType, target: DataType) -> str:
    """Emit a conversion of a vector that keeps to the limits, which LLVM takes apart into elements on x86."""
    ts, tt, signed = llvm_type(source), llvm_type(target), target.code == "int"
    bits, precision = target.bits - signed, 24 if source.bits == 32 else 53
    value = _kept(s, value, source, "ord", 0.0)
    beyond = s.value(f"fcmp oge {ts} {value}, {s.constant(float_constant(2.0**bits, source.element), source)}")
    value = _kept(s, value, source, "ogt", -(2.0**bits) if signed else 0.0)
    value = _kept(s, value, source, "olt", 2.0**bits - 2.0 ** max(0, bits - precision))
    features = s.module.target.features
    if bits == 63 and "avx2" in features and "avx512dq" not in features:
        number = _words(s, value, source, target)
    else:
        number = s.value(f"fpto{'s' if signed else 'u'}i {ts} {value} to {tt}")
    if bits <= precision:
        return number
    most = s.constant(str((1 << bits) - 1), target)
    return s.value(f"select {condition_type(source)} {beyond}, {tt} {most}, {tt} {number}")


def _words(s: FunctionEmitter, value: str, source: DataType, target: DataType) -> str:
    """Emit the int64 of floats in its range, half by half, whose bits are the last ones beside a power of two.

    Machines without an instruction for it convert elements one by one.
    """
    wide, tt = DataType(with_lanes("float64", source.lanes)), llvm_type(target)
    td = llvm_type(wide)

    def do(kind: str, a: str, number: float) -> str:
        return s.value(f"{kind} {td} {a}, {s.constant(float_constant(number, DataType('float64')), wide)}")

    value = convert(s, value, source, wide)
    value = s.intrinsic(f"llvm.trunc.{suffix(wide)}", td, [(td, value)])
    high = s.intrinsic(f"llvm.floor.{suffix(wide)}", td, [(td, do("fmul", value, 2.0**-32))])
    low = s.value(f"fsub {td} {value}, {do('fmul', high, 2.0**32)}")
    upper, lower = (s.value(f"bitcast {td} {do('fadd', x, 1.5 * 2.0**52)} to {tt}") for x in (high, low))
    upper = s.value(f"shl {tt} {upper}, {s.constant('32', target)}")
    lower = s.value(f"and {tt} {lower}, {s.constant(str((1 << 32) - 1), target)}")
    return s.value(f"or {tt} {upper}, {lower}")


def _kept(s: FunctionEmitter, value: str, dtype: DataType, compare: str, bound: float) -> str:
    """Emit `value` where it compares so with a bound, else the bound."""
    t, other = llvm_type(dtype), s.constant(float_constant(bound, dtype.element), dtype)
    inside = s.value(f"fcmp {compare} {t} {value}, {other}")
    return s.value(f"select {condition_type(dtype)} {inside}, {t} {value}, {t} {other}")


def _has_half(s: FunctionEmitter) -> bool:
    """Whether the target converts between float16 and float32."""
    target = s.module.target
    return (
        "f16c" in target.features
        if target.triple.startswith(("x86_64", "i386", "i686"))
        else target.architecture.has_half or target.triple.startswith("nvptx")
    )


def _half_type(lanes: int) -> str:
    return "half" if lanes == 1 else f"<{lanes} x half>"


class _Bits:
    """Integer arithmetic on the bits of float32 values, all lanes at once."""

    def __init__(self, s: FunctionEmitter, lanes: int) -> None:
        self.s, self.lanes = s, lanes
        self.dtype = with_lanes("int32", lanes)
        self.type = llvm_type(self.dtype)

    def of(self, value: int) -> str:
        """A constant."""
        return self.s.constant(str(value - (1 << 32) if value >= 1 << 31 else value), self.dtype)

    def do(self, op: str, a: str, b: str | int) -> str:
        """A binary operation."""
        return self.s.value(f"{op} {self.type} {a}, {self.of(b) if isinstance(b, int) else b}")

    def choose(self, condition: str, a: str, b: str) -> str:
        """A choice."""
        return self.s.value(f"select {condition_type(self.dtype)} {condition}, {self.type} {a}, {self.type} {b}")

    def is_above(self, a: str, b: int) -> str:
        """``a > b``, without signs."""
        return self.s.value(f"icmp ugt {self.type} {a}, {self.of(b)}")

    def from_float(self, value: str) -> str:
        """The bits of a float32."""
        return self.s.value(f"bitcast {llvm_type(with_lanes('float32', self.lanes))} {value} to {self.type}")

    def to_float(self, bits: str) -> str:
        """The float32 of some bits."""
        return self.s.value(f"bitcast {self.type} {bits} to {llvm_type(with_lanes('float32', self.lanes))}")

    def from_half(self, value: str) -> str:
        """The bits of a 16-bit float, in 32."""
        return self.s.value(f"zext {llvm_type(with_lanes('int16', self.lanes))} {value} to {self.type}")

    def to_half(self, bits: str) -> str:
        """The 16-bit float of some bits."""
        return self.s.value(f"trunc {self.type} {bits} to {llvm_type(with_lanes('int16', self.lanes))}")


def _widen(s: FunctionEmitter, value: str, source: DataType) -> str:
    """16-bit float to float32, which is exact."""
    b = _Bits(s, source.lanes)
    if source.code == "bfloat":
        return b.to_float(b.do("shl", b.from_half(value), 16))
    wide = llvm_type(with_lanes("float32", source.lanes))
    if _has_half(s):
        half = s.value(f"bitcast {llvm_type(source)} {value} to {_half_type(source.lanes)}")
        return s.value(f"fpext {_half_type(source.lanes)} {half} to {wide}")
    bits = b.from_half(value)
    magnitude = b.do("shl", b.do("and", bits, 0x7FFF), 13)
    scale = s.constant(float_constant(2.0**112, DataType("float32")), with_lanes("float32", source.lanes))
    finite = b.from_float(s.value(f"fmul {wide} {b.to_float(magnitude)}, {scale}"))
    special = b.do("or", magnitude, 0x7F800000)
    result = b.choose(b.is_above(magnitude, 0x0F7FFFFF), special, finite)
    return b.to_float(b.do("or", result, b.do("shl", b.do("and", bits, 0x8000), 16)))


def _narrow(s: FunctionEmitter, value: str, source: DataType, target: DataType) -> str:
    """Any type to a 16-bit float, rounded once."""
    wide = with_lanes("float32", source.lanes)
    if source.is_float and source.bits == 64:
        value = _to_odd(s, value, source) if target.code == "float" else convert(s, value, source, wide)
    elif not source.is_float or source.bits != 32:
        value = convert(s, value, source, wide)
    if target.code == "float" and _has_half(s):
        half = s.value(f"fptrunc {llvm_type(wide)} {value} to {_half_type(source.lanes)}")
        return s.value(f"bitcast {_half_type(source.lanes)} {half} to {llvm_type(target)}")
    if target.code == "bfloat" and _rounds_to_bfloat(s, source.lanes):
        short = f"<{source.lanes} x bfloat>"
        rounded = s.value(f"fptrunc {llvm_type(wide)} {value} to {short}")
        return s.value(f"bitcast {short} {rounded} to {llvm_type(target)}")
    b = _Bits(s, source.lanes)
    bits = b.from_float(value)
    magnitude = b.do("and", bits, 0x7FFFFFFF)
    nan = b.is_above(magnitude, 0x7F800000)
    if target.code == "bfloat":
        odd = b.do("and", b.do("lshr", bits, 16), 1)
        rounded = b.do("lshr", b.do("add", bits, b.do("add", odd, 0x7FFF)), 16)
        quiet = b.do("or", b.do("lshr", bits, 16), 0x40)
        return b.to_half(b.choose(nan, quiet, rounded))
    odd = b.do("and", b.do("lshr", magnitude, 13), 1)
    normal = b.do("lshr", b.do("add", b.do("add", magnitude, odd), 0xC8000FFF), 13)
    half = s.constant(float_constant(0.5, DataType("float32")), wide)
    denormal = b.do("sub", b.from_float(s.value(f"fadd {llvm_type(wide)} {b.to_float(magnitude)}, {half}")), 0x3F000000)
    result = b.choose(b.is_above(magnitude, 0x387FFFFF), normal, denormal)
    result = b.choose(b.is_above(magnitude, 0x477FEFFF), b.of(0x7C00), result)
    result = b.choose(nan, b.of(0x7E00), result)
    return b.to_half(b.do("or", result, b.do("and", b.do("lshr", bits, 16), 0x8000)))


def _rounds_to_bfloat(s: FunctionEmitter, lanes: int) -> bool:
    """Whether the target rounds such vectors of float32 by an instruction, which takes denormals for zero."""
    return lanes in (4, 8, 16, 32) and {"avx512bf16", "avx512vl"} <= s.module.target.features


def shorten(s: FunctionEmitter, value: str, lanes: int) -> str:
    """Emit the bfloat16 of float32 values that are bfloat16 values."""
    b = _Bits(s, lanes)
    return b.to_half(b.do("lshr", b.from_float(value), 16))


def _to_odd(s: FunctionEmitter, value: str, source: DataType) -> str:
    """float64 to float32 such that rounding again to 16 bits gives what one rounding would.

    Inexact results get an odd last bit.
    """
    b = _Bits(s, source.lanes)
    td, tf, cond = llvm_type(source), llvm_type(with_lanes("float32", source.lanes)), condition_type(source)
    near = s.value(f"fptrunc {td} {value} to {tf}")
    back = s.value(f"fpext {tf} {near} to {td}")
    magnitudes = [s.intrinsic(f"llvm.fabs.{suffix(source)}", td, [(td, v)]) for v in (back, value)]
    up = s.value(f"fcmp ogt {td} {magnitudes[0]}, {magnitudes[1]}")
    bits = b.from_float(near)
    below = b.choose(up, b.do("sub", bits, 1), bits)
    inexact = s.value(f"fcmp one {td} {back}, {value}")
    return b.to_float(s.value(f"select {cond} {inexact}, {b.type} {b.do('or', below, 1)}, {b.type} {bits}"))
