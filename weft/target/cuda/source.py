"""Device functions to CUDA C.

Integer division by zero gives 0, as on every target; minimum and maximum pass NaN on. Overflow of signed integers is
undefined, as in CUDA C. Refused so far, with an error: vectors, 16-bit floats, virtual threads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

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
    CallIntrin,
    Cast,
    DataType,
    Dispatch,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IRModule,
    Max,
    Min,
    Mod,
    Mul,
    Node,
    Not,
    Op,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
    as_int,
    const,
    walk,
)  # fmt: skip
from weft.target.cuda.lower import lower_for_gpu
from weft.target.cuda.threads import AXES, launch_extents
from weft.target.target import Target
from weft.tir import (
    AllocBuffer,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip

__all__ = ["Kernel", "emit_cuda", "emit_function", "emit_kernel"]

_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip
_MATH = frozenset((
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc", "nearbyint", "fabs",
    "pow", "atan2", "hypot", "fmod", "copysign", "nextafter", "fma",
))  # fmt: skip
_RENAMED = {"round": "nearbyint", "power": "pow"}

_PRELUDE = """\
template <class T> __device__ inline T weft_div(T a, T b) {
  return b == 0 ? T(0) : b == T(-1) && T(-1) < T(0) ? T(0) - a : a / b;
}
template <class T> __device__ inline T weft_mod(T a, T b) {
  return b == 0 || (b == T(-1) && T(-1) < T(0)) ? T(0) : a % b;
}
template <class T> __device__ inline T weft_floormod(T a, T b) {
  T r = weft_mod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
template <class T> __device__ inline T weft_floordiv(T a, T b) {
  T q = weft_div(a, b), r = weft_mod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? q - 1 : q;
}
template <class T> __device__ inline T weft_min(T a, T b) { return a != a || a < b ? a : b; }
template <class T> __device__ inline T weft_max(T a, T b) { return a != a || a > b ? a : b; }
"""


class Kernel(NamedTuple):
    """A kernel: its text, the host's variables that it takes in order (pointers and scalars), and its launch."""

    name: str
    source: str
    params: tuple[Var, ...]
    grid: tuple[PrimExpr, PrimExpr, PrimExpr]
    block: tuple[PrimExpr, PrimExpr, PrimExpr]


class _Emitter:
    """The state of emission: lines, names, and what the kernel turns out to need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.params: list[Var] = []
        self.pointers: dict[int, str] = {}
        self.stored: set[int] = set()
        self.axes: set[str] = set()  # the thread axes around the current statement

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self, var: Var) -> str:
        base = "v_" + re.sub(r"\W", "_", var.name)
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        self.names[id(var)] = name
        return name

    def define(self, var: Var, value: str) -> None:
        self.emit(f"{_type(var.dtype, var)} {self.fresh(var)} = {value};")

    def need(self, var: Var) -> str:
        """The name of a variable; one that nothing here defines is a parameter of the kernel."""
        if id(var) not in self.names:
            self.params.append(var)
            self.fresh(var)
        return self.names[id(var)]

    def element(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
        if len(indices) != 1:
            raise CodegenError(f"'{buffer.name}' is not flat", found=f"{len(indices)} indices")
        known = id(buffer.data) in self.names
        name = self.need(buffer.data)
        if not known:
            self.pointers[id(buffer.data)] = _type(buffer.dtype, buffer)
        of = self.pointers[id(buffer.data)]
        if of != _type(buffer.dtype, buffer):
            raise CodegenError(f"'{buffer.name}' is read as two types", found=f"{of} and {buffer.dtype}")
        return f"{name}[{_EXPR(indices[0], self)}]"

    def nested(self, opening: str, body: Stmt) -> None:
        self.emit(opening + " {")
        self.depth += 1
        _STMT(body, self)
        self.depth -= 1
        self.emit("}")


def _type(dtype: str, at: Node) -> str:
    if dtype not in _TYPES:
        raise CodegenError(
            f"target cuda has no code for '{dtype}' yet", where=at.span, expected=f"one of {', '.join(_TYPES)}"
        )
    return _TYPES[dtype]


def _not_expr(e: PrimExpr, s: _Emitter) -> str:
    raise CodegenError(f"target cuda has no code for {type(e).__name__} yet", where=e.span)


def _not_stmt(node: Stmt, s: _Emitter) -> None:
    raise CodegenError(f"target cuda has no code for {type(node).__name__} yet", where=node.span)


_EXPR = Dispatch("CUDA expression", (PrimExpr,), default=_not_expr)
_STMT = Dispatch("CUDA statement", (Stmt,), default=_not_stmt)


# --- expressions ------------------------------------------------------------------------------------------------------


@_EXPR.on(Var)
def _var(e: Var, s: _Emitter) -> str:
    return s.need(e)


@_EXPR.on(IntImm)
def _int(e: IntImm, s: _Emitter) -> str:
    if e.dtype == "int64" and e.value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(e.dtype, "")
    return f"({_type(e.dtype, e)})({e.value}{suffix})"


@_EXPR.on(FloatImm)
def _float(e: FloatImm, s: _Emitter) -> str:
    of = _type(e.dtype, e)
    if math.isfinite(e.value):
        return f"({of})({float(e.value).hex()})"
    bits = "0x7fc00000" if math.isnan(e.value) else "0x7f800000"
    return f"({of})({'-' if e.value < 0 else ''}__int_as_float({bits}))"


@_EXPR.on(Cast)
def _cast(e: Cast, s: _Emitter) -> str:
    return f"({_type(e.dtype, e)})({_EXPR(e.value, s)})"


@_EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: _Emitter) -> str:
    _type(e.dtype, e)
    if e.predicate is not None:
        _not_expr(e, s)
    return s.element(e.buffer, e.indices)


_INFIX = {Add: "+", Sub: "-", Mul: "*", EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">=", And: "&&", Or: "||"}


@_EXPR.on(*_INFIX)
def _infix(e: Add, s: _Emitter) -> str:
    text = f"({_EXPR(e.a, s)} {_INFIX[type(e)]} {_EXPR(e.b, s)})"
    return f"({_type(e.dtype, e)}){text}" if DataType(e.dtype).bits < 32 and e.dtype != "bool" else text


_CALLS = {FloorDiv: "weft_floordiv", FloorMod: "weft_floormod", Min: "weft_min", Max: "weft_max"}


@_EXPR.on(*_CALLS)
def _binary_call(e: FloorDiv | FloorMod | Min | Max, s: _Emitter) -> str:
    if isinstance(e, (FloorDiv, FloorMod)) and DataType(e.dtype).is_float:
        _not_expr(e, s)
    return f"{_CALLS[type(e)]}<{_type(e.dtype, e)}>({_EXPR(e.a, s)}, {_EXPR(e.b, s)})"


@_EXPR.on(Div, Mod)
def _divide(e: Div | Mod, s: _Emitter) -> str:
    a, b = _EXPR(e.a, s), _EXPR(e.b, s)
    if DataType(e.dtype).is_float:
        return f"({a} / {b})" if isinstance(e, Div) else f"fmod{'f' if e.dtype == 'float32' else ''}({a}, {b})"
    return f"{'weft_div' if isinstance(e, Div) else 'weft_mod'}<{_type(e.dtype, e)}>({a}, {b})"


@_EXPR.on(Not)
def _not(e: Not, s: _Emitter) -> str:
    return f"(!{_EXPR(e.a, s)})"


@_EXPR.on(Select)
def _select(e: Select, s: _Emitter) -> str:
    return f"({_EXPR(e.condition, s)} ? {_EXPR(e.true_value, s)} : {_EXPR(e.false_value, s)})"


@_EXPR.on(CallIntrin)
def _call(e: CallIntrin, s: _Emitter) -> str:
    name = (e.op.name if isinstance(e.op, Op) else str(e.op)).removeprefix("tir.")
    if name == "likely":
        return _EXPR(e.args[0], s)
    if name == "if_then_else":
        return f"({_EXPR(e.args[0], s)} ? {_EXPR(e.args[1], s)} : {_EXPR(e.args[2], s)})"
    if name == "tvm_storage_sync":
        return "__syncthreads()"
    name = _RENAMED.get(name, name)
    if name not in _MATH or e.dtype not in ("float32", "float64"):
        raise CodegenError(f"target cuda has no code for intrinsic 'tir.{name}' of {e.dtype} yet", where=e.span)
    args = ", ".join(_EXPR(a, s) for a in e.args)
    return f"{name}{'f' if e.dtype == 'float32' else ''}({args})"


# --- statements -------------------------------------------------------------------------------------------------------


@_STMT.on(SeqStmt)
def _seq(node: SeqStmt, s: _Emitter) -> None:
    for x in node.seq:
        s.nested("", x)


@_STMT.on(BufferStore)
def _store(node: BufferStore, s: _Emitter) -> None:
    _type(node.value.dtype, node)
    if node.predicate is not None:
        _not_stmt(node, s)
    s.emit(f"{s.element(node.buffer, node.indices)} = {_EXPR(node.value, s)};")
    s.stored.add(id(node.buffer.data))


@_STMT.on(LetStmt)
def _let(node: LetStmt, s: _Emitter) -> None:
    s.define(node.var, _EXPR(node.value, s))
    _STMT(node.body, s)


@_STMT.on(AttrStmt, DeclBuffer)
def _around(node: AttrStmt, s: _Emitter) -> None:
    _STMT(node.body, s)


@_STMT.on(Evaluate)
def _evaluate(node: Evaluate, s: _Emitter) -> None:
    if not isinstance(node.value, IntImm):
        s.emit(f"{_EXPR(node.value, s)};")


@_STMT.on(IfThenElse)
def _if(node: IfThenElse, s: _Emitter) -> None:
    s.nested(f"if ({_EXPR(node.condition, s)})", node.then_case)
    if node.else_case is not None:
        s.nested("else", node.else_case)


@_STMT.on(While)
def _while(node: While, s: _Emitter) -> None:
    s.nested(f"while ({_EXPR(node.condition, s)})", node.body)


@_STMT.on(AllocBuffer)
def _alloc(node: AllocBuffer, s: _Emitter) -> None:
    sizes = [as_int(d) for d in node.buffer.shape]
    if node.buffer.scope not in ("local", "global", "", "shared") or None in sizes:
        raise CodegenError(
            f"target cuda cannot allocate '{node.buffer.name}' in a kernel yet",
            where=node.span,
            expected="a buffer of one thread or a shared one, of constant size",
            found=f"scope {node.buffer.scope}, shape {node.buffer.shape}",
        )
    s.pointers[id(node.buffer.data)] = _type(node.buffer.dtype, node)
    shared = node.buffer.scope == "shared"
    size = max(1, math.prod(d for d in sizes if d is not None))
    s.emit(f"{'__shared__ ' if shared else ''}{_type(node.buffer.dtype, node)} {s.fresh(node.buffer.data)}[{size}];")
    _STMT(node.body, s)


@_STMT.on(For)
def _for(node: For, s: _Emitter) -> None:
    low, of = _EXPR(node.min, s), _type(node.loop_var.dtype, node)
    if node.kind is ForKind.THREAD_BINDING:
        assert node.thread_binding is not None
        tag = node.thread_binding.thread_tag
        base = f"({of}){tag}" + ("" if as_int(node.min) == 0 else f" + {low}")
        s.define(node.loop_var, base)
        if tag in s.axes:  # work that the threads share: each does one iteration of it
            s.nested(f"if ({s.names[id(node.loop_var)]} < {_EXPR(node.min + node.extent, s)})", node.body)
            return
        s.axes.add(tag)
        _STMT(node.body, s)
        s.axes.discard(tag)
        return
    if node.kind is ForKind.UNROLLED:
        s.emit("#pragma unroll")
    elif node.kind is not ForKind.SERIAL:
        raise CodegenError(f"a {node.kind.name.lower()} loop on target cuda", where=node.span, help="bind it")
    end, name = _EXPR(node.min + node.extent, s), s.fresh(node.loop_var)
    s.nested(f"for ({of} {name} = {low}; {name} < {end}; ++{name})", node.body)


# --- functions --------------------------------------------------------------------------------------------------------


def emit_function(func: PrimFunc) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them, without the prelude."""
    extents = launch_extents(func)
    s = _Emitter()
    buffers = dict((id(p), b) for p, b in func.buffer_map)
    for p in func.params:
        buffer = buffers.get(id(p))
        var = p if buffer is None else buffer.data
        s.params.append(var)
        s.fresh(var)
        if buffer is not None:
            s.pointers[id(var)] = _type(buffer.dtype, buffer)
    _STMT(func.body, s)
    restrict = " __restrict__" if func.attrs.get("tir.noalias") else ""
    params: list[str] = []
    for p in s.params:
        pointee = s.pointers.get(id(p))
        const_ = "" if id(p) in s.stored else "const "
        of = f"{const_}{pointee}*{restrict}" if pointee else _type(p.dtype, p)
        params.append(f"{of} {s.names[id(p)]}")
    sizes = [as_int(extents[tag]) for tag in AXES[3:] if tag in extents]
    bounds = f" __launch_bounds__({math.prod(n for n in sizes if n)})" if sizes and None not in sizes else ""
    head = f'extern "C" __global__ void{bounds} {func.attrs["global_symbol"]}({", ".join(params)}) {{'
    return "\n".join([head, *s.lines, "}", ""])


def emit_cuda(functions: Mapping[str, PrimFunc]) -> str:
    """Write device functions as one program of CUDA C."""
    return "\n".join([_PRELUDE, *(emit_function(f.with_attr("global_symbol", name)) for name, f in functions.items())])


def emit_kernel(func: PrimFunc) -> Kernel:
    """Lower a function that is one nest of thread-bound loops and write it as CUDA C.

    Parameters
    ----------
    func : PrimFunc
        In block form or lowered, scheduled with ``bind``.

    Raises
    ------
    CodegenError
        When a loop is not bound to threads, or for what target cuda does not express yet.
    """
    symbol = func.attrs.get("global_symbol") or "main"
    host, device = lower_for_gpu(IRModule({symbol: func}), Target("cuda"))
    if len(device) != 1:
        raise CodegenError(
            f"'{symbol}' is not one kernel", found=f"{len(device)} nests of bound loops", where=func.span
        )
    ((name, kernel),) = device.items()
    (call,) = [n for n in walk(host[symbol]) if isinstance(n, CallIntrin) and getattr(n.args[0], "value", "") == name]
    given, params = call.args[1:], len(kernel.params)
    extents = dict(zip(kernel.attrs["tir.kernel_launch_params"], given[params:], strict=True))
    axes = [extents.get(tag, const(1, "int32")) for tag in AXES]
    return Kernel(name, emit_cuda(device), tuple(given[:params]), tuple(axes[:3]), tuple(axes[3:]))
