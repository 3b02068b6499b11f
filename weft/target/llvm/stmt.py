"""Emission of statements: loops, conditions, stores, allocations."""

from __future__ import annotations

from collections.abc import Callable

from weft import error, tir
from weft.ir import CallIntrin, DataType, Dispatch, IntImm, PrimExpr, Range, StringImm, Var, as_int
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.memory import element_pointer, store
from weft.target.llvm.stream import fence, streamed_buffers, versions
from weft.target.llvm.support import allocate_workspace, free_workspace, raise_error
from weft.target.llvm.types import llvm_type, memory_type


class _Statements(Dispatch):
    """A table in which a module's own rules come first; an error without a place gets that of its statement."""

    __slots__ = ()

    def __call__(self, node: tir.Stmt, s: FunctionEmitter) -> None:
        own = s.module.statements.get(type(node))
        try:
            return own(node, s) if own is not None else super().__call__(node, s)
        except error.CodegenError as e:
            if e.where is None:
                e.where = node.span
            raise


# Lowering has dissolved blocks and realized buffers.
STMT = _Statements("LLVM statement", covers=(tir.Stmt,), leaves_out=(tir.Block, tir.BlockRealize, tir.BufferRealize))

LOOPS: dict[tir.ForKind, Callable[[tir.For, FunctionEmitter], bool]] = {}
"""Kind of loop to what emits it; a result of False asks for a plain loop."""

_MESSAGE_BYTES = 512

_WHOLE = 16
"""Iterations below which a loop of an unknown extent is the rest of one: there is nothing to make vectors of."""


@STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: FunctionEmitter) -> None:
    for x in node.seq:
        STMT(x, s)


@STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: FunctionEmitter) -> None:
    store(s, node.buffer, node.indices[0], node.value, node.predicate)
    s.forget()
    if DataType(node.value.dtype).lanes > 1:
        s.vector_stores += 1
    else:
        s.scalar_stores += 1


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: FunctionEmitter) -> None:
    if not isinstance(node.value, IntImm):
        s.expr(node.value)
        s.forget()


@STMT.on(tir.Prefetch)
def _prefetch(node: tir.Prefetch, s: FunctionEmitter) -> None:
    if len(node.bounds) != 1:
        raise error.CodegenError("a prefetch needs a flat buffer", where=node.span, found=str(node.buffer.name))
    s.module.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    s.emit(
        f"call void @llvm.prefetch.p0(ptr {element_pointer(s, node.buffer, node.bounds[0].min)}, i32 0, i32 3, i32 1)"
    )


@STMT.on(tir.LetStmt)
def _let(node: tir.LetStmt, s: FunctionEmitter) -> None:
    s.forget(names=True)
    (s.pointers if node.var.dtype == "handle" else s.env)[node.var] = s.expr(node.value)
    if DataType(node.var.dtype).is_integer and DataType(node.var.dtype).lanes == 1:
        s.analyzer.bind(node.var, node.value, allow_override=True)
    STMT(node.body, s)


@STMT.on(tir.AttrStmt)
def _attr(node: tir.AttrStmt, s: FunctionEmitter) -> None:
    STMT(node.body, s)


@STMT.on(tir.DeclBuffer)
def _decl(node: tir.DeclBuffer, s: FunctionEmitter) -> None:
    STMT(node.body, s)


@STMT.on(tir.IfThenElse)
def _if(node: tir.IfThenElse, s: FunctionEmitter) -> None:
    condition = s.expr(node.condition)
    then, end = s.label("then"), s.label("endif")
    otherwise = s.label("else") if node.else_case is not None else end
    s.branch(condition, then, otherwise)
    with s.scope(), s.analyzer.constraint_scope(node.condition):
        s.start(then)
        STMT(node.then_case, s)
        s.jump(end)
    if node.else_case is not None:
        with s.scope():
            s.start(otherwise)
            STMT(node.else_case, s)
            s.jump(end)
    s.start(end)
    s.forget()


@STMT.on(tir.AssertStmt)
def _assert(node: tir.AssertStmt, s: FunctionEmitter) -> None:
    ok, bad = s.label("ok"), s.label("bad")
    s.branch(s.expr(node.condition), ok, bad, ", !prof !0")
    with s.scope():
        s.start(bad)
        s.leave(s.effect(raise_error(s.module, s.module.string(node.error_kind), _message(node.message, s))))
    s.start(ok)
    STMT(node.body, s)


def _message(message: PrimExpr, s: FunctionEmitter) -> str:
    """Return the symbol or register of a message; that of ``tir.message`` is written when it is needed."""
    if not isinstance(message, CallIntrin):
        return s.module.string(message.value if isinstance(message, StringImm) else str(message))
    text, *values = message.args
    assert isinstance(text, StringImm)
    size = s.module.size_type
    s.module.declare("snprintf", f"declare i32 @snprintf(ptr, {size}, ptr, ...)")
    room = s.message = s.message or s.alloca(f"[{_MESSAGE_BYTES} x i8]", "message")
    numbers = "".join(f", i64 {s.expr(v)}" for v in values)
    s.effect(
        f"call i32 (ptr, {size}, ptr, ...) @snprintf(ptr {room}, {size} {_MESSAGE_BYTES}, "
        f"ptr {s.module.string(text.value)}{numbers})"
    )
    return room


@STMT.on(tir.While)
def _while(node: tir.While, s: FunctionEmitter) -> None:
    head, body, end = s.label("while"), s.label("body"), s.label("endwhile")
    s.jump(head)
    with s.scope():
        s.start(head)
        s.forget()
        s.branch(s.expr(node.condition), body, end)
        s.start(body)
        s.forget()
        STMT(node.body, s)
        s.jump(head)
    s.start(end)
    s.forget()


def _device_threads(node: tir.For, s: FunctionEmitter) -> bool:
    raise error.CodegenError(
        "a loop bound to device threads cannot run on target llvm",
        where=node.span,
        found=node.loop_var.name,
        help="use target 'cuda'",
    )


LOOPS[tir.ForKind.THREAD_BINDING] = _device_threads


@STMT.on(tir.For)
def _for(node: tir.For, s: FunctionEmitter) -> None:
    s.analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent), allow_override=True)
    streamed = streamed_buffers(node, s)
    if streamed:
        _versions(node, streamed, s)
    else:
        _one_version(node, s)


def _one_version(node: tir.For, s: FunctionEmitter) -> None:
    special = LOOPS.get(node.kind)
    if special is not None and special(node, s):
        return
    low, extent = s.expr(node.min), as_int(node.extent)
    if as_int(node.min) is not None and extent is not None and extent <= 0:
        return
    rest = extent is None and s.analyzer.const_int_bound(node.extent).max_value < _WHOLE
    high = s.expr(node.min + node.extent)
    emit_loop(node.loop_var, low, high, lambda: STMT(node.body, s), s, extent is not None, rest)


def _versions(node: tir.For, buffers: list[Var], s: FunctionEmitter) -> None:
    """Emit a loop twice: storing past the caches, for aligned buffers, and as usual."""
    stream, usual, end = s.label("stream"), s.label("usual"), s.label("endstream")
    s.branch(versions(buffers, s), stream, usual)
    for label, chosen in ((stream, frozenset(buffers)), (usual, frozenset[Var]())):
        with s.scope():
            s.start(label)
            s.streamed = chosen
            _one_version(node, s)
            s.streamed = frozenset()
            if chosen:
                fence(s)
            s.jump(end)
    s.start(end)
    s.forget()


def emit_loop(
    var: Var,
    low: str,
    high: str,
    body: Callable[[], None],
    s: FunctionEmitter,
    entered: bool = False,
    rest: bool = False,
) -> None:
    """Emit a loop tested at its end, entered only if there is an iteration (which `entered` says is known).

    A loop over scalars asks for LLVM's whole pipeline, which would make vectors of it, unless it is a mere `rest`.
    """
    t = llvm_type(var.dtype)
    head, end = s.label("for"), s.label("endfor")
    before, stores = s.block, (s.loops, s.scalar_stores, s.vector_stores)
    ahead: list[str] = []
    s.lines.append(ahead)
    if entered:
        s.jump(head)
    else:
        s.branch(s.value(f"icmp slt {t} {low}, {high}"), head, end)
    with s.loop(ahead):
        s.start(head)
        s.forget(names=var in s.env)
        index, following = s.fresh("i"), s.fresh("next")
        slot = len(s.lines)
        s.lines.append("")
        s.env[var] = index
        body()
        s.emit(f"{following} = add nsw {t} {index}, 1")
        again = s.value(f"icmp slt {t} {following}, {high}")
        s.lines[slot] = f"  {index} = phi {t} [ {low}, %{before} ], [ {following}, %{s.block} ]"
        s.branch(again, head, end)
    s.start(end)
    s.forget()
    loops, scalar, vector = stores
    if not rest and s.loops == loops and s.scalar_stores > scalar and s.vector_stores == vector:
        s.module.has_scalar_loop = True
    s.loops += 1


@STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: FunctionEmitter) -> None:
    buffer = node.buffer
    size, itemsize = as_int(buffer.shape[0]), DataType(buffer.dtype).itemsize
    machine = s.module.target.machine
    usual = machine.local_buffer_bytes if buffer.scope == "local" else machine.stack_buffer_bytes
    limit = node.annotations.get("stack_bytes", usual)
    if size is not None and size * itemsize <= limit:
        s.pointers[buffer.data] = s.alloca(f"[{max(size, 1)} x {memory_type(buffer.dtype)}], align 64")
        STMT(node.body, s)
        return
    count = s.expr(buffer.shape[0])
    if buffer.shape[0].dtype != "int64":
        count = s.value(f"sext {llvm_type(buffer.shape[0].dtype)} {count} to i64")
    pointer = allocate_workspace(s, s.value(f"mul i64 {count}, {itemsize}"))
    s.pointers[buffer.data] = pointer
    s.cleanup.append(pointer)
    STMT(node.body, s)
    s.cleanup.pop()
    free_workspace(s, pointer)


def finish(s: FunctionEmitter, header: str) -> str:
    """Put a function's header, allocas and lines together."""
    lines = (x for line in s.lines for x in ([line] if isinstance(line, str) else line))
    return "\n".join([header + " {", "entry:", *s.allocas, *lines, "}"])
