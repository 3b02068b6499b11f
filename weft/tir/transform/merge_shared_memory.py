"""MergeSharedMemoryAllocations: the threads of a kernel have one memory, in which buffers take turns."""

from math import prod
from typing import Any

from weft import ir
from weft.tir.analysis.access import addressed
from weft.tir.analysis.structure import replace_node, stmt_children
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, AttrStmt, BufferStore, DeclBuffer, For, ForKind, LetStmt, SeqStmt, Stmt, While
from weft.tir.transform.inject_virtual_thread import is_virtual
from weft.tir.transform.thread_sync import is_barrier

_ALIGNMENT = 16


@ir.function_pass(kind=PrimFunc)
def merge_shared_memory_allocations(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Let the buffers that a kernel's threads share lie in one memory of bytes, whose parts they use one after another.

    Dynamic shared memory, and static with ``tir.merge_static_smem``. A buffer takes bytes of another one only where all
    threads meet between the last use of the one and the first of the other. Buffers reached by address stay.

    Requires: No blocks; kernels begin with a loop that is bound to threads, or ``thread_extent``.
    Ensures: The same form, with one allocation of ``uint8`` a kernel where there were several of known size.
    Before::

        @T.prim_func
        def f(A: T.Buffer((32,), "float32")):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                B = T.alloc_buffer((32,), scope="shared.dyn")
                C = T.alloc_buffer((8,), scope="shared.dyn")
                B[t] = A[t]
                C[t // 4] = B[31 - t]

    After::

        @T.prim_func
        def f(A: T.Buffer((32,), "float32")):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                buf_dyn_shmem = T.alloc_buffer((160,), "uint8", scope="shared.dyn")
                B = T.decl_buffer((32,), data=buf_dyn_shmem.data, scope="shared.dyn")
                C = T.decl_buffer((8,), data=buf_dyn_shmem.data, scope="shared.dyn")
                B[t] = A[t]
                C[t // 4 + 32] = B[31 - t]
    Cost: Quadratic in the buffers of a kernel.
    Source: TVM's ``MergeSharedMemoryAllocations``, which merges without a meeting of threads, too.
    """
    static = bool(ir.PassContext.current().config.get("tir.merge_static_smem"))
    scopes = {"shared.dyn": "buf_dyn_shmem", **({"shared": "buf_shmem"} if static else {})}

    def visit(node: ir.Node) -> Any:
        if not isinstance(node, (For, AttrStmt)) or not _is_kernel(node):
            return ir.rebuild(node, visit) if isinstance(node, Stmt) else node
        body: Stmt = node.body
        for scope, name in scopes.items():
            body = _merged(body, scope, name)
        return node if body is node.body else replace_node(node, body=body)

    body = visit(func.body)
    return func if body is func.body else func.replace(body=body)


def _is_kernel(node: ir.Node) -> bool:
    bound = isinstance(node, For) and node.kind is ForKind.THREAD_BINDING and not is_virtual(node)
    return bound or (isinstance(node, AttrStmt) and node.attr_key == "thread_extent")


def _merged(body: Stmt, scope: str, name: str) -> Stmt:
    raw, steps = addressed(body), _steps(body)
    sizes = {
        n.buffer.data: prod(ir.as_int(d) or 0 for d in n.buffer.shape) * ir.DataType(n.buffer.dtype).itemsize
        for n in ir.walk(body)
        if isinstance(n, AllocBuffer)
        and n.buffer.scope == scope
        and not n.buffer.strides
        and n.buffer.data not in raw
        and all(ir.as_int(d) is not None for d in n.buffer.shape)
    }
    if len(sizes) < 2:
        return body
    lives = {v: [i for i, (names, _) in enumerate(steps) if v in names] or [0] for v in sizes}
    meetings = [i for i, (_, meet) in enumerate(steps) if meet]
    offsets: dict[ir.Var, int] = {}
    for v in sorted(sizes, key=lambda v: lives[v][0]):
        place = 0
        for begin, end in sorted(
            (offsets[o], offsets[o] + sizes[o])
            for o in offsets
            if not any(lives[o][-1] <= m < lives[v][0] for m in meetings)
        ):
            if place + sizes[v] > begin:
                place = max(place, -(-end // _ALIGNMENT) * _ALIGNMENT)
        offsets[v] = place
    memory = decl_buffer((max(offsets[v] + sizes[v] for v in sizes),), "uint8", name, scope=scope)
    views: dict[Buffer, Buffer] = {}

    def rule(node: ir.Node) -> Any:
        buffer = getattr(node, "buffer", None)
        if not isinstance(buffer, Buffer) or buffer.data not in offsets:
            return node
        at, one = offsets[buffer.data] // ir.DataType(buffer.dtype).itemsize, len(buffer.shape) == 1
        first = ir.const(0, "int32") if buffer.elem_offset is None else buffer.elem_offset
        offset = buffer.elem_offset if one or not at else first + at
        view = views.setdefault(buffer, replace_node(buffer, data=memory.data, elem_offset=offset))
        if isinstance(node, (AllocBuffer, DeclBuffer)):
            return DeclBuffer(view, node.body, span=node.span)
        assert isinstance(node, (BufferLoad, BufferStore))
        return replace_node(
            node, buffer=view, indices=tuple(i + at for i in node.indices) if one and at else node.indices
        )

    return AllocBuffer(memory, ir.rewrite(body, rule))


def _steps(stmt: Stmt) -> list[tuple[set[ir.Node], bool]]:
    """List what each step of a kernel names, and whether all threads meet at its end."""
    if isinstance(stmt, (SeqStmt, AllocBuffer, DeclBuffer, LetStmt, AttrStmt)) or _is_kernel(stmt):
        own = [(set(ir.walk(stmt.value)), False)] if isinstance(stmt, (LetStmt, AttrStmt)) else []
        return [*own, *(step for child in stmt_children(stmt) for step in _steps(child))]
    last: Any = stmt
    while isinstance(last, (SeqStmt, AllocBuffer, DeclBuffer, For, While)):
        last = last.seq[-1] if isinstance(last, SeqStmt) and last.seq else getattr(last, "body", None)
    return [(set(ir.walk(stmt)), is_barrier(last))]
