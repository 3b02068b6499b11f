"""Emission of loops whose results bypass the caches, because they are too large to be found there again.

A loop annotated ``pragma_stream`` with a number of bytes stores into buffers of at least that size (with 0, of any)
without reading the lines first, where its vectors are whole and aligned. The buffers' alignment is known when the loop
is entered: two versions of it are emitted. The stores are ordered before what follows by a fence at the end of the loop
and of each task.
"""

from weft.ir import DataType, PrimExpr, Var, as_int, walk
from weft.target.llvm.emitter import FunctionEmitter
from weft.tir import Buffer, BufferStore, For


def streamed_buffers(node: For, s: FunctionEmitter) -> list[Var]:
    """List the memory that a loop shall stream to; nothing where the target has no such stores."""
    least = as_int(node.annotations.get("pragma_stream"))
    if least is None or s.streamed or not s.module.target.triple.startswith("x86_64"):
        return []
    found: dict[Var, None] = {}
    for n in walk(node.body):
        if isinstance(n, BufferStore) and DataType(n.value.dtype).lanes > 1 and n.buffer.data in s.pointers:
            size = as_int(n.buffer.shape[0])
            if least == 0 or (size is not None and size * DataType(n.buffer.dtype).itemsize >= least):
                found[n.buffer.data] = None
    return list(found)


def versions(buffers: list[Var], s: FunctionEmitter) -> str:
    """Emit the test that all buffers begin at a cache line."""
    joined = ""
    for b in buffers:
        address = s.value(f"ptrtoint ptr {s.pointers[b]} to i64")
        joined = address if not joined else s.value(f"or i64 {joined}, {address}")
    return s.value(f"icmp eq i64 {s.value(f'and i64 {joined}, {s.module.target.machine.cache_line_bytes - 1}')}, 0")


def is_streamed(s: FunctionEmitter, buffer: Buffer, base: PrimExpr, n_bytes: int) -> bool:
    """Whether a contiguous store of `n_bytes` at an index is streamed: a whole line, or half of one, in its place."""
    line = s.module.target.machine.cache_line_bytes
    if buffer.data not in s.streamed or n_bytes not in (line // 2, line):
        return False
    known = s.analyzer.modular_set(base)
    item = DataType(buffer.dtype).itemsize
    return known.coeff * item % n_bytes == 0 and known.base * item % n_bytes == 0


def fence(s: FunctionEmitter) -> None:
    """Order streamed stores before what follows."""
    s.module.declare("llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
    s.emit("call void @llvm.x86.sse.sfence()")
