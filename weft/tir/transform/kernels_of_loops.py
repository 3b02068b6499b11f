"""Loops that were written for a CPU's threads become kernels of a GPU's."""

from math import prod
from typing import Any

from weft import ir
from weft.tir import stmt as stmts
from weft.tir.analysis.access import addressed
from weft.tir.analysis.structure import clone_fresh, map_children, replace_node, statements
from weft.tir.buffer import Buffer, BufferLoad

_THREADS = 64
_OWN = 1024  # elements of memory that a thread may have itself
_AROUND = (
    stmts.AllocBuffer,
    stmts.AttrStmt,
    stmts.DeclBuffer,
    stmts.For,
    stmts.IfThenElse,
    stmts.LetStmt,
    stmts.SeqStmt,
)  # what the host runs around kernels


def kernels_of_loops(body: stmts.Stmt) -> stmts.Stmt:
    """Bind the outermost parallel loops of a statement to threads, each a kernel of its own.

    What is around them stays the host's where it reads no memory, so that kernels follow one another as the loops did;
    what is beside them is done by one thread. Parallel loops inside of kernels run in order.

    Parameters
    ----------
    body : Stmt
        Written code without blocks inside, whose parallel loops are declared to be independent.

    Returns
    -------
    Stmt
        The same, every access in a nest of thread-bound loops.
    """
    if isinstance(body, stmts.For) and body.kind is stmts.ForKind.PARALLEL and _for_the_host(body):
        return _threads(body)
    if not isinstance(body, _AROUND) or not _has_parallel(body) or not _for_the_host(body):
        return _threads(stmts.For(ir.Var("one", "int32"), ir.const(0), ir.const(1), stmts.ForKind.PARALLEL, body))
    if isinstance(body, stmts.AllocBuffer) and body.buffer.scope != "global":  # several kernels share it
        shared = replace_node(body.buffer, scope="global")
        body = stmts.AllocBuffer(shared, ir.substitute(body.body, {body.buffer: shared}))
    if not isinstance(body, stmts.SeqStmt):
        return map_children(body, kernels_of_loops)
    parts: list[list[stmts.Stmt]] = []
    for s in body.seq:  # neighbours that one thread does are one kernel
        if parts and not _has_parallel(s) and not _has_parallel(parts[-1][-1]):
            parts[-1].append(s)
        else:
            parts.append([s])
    return stmts.seq(*(kernels_of_loops(stmts.seq(*p)) for p in parts))


def _has_parallel(stmt: stmts.Stmt) -> bool:
    return any(isinstance(s, stmts.For) and s.kind is stmts.ForKind.PARALLEL for s in statements(stmt))


def _for_the_host(stmt: stmts.Stmt) -> bool:
    """Whether a statement's own expressions, such as a loop's extent, read no memory."""
    own = (getattr(stmt, name, None) for name in ("min", "extent", "condition", "value"))
    return not any(isinstance(n, BufferLoad) for e in own if isinstance(e, ir.PrimExpr) for n in ir.walk(e))


def _threads(loop: stmts.For) -> stmts.Stmt:
    """The iterations of a loop, one for each thread."""
    extent = ir.as_int(loop.extent)
    count = min(_THREADS, max(extent or _THREADS, 1))
    block, thread = (ir.Var(f"{loop.loop_var.name}_{i}", loop.loop_var.dtype) for i in range(2))
    at = block * count + thread
    body, _, _ = clone_fresh(_in_order(loop.body), str)
    body, large = _with_rows(body, loop.loop_var - loop.min, loop.extent)
    body = ir.substitute(body, {loop.loop_var: loop.min + at})
    if extent is None or extent % count:
        body = stmts.IfThenElse(at < loop.extent, body)
    blocks = (loop.extent + (count - 1)) // count
    for var, n, tag in ((thread, ir.const(count, at.dtype), "threadIdx.x"), (block, blocks, "blockIdx.x")):
        axis = ir.IterVar(ir.Range(0, n), ir.Var(tag, var.dtype), "ThreadIndex", tag)
        body = stmts.For(var, ir.const(0, var.dtype), n, stmts.ForKind.THREAD_BINDING, body, axis)
    for buffer in large:
        body = stmts.AllocBuffer(buffer, body)
    return body


def _with_rows(body: stmts.Stmt, row: ir.PrimExpr, rows: ir.PrimExpr) -> tuple[stmts.Stmt, list[Buffer]]:
    """Let each thread have a row of memory of the device for what has no size, or too large a one, for its own.

    Memory that is passed on by its address stays where it is.
    """
    passed = addressed(body)
    wide: dict[Buffer, Buffer] = {}
    for s in statements(body):
        if isinstance(s, stmts.AllocBuffer) and s.buffer.data not in passed and not _is_small(s.buffer):
            shape = (ir.cast("int64", rows), *s.buffer.shape)
            wide[s.buffer] = replace_node(s.buffer, data=replace_node(s.buffer.data), shape=shape, scope="global")

    def visit(node: Any) -> Any:
        if isinstance(node, stmts.AllocBuffer) and node.buffer in wide:
            return visit(node.body)
        node = ir.rebuild(node, visit) if isinstance(node, ir.Node) else node
        if isinstance(node, (BufferLoad, stmts.BufferStore)) and node.buffer in wide:
            return replace_node(node, buffer=wide[node.buffer], indices=(ir.cast("int64", row), *node.indices))
        return node

    return (visit(body), [*wide.values()]) if wide else (body, [])


def _is_small(buffer: Buffer) -> bool:
    sizes = [ir.as_int(d) for d in buffer.shape]
    return None not in sizes and prod(n or 0 for n in sizes) <= _OWN


def _in_order(stmt: stmts.Stmt) -> stmts.Stmt:
    stmt = map_children(stmt, _in_order)
    if isinstance(stmt, stmts.For) and stmt.kind is stmts.ForKind.PARALLEL:
        return replace_node(stmt, kind=stmts.ForKind.SERIAL)
    return stmt
