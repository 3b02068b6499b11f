"""A code generator outside of the compiler: TIR to plain C, a kind of target that only this file knows.

    import examples.c_source.backend
    weft.build(s, [A, B, C], target="csource")

One table says what each statement becomes, one what each expression does. `weft/target/c` is the whole house that
stands on this plan: other error messages, symbolic strides, arithmetic that C leaves open, memory from the heap.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm_ffi.libinfo

import weft
from weft import error, ir, runtime, tir
from weft.tir import transform as t
from weft.tir.pipeline import host_phases, is_lowered

TYPES = {
    "bool": "uint8_t",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "uint16": "uint16_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "handle": "void*",
}
_TENSOR = "data shape strides ndim dtype.code dtype.bits dtype.lanes byte_offset"
MEMBERS = {  # what MakePackedAPI reads: fields of tensors and of packed values, elements of shapes
    **{i: f"((DLTensor*){{0}})->{field}" for i, field in enumerate(_TENSOR.split(), 1)},
    10: "((DLTensor*){0})->device.device_type",
    13: "((TVMFFIAny*){0})[{1}].type_index",
    15: "*({2}*)&((TVMFFIAny*){0})[{1}].v_int64",
    17: "(({2}*){0})[{1}]",
}
PRELUDE = """#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>
#define FLOORDIV(a, b) ((a) / (b) - ((a) % (b) != 0 && ((a) % (b) < 0) != ((b) < 0)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CHECK(ok, kind, ...) \\
  if (!(ok)) { char text[512]; snprintf(text, 512, __VA_ARGS__); TVMFFIErrorSetRaisedFromCStr(kind, text); return -1; }
"""


class Emitter:
    """Lines of C, and the names of variables."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}

    def name(self, var: Any) -> str:
        """The name of a variable; a number makes it unique."""
        clean = "".join(c if c.isalnum() else "_" for c in var.name)
        return self.names.setdefault(id(var), f"{clean}_{len(self.names)}")

    def block(self, head: str, body: Any) -> None:
        """A statement in braces."""
        self.lines.append(head + " {")
        STMT(body, self)
        self.lines.append("}")

    def element(self, buffer: Any, indices: Sequence[Any]) -> str:
        """An element in memory."""
        return f"(({c_type(buffer.dtype)}*){self.name(buffer.data)})[{EXPR(indices[0], self)}]"


def c_type(dtype: str) -> str:
    """The type of a value."""
    if str(dtype) not in TYPES:
        raise error.CodegenError(f"csource has no type '{dtype}'", expected=", ".join(TYPES))
    return TYPES[str(dtype)]


def quoted(text: str) -> str:
    """A string of C; TIR's are plain."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def missing(node: Any, s: Emitter) -> Any:
    """Say that there is no rule."""
    raise error.CodegenError(f"csource has no code for {type(node).__name__}", where=node.span, found=str(node)[:80])


STMT = ir.Dispatch("example: C statement", (tir.Stmt,), default=missing)
EXPR = ir.Dispatch("example: C expression", (ir.PrimExpr,), default=missing)


# --- statements -------------------------------------------------------------------------------------------------------


@STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: Emitter) -> None:
    for part in node.seq:
        STMT(part, s)


@STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: Emitter) -> None:
    s.lines.append(f"{s.element(node.buffer, node.indices)} = {EXPR(node.value, s)};")


@STMT.on(tir.For)
def _for(node: tir.For, s: Emitter) -> None:
    i, of = s.name(node.loop_var), c_type(node.loop_var.dtype)
    low, high = EXPR(node.min, s), EXPR(node.min + node.extent, s)
    s.block(f"for ({of} {i} = {low}; {i} < {high}; ++{i})", node.body)


@STMT.on(tir.IfThenElse)
def _if(node: tir.IfThenElse, s: Emitter) -> None:
    s.block(f"if ({EXPR(node.condition, s)})", node.then_case)
    if node.else_case is not None:
        s.block("else", node.else_case)


@STMT.on(tir.While)
def _while(node: tir.While, s: Emitter) -> None:
    s.block(f"while ({EXPR(node.condition, s)})", node.body)


@STMT.on(tir.LetStmt)
def _let(node: tir.LetStmt, s: Emitter) -> None:
    value = EXPR(node.value, s)
    s.lines.append(f"{c_type(node.var.dtype)} {s.name(node.var)} = {value};")
    STMT(node.body, s)


@STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: Emitter) -> None:
    size = EXPR(node.buffer.shape[0], s)
    s.lines.append(f"{c_type(node.buffer.dtype)} {s.name(node.buffer.data)}[{size}];")
    STMT(node.body, s)


@STMT.on(tir.AttrStmt, tir.DeclBuffer)
def _around(node: Any, s: Emitter) -> None:
    STMT(node.body, s)


@STMT.on(tir.AssertStmt)
def _assert(node: tir.AssertStmt, s: Emitter) -> None:
    text, *values = node.message.args if isinstance(node.message, ir.CallIntrin) else (node.message,)
    numbers = "".join(f", (long long)({EXPR(v, s)})" for v in values)
    s.lines.append(f"CHECK({EXPR(node.condition, s)}, {quoted(node.error_kind)}, {quoted(text.value)}{numbers})")
    STMT(node.body, s)


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    s.lines.append(f"(void){EXPR(node.value, s)};")


# --- expressions ------------------------------------------------------------------------------------------------------


@EXPR.on(ir.Var)
def _var(e: ir.Var, s: Emitter) -> str:
    return s.name(e)


@EXPR.on(ir.IntImm, ir.FloatImm)
def _number(e: Any, s: Emitter) -> str:
    return f"(({c_type(e.dtype)}){str(e.value).replace('inf', 'INFINITY').replace('nan', 'NAN')})"


@EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Emitter) -> str:
    return f"(({c_type(e.dtype)}){EXPR(e.value, s)})"


@EXPR.on(tir.BufferLoad)
def _load(e: tir.BufferLoad, s: Emitter) -> str:
    return s.element(e.buffer, e.indices)


INFIX = {
    ir.Add: "+",
    ir.Sub: "-",
    ir.Mul: "*",
    ir.Div: "/",
    ir.Mod: "%",
    ir.EQ: "==",
    ir.NE: "!=",
    ir.LT: "<",
    ir.LE: "<=",
    ir.GT: ">",
    ir.GE: ">=",
    ir.And: "&&",
    ir.Or: "||",
}


@EXPR.on(*INFIX)
def _infix(e: Any, s: Emitter) -> str:
    if isinstance(e, ir.Mod) and ir.DataType(e.dtype).is_float:
        return f"fmod({EXPR(e.a, s)}, {EXPR(e.b, s)})"
    return f"({EXPR(e.a, s)} {INFIX[type(e)]} {EXPR(e.b, s)})"


@EXPR.on(ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max)
def _of_two(e: Any, s: Emitter) -> str:
    a, b = EXPR(e.a, s), EXPR(e.b, s)
    if isinstance(e, ir.FloorMod):
        return f"({a} - FLOORDIV({a}, {b}) * {b})"
    return f"{type(e).__name__.upper()}({a}, {b})"


@EXPR.on(ir.Not)
def _not(e: ir.Not, s: Emitter) -> str:
    return f"!({EXPR(e.a, s)})"


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: Emitter) -> str:
    return f"({EXPR(e.condition, s)} ? {EXPR(e.true_value, s)} : {EXPR(e.false_value, s)})"


@EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: Emitter) -> str:
    name, args = e.op.name.removeprefix("tir."), [EXPR(a, s) for a in e.args]
    if name == "likely":
        return args[0]
    if name == "tvm_struct_get":
        member = MEMBERS[int(e.args[2].value)].format(args[0], args[1], c_type(e.dtype))
        return f"(({c_type(e.dtype)}){member})"
    if name == "isnullptr":
        return f"(!{args[0]})"
    if name == "handle_add_byte_offset":
        return f"((void*)((char*){args[0]} + {args[1]}))"
    if name == "if_then_else":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if ir.DataType(e.dtype).is_float and name in tir.intrin.INTRINSICS:
        return f"{name}{'f' if str(e.dtype) == 'float32' else ''}({', '.join(args)})"  # as math.h names it
    return missing(e, s)


# --- functions --------------------------------------------------------------------------------------------------------


def lower(func: tir.PrimFunc) -> tir.PrimFunc:
    """Bring a function to flat loops over scalars, by the compiler's own passes."""
    name = func.attrs["global_symbol"]
    passes = [] if is_lowered(func) else [p for _, p in host_phases()]
    passes += [t.lower_intrin(target="c"), t.scalarize(), t.simplify(), t.make_packed_api()]
    return ir.Sequential(passes)(ir.IRModule({name: func}))[name]  # type: ignore[return-value]


def function(func: tir.PrimFunc) -> str:
    """A function that ``MakePackedAPI`` has made one of the calling convention of tvm-ffi."""
    s = Emitter()
    types = ("void*", "const TVMFFIAny*", "int32_t", "TVMFFIAny*")
    params = ", ".join(f"{of} {s.name(p)}" for of, p in zip(types, func.params, strict=True))
    STMT(func.body, s)
    return "\n".join([f"int {func.attrs['global_symbol']}({params}) {{", *s.lines, "return 0;", "}", ""])


def source(mod: ir.IRModule) -> str:
    """The functions of a module as a file of C."""
    return PRELUDE + "\n".join(function(lower(f)) for _, f in mod.items() if isinstance(f, tir.PrimFunc))


def build(mod: ir.IRModule, target: Any) -> runtime.Module:
    """Compile the functions of a module; the system's compiler does the rest."""
    names = [f.attrs["global_symbol"] for _, f in mod.items()]
    with tempfile.TemporaryDirectory() as folder:
        c, o, so = (Path(folder, f"module.{suffix}") for suffix in ("c", "o", "so"))
        c.write_text(source(mod))
        includes = [f"-I{p}" for p in tvm_ffi.libinfo.include_paths()]
        subprocess.run(["cc", "-O2", "-fPIC", "-w", *includes, "-c", c, "-o", o], check=True)
        subprocess.run(["cc", "-shared", o, "-o", so, "-lm"], check=True)
        library, objects = ctypes.CDLL(str(so)), [o.read_bytes()]
    addresses = [ctypes.cast(getattr(library, f"__tvm_ffi_{n}"), ctypes.c_void_p).value or 0 for n in names]
    return runtime.jit_module(names, addresses, objects, library)


weft.target.register_target_kind(
    weft.target.TargetKind(
        "csource", build=build, source=lambda mod, target, fmt: source(mod), source_format="c", options=()
    ),
    override=True,
)
