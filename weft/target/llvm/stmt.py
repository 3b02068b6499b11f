"""Emission of statements: loops, conditions, stores, allocations, parallel regions."""

from __future__ import annotations

from typing import Any

from weft.error import CodegenError
from weft.ir import DataType, Dispatch, IntImm, Range, StringImm, Var, as_int, walk
from weft.target.llvm.emitter import FunctionEmitter, store
from weft.target.llvm.types import llvm_type, memory_type
from weft.tir import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    While,
)

__all__ = ["STMT"]

STMT = Dispatch(
    "LLVM statement",
    covers=(
        AllocBuffer,
        AssertStmt,
        AttrStmt,
        BufferStore,
        DeclBuffer,
        Evaluate,
        For,
        IfThenElse,
        LetStmt,
        SeqStmt,
        While,
    ),
)

_STACK_LIMIT = 16384  # bytes of a constant-size buffer that may live on the stack


@STMT.on(SeqStmt)
def _seq(node: SeqStmt, s: FunctionEmitter) -> None:
    for x in node.seq:
        STMT(x, s)


@STMT.on(BufferStore)
def _store(node: BufferStore, s: FunctionEmitter) -> None:
    store(s, node.buffer, node.indices[0], node.value, node.predicate)


@STMT.on(Evaluate)
def _evaluate(node: Evaluate, s: FunctionEmitter) -> None:
    if not isinstance(node.value, IntImm):
        s.expr(node.value)


@STMT.on(LetStmt)
def _let(node: LetStmt, s: FunctionEmitter) -> None:
    s.env[id(node.var)] = s.expr(node.value)
    if DataType(node.var.dtype).is_integer and DataType(node.var.dtype).lanes == 1:
        s.analyzer.bind(node.var, node.value, allow_override=True)
    STMT(node.body, s)


@STMT.on(AttrStmt)
def _attr(node: AttrStmt, s: FunctionEmitter) -> None:
    STMT(node.body, s)


@STMT.on(DeclBuffer)
def _decl(node: DeclBuffer, s: FunctionEmitter) -> None:
    STMT(node.body, s)


@STMT.on(IfThenElse)
def _if(node: IfThenElse, s: FunctionEmitter) -> None:
    condition = s.expr(node.condition)
    then, end = s.label("then"), s.label("endif")
    otherwise = s.label("else") if node.else_case is not None else end
    s.branch(condition, then, otherwise)
    s.start(then)
    STMT(node.then_case, s)
    s.jump(end)
    if node.else_case is not None:
        s.start(otherwise)
        STMT(node.else_case, s)
        s.jump(end)
    s.start(end)


@STMT.on(AssertStmt)
def _assert(node: AssertStmt, s: FunctionEmitter) -> None:
    ok, bad = s.label("ok"), s.label("bad")
    s.branch(s.expr(node.condition), ok, bad)
    s.start(bad)
    message = node.message.value if isinstance(node.message, StringImm) else str(node.message)
    s.module.declare("weft_set_error", "declare extern_weak i32 @weft_set_error(ptr, ptr)")
    code = s.value(f"call i32 @weft_set_error(ptr {s.module.string(node.error_kind)}, ptr {s.module.string(message)})")
    s.emit(f"ret i32 {code}")
    s.start(ok)
    STMT(node.body, s)


@STMT.on(While)
def _while(node: While, s: FunctionEmitter) -> None:
    head, body, end = s.label("while"), s.label("body"), s.label("endwhile")
    s.jump(head)
    s.start(head)
    s.branch(s.expr(node.condition), body, end)
    s.start(body)
    STMT(node.body, s)
    s.jump(head)
    s.start(end)


@STMT.on(For)
def _for(node: For, s: FunctionEmitter) -> None:
    s.analyzer.bind(node.loop_var, Range(node.min, node.extent), allow_override=True)
    if node.kind == ForKind.THREAD_BINDING:
        raise CodegenError(
            "a loop bound to device threads cannot run on target llvm",
            found=str(node.loop_var.name),
            help="use target 'cuda'",
        )
    if node.kind == ForKind.PARALLEL and not s.name.endswith(".task"):
        _parallel(node, s)
        return
    low = s.expr(node.min)
    high = s.expr(node.min + node.extent)
    _loop(node.loop_var, low, high, lambda: STMT(node.body, s), s)


def _loop(var: Var, low: str, high: str, body: Any, s: FunctionEmitter) -> None:
    """Emit a loop tested at its end, entered only if there is an iteration."""
    t = llvm_type(var.dtype)
    head, end = s.label("for"), s.label("endfor")
    entered = s.value(f"icmp slt {t} {low}, {high}")
    before = s.block
    s.branch(entered, head, end)
    s.start(head)
    index, following = s.fresh("i"), s.fresh("next")
    slot = len(s.lines)
    s.lines.append("")
    s.env[id(var)] = index
    body()
    s.emit(f"{following} = add nsw {t} {index}, 1")
    again = s.value(f"icmp slt {t} {following}, {high}")
    s.lines[slot] = f"  {index} = phi {t} [ {low}, %{before} ], [ {following}, %{s.block} ]"
    s.branch(again, head, end)
    s.start(end)


@STMT.on(AllocBuffer)
def _alloc(node: AllocBuffer, s: FunctionEmitter) -> None:
    buffer = node.buffer
    size = as_int(buffer.shape[0])
    itemsize = DataType(buffer.dtype).itemsize
    if size is not None and (size * itemsize <= _STACK_LIMIT or buffer.scope == "local"):
        name = s.fresh("buf")
        s.allocas.append(f"  {name} = alloca [{max(size, 1)} x {memory_type(buffer.dtype)}], align 64")
        s.pointers[id(buffer.data)] = name
        STMT(node.body, s)
        return
    count = s.expr(buffer.shape[0])
    nbytes = s.value(f"mul i64 {count}, {itemsize}")
    _declare_workspace(s)
    pointer = s.value(f"call ptr @weft_workspace_alloc(i64 {nbytes})")
    failed = s.value(f"icmp eq ptr {pointer}, null")
    bad, ok = s.label("nomem"), s.label("ok")
    s.branch(failed, bad, ok)
    s.start(bad)
    for other in reversed(s.cleanup):
        s.emit(f"call void @weft_workspace_free(ptr {other})")
    s.emit("ret i32 -2")
    s.start(ok)
    s.pointers[id(buffer.data)] = pointer
    s.cleanup.append(pointer)
    STMT(node.body, s)
    s.cleanup.pop()
    s.emit(f"call void @weft_workspace_free(ptr {pointer})")


def _declare_workspace(s: FunctionEmitter) -> None:
    s.module.declare("weft_workspace_alloc", "declare ptr @weft_workspace_alloc(i64)")
    s.module.declare("weft_workspace_free", "declare void @weft_workspace_free(ptr)")


def _parallel(node: For, s: FunctionEmitter) -> None:
    """Outline the body of a parallel loop into a task function and hand it to the thread pool.

    What the body uses travels in a struct; the task passes pointers on to an inner function as ``noalias`` parameters, so that the loop
    inside is compiled as well as a serial one.
    """
    scalars, buffers = _captures(node, s)
    task = f"{s.name}.{s.label('par')}"
    fields = [("ptr", s.pointers[id(b)]) for b in buffers] + [(llvm_type(v.dtype), s.expr(v)) for v in scalars]
    struct = "{ " + ", ".join(t if t != "i1" else "i8" for t, _ in fields) + " }" if fields else "{ i8 }"
    context = s.fresh("ctx")
    s.allocas.append(f"  {context} = alloca {struct}, align 64")
    for i, (t, v) in enumerate(fields):
        if t == "i1":
            t, v = "i8", s.value(f"zext i1 {v} to i8")
        s.emit(f"store {t} {v}, ptr {s.value(f'getelementptr inbounds {struct}, ptr {context}, i64 0, i32 {i}')}")
    extent = s.expr(node.extent)
    if node.extent.dtype != "int64":
        extent = s.value(f"sext {llvm_type(node.extent.dtype)} {extent} to i64")
    grain = as_int(node.annotations.get("pragma_grain", 1)) or 1
    s.module.declare("weft_parallel_for", "declare i32 @weft_parallel_for(ptr, ptr, i64, i64)")
    code = s.value(f"call i32 @weft_parallel_for(ptr @{task}, ptr {context}, i64 {extent}, i64 {grain})")
    failed = s.value(f"icmp ne i32 {code}, 0")
    bad, ok = s.label("failed"), s.label("done")
    s.branch(failed, bad, ok)
    s.start(bad)
    for other in reversed(s.cleanup):
        s.emit(f"call void @weft_workspace_free(ptr {other})")
    s.emit(f"ret i32 {code}")
    s.start(ok)
    _task_function(node, s, task, struct, scalars, buffers)


def _captures(node: For, s: FunctionEmitter) -> tuple[list[Var], list[Var]]:
    """List the scalars and buffer pointers that a loop uses from outside."""
    scalars: dict[int, Var] = {}
    buffers: dict[int, Var] = {}
    inside = {id(n.buffer.data) for n in walk(node.body) if isinstance(n, AllocBuffer)}
    for n in walk((node.body, node.min)):
        if isinstance(n, (BufferLoad, BufferStore)):
            data = n.buffer.data
            if id(data) not in inside and id(data) in s.pointers:
                buffers[id(data)] = data
        elif isinstance(n, Var) and id(n) in s.env and id(n) != id(node.loop_var):
            scalars[id(n)] = n
        elif isinstance(n, Var) and n.dtype == "handle" and id(n) in s.pointers and id(n) not in inside:
            buffers[id(n)] = n
    return list(scalars.values()), list(buffers.values())


def _task_function(
    node: For, outer: FunctionEmitter, task: str, struct: str, scalars: list[Var], buffers: list[Var]
) -> None:
    """Emit ``task`` (unpacks the struct) and ``task.body`` (the loop)."""
    module = outer.module
    inner = FunctionEmitter(module, task + ".task")
    inner.analyzer = outer.analyzer
    params = []
    for i, b in enumerate(buffers):
        inner.pointers[id(b)] = f"%b{i}"
        params.append(f"ptr noalias %b{i}" if outer.noalias else f"ptr %b{i}")
    for i, v in enumerate(scalars):
        inner.env[id(v)] = f"%s{i}"
        params.append(f"{llvm_type(v.dtype)} %s{i}")
    t = llvm_type(node.loop_var.dtype)
    low = inner.expr(node.min)
    begin, end = "%begin", "%end"
    if t != "i64":
        begin, end = inner.value(f"trunc i64 %begin to {t}"), inner.value(f"trunc i64 %end to {t}")
    begin, end = inner.value(f"add {t} {begin}, {low}"), inner.value(f"add {t} {end}, {low}")
    inner.noalias = outer.noalias
    _loop(node.loop_var, begin, end, lambda: STMT(node.body, inner), inner)
    inner.emit("ret i32 0")
    signature = ", ".join([*params, "i64 %begin", "i64 %end"])
    module.functions.append(finish(inner, f"define internal i32 @{task}.body({signature}) noinline #0"))
    lines = [f"define internal i32 @{task}(i64 %begin, i64 %end, ptr %ctx) #0 {{", "entry:"]
    args = []
    for i, p in enumerate(params):
        kind = p.split()[0]
        memory = "i8" if kind == "i1" else kind
        lines.append(f"  %a{i} = getelementptr inbounds {struct}, ptr %ctx, i64 0, i32 {i}")
        lines.append(f"  %l{i} = load {memory}, ptr %a{i}")
        if kind == "i1":
            lines.append(f"  %t{i} = trunc i8 %l{i} to i1")
        args.append(f"{kind} %{'t' if kind == 'i1' else 'l'}{i}")
    call = ", ".join([*args, "i64 %begin", "i64 %end"])
    lines += [f"  %rc = call i32 @{task}.body({call})", "  ret i32 %rc", "}"]
    module.functions.append("\n".join(lines))


def finish(s: FunctionEmitter, header: str) -> str:
    """Put a function's header, allocas and lines together."""
    return "\n".join([header + " {", "entry:", *s.allocas, *s.lines, "}"])


__all__ += ["finish"]
