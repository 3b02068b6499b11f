"""The bodies of TIR functions as C: a rule for each kind of statement.

Loops of every kind run in order on one thread; the C compiler vectorizes. Not expressed, with an error that says so:
vector expressions, 16-bit floats, tensors as arguments of packed functions, external functions, GPU threads.
"""

from __future__ import annotations

from weft import tir
from weft.error import CodegenError
from weft.ir import CallIntrin, DataType, Dispatch, IntImm, StringImm, Var, as_int, cast
from weft.target.c.expr import EXPR, Emitter, memory_type, value_type

__all__ = ["STMT"]


def _not_stmt(node: tir.Stmt, s: Emitter) -> None:
    raise CodegenError(f"target c has no code for {type(node).__name__}", where=node.span)


STMT = Dispatch("C statement", (tir.Stmt,), default=_not_stmt)


def _nested(s: Emitter, opening: str, body: tir.Stmt) -> None:
    """Emit a statement in braces."""
    s.emit(opening + " {")
    s.depth += 1
    STMT(body, s)
    s.depth -= 1
    s.emit("}")


@STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: Emitter) -> None:
    for x in node.seq:
        STMT(x, s)


@STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: Emitter) -> None:
    if node.predicate is not None:
        _not_stmt(node, s)
    value_type(node.value.dtype, node)
    s.emit(f"{s.element(node.buffer, node.indices)} = {EXPR(node.value, s)};")


@STMT.on(tir.LetStmt)
def _let(node: tir.LetStmt, s: Emitter) -> None:
    value = EXPR(node.value, s)
    s.emit(f"{value_type(node.var.dtype, node)} {s.fresh(node.var)} = {value};")
    STMT(node.body, s)


@STMT.on(tir.AttrStmt, tir.DeclBuffer)
def _around(node: tir.AttrStmt, s: Emitter) -> None:
    STMT(node.body, s)


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    if not isinstance(node.value, IntImm):
        s.emit(f"(void){EXPR(node.value, s)};")


@STMT.on(tir.IfThenElse)
def _if(node: tir.IfThenElse, s: Emitter) -> None:
    _nested(s, f"if ({EXPR(node.condition, s)})", node.then_case)
    if node.else_case is not None:
        _nested(s, "else", node.else_case)


@STMT.on(tir.While)
def _while(node: tir.While, s: Emitter) -> None:
    _nested(s, f"while ({EXPR(node.condition, s)})", node.body)


@STMT.on(tir.AssertStmt)
def _assert(node: tir.AssertStmt, s: Emitter) -> None:
    parts = node.message.args if isinstance(node.message, CallIntrin) else (node.message,)
    text = parts[0].value if isinstance(parts[0], StringImm) else str(parts[0])
    s.leave(EXPR(node.condition, s), str(node.error_kind), text, [EXPR(v, s) for v in parts[1:]])
    STMT(node.body, s)


@STMT.on(tir.For)
def _for(node: tir.For, s: Emitter) -> None:
    if node.kind is tir.ForKind.THREAD_BINDING:
        raise CodegenError("a loop bound to device threads cannot run on target c", where=node.span,
                           found=node.loop_var.name, help="use target 'cuda'")  # fmt: skip
    low, end, of = EXPR(node.min, s), EXPR(node.min + node.extent, s), value_type(node.loop_var.dtype, node)
    i = s.fresh(node.loop_var)
    stop = s.fresh(Var(f"{node.loop_var.name}_end", node.loop_var.dtype))
    _nested(s, f"for ({of} {i} = {low}, {stop} = {end}; {i} < {stop}; ++{i})", node.body)


@STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: Emitter) -> None:
    buffer, of = node.buffer, memory_type(node.buffer.dtype, node)
    size, itemsize = as_int(buffer.shape[0]), DataType(buffer.dtype).itemsize
    s.pointee[buffer.data] = of
    if size is not None and size * itemsize <= s.machine.stack_buffer_bytes:
        s.emit(f"{of} {s.fresh(buffer.data)}[{max(size, 1)}] __attribute__((aligned(64)));")
        STMT(node.body, s)
        return
    count = EXPR(cast("int64", buffer.shape[0]), s)
    name = s.fresh(buffer.data)
    s.emit(f"{of}* {name} = ({of}*)weft_alloc({count} * {itemsize});")
    s.leave(name, "MemoryError", f"out of memory for the workspace '{buffer.name}'")
    s.cleanup.append(name)
    STMT(node.body, s)
    s.emit(f"free({s.cleanup.pop()});")
