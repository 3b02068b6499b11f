"""The bodies of TIR functions as C: a rule for each kind of statement.

Loops of every kind run in order on one thread; the C compiler vectorizes. Not expressed, with an error that says so:
vector expressions, 16-bit floats, tensors as arguments of packed functions, external functions, GPU threads.
"""

from weft import error, ir, tir
from weft.target import clike
from weft.target.c.emitter import HostEmitter

STMT = ir.Dispatch("C statement", (tir.Stmt,), default=clike.STMT.default, extends=clike.STMT)


@STMT.on(tir.AssertStmt)
def _assert(node: tir.AssertStmt, s: HostEmitter) -> None:
    parts = node.message.args if isinstance(node.message, ir.CallIntrin) else (node.message,)
    text = parts[0].value if isinstance(parts[0], ir.StringImm) else str(parts[0])
    s.leave(s.expr(node.condition), str(node.error_kind), text, [s.expr(v) for v in parts[1:]])
    s.stmt(node.body)


@STMT.on(tir.For)
def _for(node: tir.For, s: HostEmitter) -> None:
    if node.kind is tir.ForKind.THREAD_BINDING:
        raise error.CodegenError(
            "a loop bound to device threads cannot run on target c",
            where=node.span,
            found=node.loop_var.name,
            help="use target 'cuda'",
        )
    low, end, of = s.expr(node.min), s.expr(node.min + node.extent), s.type_of(node.loop_var.dtype, node)
    i = s.fresh(node.loop_var)
    stop = s.fresh(ir.Var(f"{node.loop_var.name}_end", node.loop_var.dtype))
    s.nested(f"for ({of} {i} = {low}, {stop} = {end}; {i} < {stop}; ++{i})", node.body)


@STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: HostEmitter) -> None:
    buffer, of = node.buffer, s.memory_type(node.buffer.dtype, node)
    size, itemsize = ir.as_int(buffer.shape[0]), ir.DataType(buffer.dtype).itemsize
    s.pointers[buffer.data] = of
    if size is not None and size * itemsize <= s.machine.stack_buffer_bytes:
        s.emit(f"{of} {s.fresh(buffer.data)}[{max(size, 1)}] __attribute__((aligned(64)));")
        s.stmt(node.body)
        return
    count = s.expr(ir.cast("int64", buffer.shape[0]))
    name = s.fresh(buffer.data)
    s.emit(f"{of}* {name} = ({of}*)weft_alloc({count} * {itemsize});")
    s.leave(name, "MemoryError", f"out of memory for the workspace '{buffer.name}'")
    s.cleanup.append(name)
    s.stmt(node.body)
    s.emit(f"free({s.cleanup.pop()});")
