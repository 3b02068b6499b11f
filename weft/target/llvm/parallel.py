"""Emission of parallel loops: the body becomes a function that the thread pool calls with a piece of the iterations.

What the body uses travels in a struct. The task function unpacks it and calls an inner function that has the pointers
as ``noalias`` parameters, so that the loop inside is compiled as well as a serial one. Parallel loops inside a task
are serial.
"""

from __future__ import annotations

from typing import Any

from weft import ir, tir
from weft.ir import int64
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.stmt import LOOPS, STMT, emit_loop, finish
from weft.target.llvm.stream import fence
from weft.target.llvm.support import parallel_for
from weft.target.llvm.types import llvm_type


def _parallel(node: tir.For, s: FunctionEmitter) -> bool:
    if s.is_task:
        return False
    scalars, buffers, looks_ahead = _captures(node, s)
    task = f"{s.name}.{s.label('par')}"
    fields = [("ptr", s.pointers[b]) for b in buffers] + [(llvm_type(v.dtype), s.expr(v)) for v in scalars]
    struct = "{ " + ", ".join(_stored(t) for t, _ in fields) + " }" if fields else "{ i8 }"
    context = s.alloca(f"{struct}, align 64", "ctx")
    for i, (t, v) in enumerate(fields):
        v = s.value(f"zext i1 {v} to i8") if t == "i1" else v
        s.emit(
            f"store {_stored(t)} {v}, ptr {s.value(f'getelementptr inbounds {struct}, ptr {context}, i64 0, i32 {i}')}"
        )
    extent, grain = s.expr(ir.cast("int64", node.extent)), s.expr(_grain(node, s.module.target.machine.task_work))
    s.check(parallel_for(s, f"@{task}", context, extent, grain, looks_ahead))
    _task_function(node, s, task, struct, scalars, buffers)
    s.forget()
    return True


LOOPS[tir.ForKind.PARALLEL] = _parallel


def _stored(t: str) -> str:
    return "i8" if t == "i1" else t


_ASKED = (ir.Var, tir.Buffer, tir.AllocBuffer, tir.For, tir.LetStmt, ir.CallIntrin)


def _captures(node: tir.For, s: FunctionEmitter) -> tuple[list[ir.Var], list[ir.Var], bool]:
    """List the scalars and buffer pointers that a loop uses from outside; whether it asks for what comes next."""
    used: dict[Any, None] = {}
    inside = {node.loop_var}
    looks_ahead = False
    for n in ir.find((node.body, node.min), *_ASKED):
        kind = type(n)
        if ir.IS_VAR[kind]:
            used[n] = None
        elif kind is tir.Buffer:
            used[n.data] = None
        elif kind is tir.AllocBuffer:
            inside.add(n.buffer.data)
        elif kind is tir.For:
            inside.add(n.loop_var)
        elif kind is tir.LetStmt:
            inside.add(n.var)
        elif kind is ir.CallIntrin and n.op.name == "tir.prefetch":
            looks_ahead = True
    outer = [v for v in used if v not in inside]
    return [v for v in outer if v in s.env and v not in s.pointers], [v for v in outer if v in s.pointers], looks_ahead


def _task_function(
    node: tir.For, outer: FunctionEmitter, task: str, struct: str, scalars: list[ir.Var], buffers: list[ir.Var]
) -> None:
    """Emit ``task``, which unpacks the struct, and ``task.body``, the loop."""
    inner = FunctionEmitter(outer.module, task + ".body", is_task=True)
    inner.analyzer, inner.noalias, inner.streamed = outer.analyzer, outer.noalias, outer.streamed
    params = []
    for i, b in enumerate(buffers):
        inner.pointers[b] = f"%b{i}"
        params.append(f"ptr {'noalias ' if outer.noalias else ''}%b{i}")
    for i, v in enumerate(scalars):
        inner.env[v] = f"%s{i}"
        params.append(f"{llvm_type(v.dtype)} %s{i}")
    inner.analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
    t, low = llvm_type(node.loop_var.dtype), inner.expr(node.min)
    ends = ["%begin", "%end"]
    if t != "i64":
        ends = [inner.value(f"trunc i64 {e} to {t}") for e in ends]
    if low != "0":
        ends = [inner.value(f"add {t} {e}, {low}") for e in ends]
    emit_loop(node.loop_var, ends[0], ends[1], lambda: STMT(node.body, inner), inner)
    if inner.streamed:
        fence(inner)
    inner.emit("ret i32 0")
    signature = ", ".join([*params, "i64 %begin", "i64 %end"])
    outer.module.functions.append(finish(inner, f"define internal i32 @{task}.body({signature}) noinline #0"))
    lines = [f"define internal i32 @{task}(i64 %begin, i64 %end, ptr %ctx) #0 {{", "entry:"]
    args = []
    for i, p in enumerate(params):
        kind = p.split("%")[0].removesuffix("noalias ").strip()
        lines.append(f"  %a{i} = getelementptr inbounds {struct}, ptr %ctx, i64 0, i32 {i}")
        lines.append(f"  %l{i} = load {_stored(kind)}, ptr %a{i}")
        if kind == "i1":
            lines.append(f"  %t{i} = trunc i8 %l{i} to i1")
        args.append(f"{kind} %{'t' if kind == 'i1' else 'l'}{i}")
    call = ", ".join([*args, "i64 %begin", "i64 %end"])
    lines += [f"  %rc = call i32 @{task}.body({call})", "  ret i32 %rc", "}"]
    outer.module.functions.append("\n".join(lines))


# --- how much work a piece needs --------------------------------------------------------------------------------------


def _grain(node: tir.For, least: int) -> ir.PrimExpr:
    """The least number of iterations of a piece.

    What the loop is annotated with (negative for light loops, as the runtime takes it), else enough for `least` work.
    """
    known = ir.as_int(node.annotations.get("pragma_grain"))
    if known is not None:
        return int64(known or 1)
    work = _WORK(node.body, {node.loop_var})
    if isinstance(work, ir.IntImm):
        return int64(max(1, least // max(work.value, 1)))
    return ir.max_(ir.floordiv(int64(least), ir.max_(work, int64(1))), int64(1))


_WORK = ir.Dispatch("work of a statement", (tir.Stmt,), default=lambda n, inner: int64(1))
"""``fn(stmt, variables bound inside) -> PrimExpr``: operations, in terms of what is known outside of the loop."""


@_WORK.on(tir.BufferStore)
def _store_work(node: tir.BufferStore, inner: set[ir.Var]) -> ir.PrimExpr:
    count = 1
    for n in ir.find(node.value, ir.PrimExpr):
        kind = type(n)
        count += 16 if kind is ir.CallIntrin else not ir.IS_VAR[kind]
    return int64(count * max(1, ir.DataType(node.value.dtype).itemsize // 64))


@_WORK.on(tir.SeqStmt)
def _seq_work(node: tir.SeqStmt, inner: set[ir.Var]) -> ir.PrimExpr:
    works = [_WORK(x, inner) for x in node.seq]
    if all(type(w) is ir.IntImm for w in works):
        return int64(sum(w.value for w in works))
    return sum(works, int64(0))


@_WORK.on(tir.IfThenElse)
def _if_work(node: tir.IfThenElse, inner: set[ir.Var]) -> ir.PrimExpr:
    then = _WORK(node.then_case, inner)
    return then if node.else_case is None else ir.min_(then, _WORK(node.else_case, inner))


@_WORK.on(tir.For)
def _for_work(node: tir.For, inner: set[ir.Var]) -> ir.PrimExpr:
    body = _WORK(node.body, inner | {node.loop_var})
    # what is read from memory may belong to the body
    known = not any(
        isinstance(v, tir.BufferLoad) or v in inner
        for v in ir.walk(node.extent)
        if isinstance(v, (ir.Var, tir.BufferLoad))
    )
    return ir.cast("int64", node.extent) * body if known else body * int64(16)


@_WORK.on(tir.Stmt)
def _nested_work(node: tir.Stmt, inner: set[ir.Var]) -> ir.PrimExpr:
    body = getattr(node, "body", None)
    if body is None:
        return int64(1)
    if isinstance(node, tir.LetStmt):
        inner = inner | {node.var}
    return _WORK(body, inner) * int64(16 if isinstance(node, tir.While) else 1)
