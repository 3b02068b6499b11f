"""WGSL beside what languages like C share: declarations, choices, loops, and numbers of 32 bits alone.

WGSL has neither ``?:`` nor a comma operator: a choice is ``select``, whose sides are both computed (an access outside
of a buffer gives some value and does not trap), and what ``Let`` names stands in a line before. Integers of 64 bits
are two words in memory; as values they are indices, of which 32 bits are enough for any buffer, and
:func:`check_wide` refuses what could need more. A number of 16 bits is 16 bits of memory, computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from weft import error, ir, tir
from weft.target import clike
from weft.target.gpu import AXES

TYPES = {"bool": "bool", "int32": "i32", "int64": "i32", "uint32": "u32", "float16": "f32", "float32": "f32"}
TO_BITS = {"float32": "bitcast<u32>({0})", "int32": "bitcast<u32>({0})", "uint32": "{0}"}
FROM_BITS = {"float32": "bitcast<f32>({0})", "int32": "bitcast<i32>({0})", "uint32": "{0}"}
EXPR = ir.Dispatch("WGSL expression", (ir.PrimExpr,), default=clike.EXPR.default, extends=clike.EXPR)
STMT = ir.Dispatch("WGSL statement", (tir.Stmt,), default=clike.DEVICE_STMT.default, extends=clike.DEVICE_STMT)


def _wide_element(e: object, s: Emitter) -> str | None:
    """The two words of an element of 64 bits that an expression loads."""
    if isinstance(e, tir.BufferLoad) and e.dtype == "int64" and e.predicate is None:
        return s.element(e.buffer, e.indices)
    return None


@EXPR.on(ir.IntImm)
def _int(e: ir.IntImm, s: Emitter) -> str:
    of = s.type_of(e.dtype, e)
    if of == "bool":
        return "true" if e.value else "false"
    if of == "i32" and not -(1 << 31) <= e.value < 1 << 31:
        raise error.CodegenError("target webgpu has integers of 32 bits", where=e.span, found=str(e.value))
    return f"{of}({e.value})"


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: Emitter) -> str:
    if math.isfinite(e.value):
        return s.convert(e.dtype, f"{float(e.value)!r}f", e)
    bits = 0x7FC00000 if math.isnan(e.value) else 0x7F800000 if e.value > 0 else 0xFF800000
    return s.convert(e.dtype, f"weft_float(0x{bits:x}u)", e)  # no constant of WGSL may be infinite


@EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Emitter) -> str:
    words = _wide_element(e.value, s)
    if words is not None and e.dtype != "int64":
        of = s.type_of(e.dtype, e)
        form = {"bool": "any({0} != vec2<u32>())", "f32": "weft_float_of_words({0})"}.get(of, f"{of}({{0}}.x)")
        return s.convert(e.dtype, form.format(words), e)
    if ir.DataType(e.value.dtype).is_float and e.dtype == "int64":
        raise s.refuse(e)
    return clike.EXPR(e, s)


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: Emitter) -> str:
    return f"select({s.expr(e.false_value)}, {s.expr(e.true_value)}, {s.expr(e.condition)})"


@EXPR.on(ir.Let)
def _let(e: ir.Let, s: Emitter) -> str:
    s.define(e.var, s.expr(e.value))
    return s.expr(e.body)


@STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: Emitter) -> None:
    words = _wide_element(node.value, s)
    if words is None or node.buffer.dtype != "int64" or node.predicate is not None:
        return clike.DEVICE_STMT(node, s)
    s.emit(f"{s.element(node.buffer, node.indices)} = {words};")
    s.stored.add(node.buffer.data)


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    if not isinstance(node.value, ir.IntImm):
        text = s.expr(node.value)
        s.emit(f"{text};" if node.value.dtype in ("void", "handle") or text.endswith("Barrier()") else f"_ = {text};")


@STMT.on(tir.While)
def _while(node: tir.While, s: Emitter) -> None:
    s.emit("loop {")
    s.depth += 1
    s.emit(f"if (!{s.expr(node.condition)}) {{ break; }}")
    s.stmt(node.body)
    s.depth -= 1
    s.emit("}")


@STMT.on(tir.For)
def _for(node: tir.For, s: Emitter) -> None:
    if node.kind is tir.ForKind.THREAD_BINDING:
        return clike.DEVICE_STMT(node, s)
    low, end, of = s.expr(node.min), s.expr(node.min + node.extent), s.type_of(node.loop_var.dtype, node)
    name = s.fresh(node.loop_var)
    s.nested(f"for (var {name}: {of} = {low}; {name} < {end}; {name}++)", node.body)


def _barrier(e: ir.CallIntrin, s: Emitter) -> str:
    if getattr(e.args[0], "value", "") == "warp":
        raise s.refuse(e)
    s.emit("storageBarrier();")
    return "workgroupBarrier()"


def _reinterpret(e: ir.CallIntrin, s: Emitter) -> str:
    source, result = str(e.args[0].dtype), str(e.dtype)
    if source not in TO_BITS or result not in FROM_BITS:
        raise s.refuse(e)
    return FROM_BITS[result].format(TO_BITS[source].format(s.expr(e.args[0])))


class Emitter(clike.DeviceEmitter):
    """The state of emission of a kernel."""

    target = "webgpu"
    expressions = EXPR
    statements = STMT
    types = TYPES
    memory_types: ClassVar = {"int64": "vec2<u32>", "float16": "f16"}
    loads: ClassVar = {"int64": "weft_from_words({0})", "float16": "f32({0})"}
    stores: ClassVar = {"int64": "weft_to_words({0})", "float16": "f16({0})"}
    conversions: ClassVar = {"float16": "weft_float16"}
    computed_as: ClassVar = {"float16": "float32"}
    float32_suffix = ""
    thread_axes: ClassVar = {
        tag: f"(weft_block.{tag[-1]} + weft_args.base.{tag[-1]})"
        if tag.startswith("block")
        else f"weft_thread.{tag[-1]}"
        for tag in AXES
    }
    libm = frozenset(
        (
            "exp exp2 log log2 sqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil trunc "
            "nearbyint fabs fma atan2 pow fmod copysign hypot"
        ).split()
    )
    renamed: ClassVar = {
        "nearbyint": "round",
        "fabs": "abs",
        "copysign": "weft_with_sign",
        "fmod": "weft_mod_float32",
        "hypot": "weft_hypot_float32",
        "pow": "weft_pow_float32",
    }
    forms: ClassVar = {"likely": "{0}", "if_then_else": "select({2}, {1}, {0})"}
    special: ClassVar = {"tvm_storage_sync": _barrier, "reinterpret": _reinterpret}

    def __init__(self, number: int) -> None:
        super().__init__()
        self.prefix = f"k{number}_"  # names outside of functions are those of all kernels

    def fresh(self, var: ir.Var, prefix: str = "") -> str:
        """Name a variable."""
        return super().fresh(var, prefix or self.prefix)

    def cast(self, of: str, text: str) -> str:
        """A value as one of a type of the language."""
        return f"{of}({text})"

    def define(self, var: ir.Var, value: str) -> None:
        """Declare a variable with its value."""
        of = self.type_of(var.dtype, var)
        self.emit(f"let {self.fresh(var)}: {of} = {value};")

    def allocate(self, buffer: tir.Buffer, of: str, size: int) -> None:
        """Declare a buffer of so many elements of a type: a thread's own, or one that a group shares."""
        declared = f"{self.fresh(buffer.data)}: array<{of}, {size}>;"
        if buffer.scope.startswith("shared"):
            self.declared.append(f"var<workgroup> {declared}")
        else:
            self.emit(f"var {declared}")

    def element(self, buffer: tir.Buffer, indices: Sequence[ir.PrimExpr]) -> str:
        """An element of a flat buffer, to read or to assign."""
        of = self.memory_type(buffer.dtype, buffer)
        if len(indices) != 1 or self.pointers.get(buffer.data) != of:
            raise error.CodegenError(
                f"target webgpu cannot read '{buffer.name}' as another type",
                where=buffer.span,
                expected=str(self.pointers.get(buffer.data)),
                found=of,
            )
        return f"{self.name(buffer.data)}[{self.expr(indices[0])}]"


def check_wide(func: tir.PrimFunc) -> None:
    """Refuse arithmetic in int64 that is no index, and of which bounds do not show that it fits 32 bits.

    Raises
    ------
    CodegenError
        The expression.
    """
    for node in ir.walk(func.body):
        if isinstance(node, (tir.BufferStore, tir.LetStmt)):
            _check_wide(node.value, compared=False)
        elif isinstance(node, (tir.IfThenElse, tir.While)):
            _check_wide(node.condition, compared=False)


def _check_wide(e: ir.PrimExpr, compared: bool) -> None:
    if isinstance(e, tir.BufferLoad):
        return
    chooses = isinstance(e, (ir.Min, ir.Max)) or getattr(getattr(e, "op", None), "name", "") == "tir.if_then_else"
    computes = e.dtype == "int64" and isinstance(e, (ir.BinaryOp, ir.CallIntrin)) and not chooses
    if computes and not (compared and not ir.find(e, tir.BufferLoad)):
        raise error.CodegenError(
            "target webgpu has integers of 32 bits",
            where=e.span,
            expected="values of int64 that are indices, or that bounds show to fit",
            found=str(e),
            help="compute in int32, or give the dimensions bounds",
        )
    for child in ir.children(e):
        if isinstance(child, ir.PrimExpr):
            _check_wide(child, isinstance(e, ir.CmpOp) or (compared and e.dtype == "int64"))
