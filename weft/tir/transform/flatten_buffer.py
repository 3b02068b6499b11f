"""FlattenBuffer: every buffer becomes one-dimensional, and indices become offsets."""

from __future__ import annotations

from typing import Any

from weft.arith import Analyzer
from weft.ir import Attrs, IRModule, PrimExpr, Range, cast, const, function_pass, int64, rebuild
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, DeclBuffer, For, Stmt

__all__ = ["flatten_buffer"]


@function_pass(kind=PrimFunc)
def flatten_buffer(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Replace indices of several dimensions by one offset in elements, simplified under the bounds of the loops around.

    Requires
        No blocks.
    Ensures
        Every load and store has one index of type int64; ``buffer_map`` keeps the declared shapes.
    Cost
        Linear, one simplification a use.
    Source
        TVM's ``FlattenBuffer``.
    """
    state = _Flatten()
    for _, buffer in func.buffer_map:
        for d in buffer.shape:
            state.analyzer.mark_global_non_neg(d)
    body = state.visit(func.body)
    return func.replace(body=body) if body is not func.body else func


class _Flatten:
    """The flat twin of each buffer."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.flat: dict[int, Buffer] = {}
        self.keep: list[Buffer] = []

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return the one-dimensional twin of a buffer."""
        twin = self.flat.get(id(buffer))
        if twin is None:
            size: PrimExpr = int64(1)
            for d in buffer.shape:
                size = size * cast("int64", d)
            twin = Buffer(
                buffer.data,
                buffer.dtype,
                (self.analyzer.simplify(size),),
                (),
                None,
                buffer.name,
                buffer.scope,
                buffer.data_alignment,
            )
            self.flat[id(buffer)] = twin
            self.keep.append(buffer)
        return twin

    def offset(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
        """Return the offset of an element."""
        indices = tuple(cast("int64", self.visit(i)) for i in indices)
        if buffer.strides:
            total: PrimExpr = const(0, "int64")
            for i, s in zip(indices, buffer.strides, strict=True):
                total = total + i * cast("int64", s)
        else:
            total = const(0, "int64")
            for i, d in zip(indices, buffer.shape, strict=True):
                total = total * cast("int64", d) + i
        if buffer.elem_offset is not None:
            total = total + cast("int64", buffer.elem_offset)
        return self.analyzer.simplify(total)

    def visit(self, node: Any) -> Any:
        """Flatten everything below a node."""
        if isinstance(node, BufferLoad):
            predicate = self.visit(node.predicate) if node.predicate is not None else None
            return BufferLoad(
                self.buffer(node.buffer), (self.offset(node.buffer, node.indices),), predicate, span=node.span
            )
        if isinstance(node, BufferStore):
            predicate = self.visit(node.predicate) if node.predicate is not None else None
            return BufferStore(
                self.buffer(node.buffer),
                self.visit(node.value),
                (self.offset(node.buffer, node.indices),),
                predicate,
                span=node.span,
            )
        if isinstance(node, AllocBuffer):
            return AllocBuffer(self.buffer(node.buffer), self.visit(node.body), node.annotations, span=node.span)
        if isinstance(node, DeclBuffer):
            return self.visit(node.body)
        if isinstance(node, For):
            self.analyzer.bind(node.loop_var, Range(node.min, node.extent), allow_override=True)
            return rebuild(node, self.visit)
        if isinstance(node, (Buffer, Attrs)):
            return node
        return rebuild(node, self.visit) if isinstance(node, Stmt) or hasattr(node, "dtype") else node
