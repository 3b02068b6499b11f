"""FlattenBuffer: every buffer becomes one-dimensional, and indices become offsets."""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, DeclBuffer, For, Stmt


@ir.function_pass(kind=PrimFunc)
def flatten_buffer(func: PrimFunc, mod: ir.IRModule, *, wide: bool = True) -> PrimFunc:
    """Replace indices of several dimensions by one offset in elements, simplified under the bounds of the loops around.

    Requires: No blocks.
    Ensures: Every load and store has one index of type int64; ``buffer_map`` keeps the declared shapes.
    Before::

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((4, 8), "float32")):
            for i, j in T.grid(4, 8):
                B[i, j] = A[j, i]

    After::

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((4, 8), "float32")):
            B_1 = T.Buffer((T.int64(32),), "float32", data=B.data)
            A_1 = T.Buffer((T.int64(32),), "float32", data=A.data)
            for i, j in T.grid(4, 8):
                B_1[T.Cast("int64", i) * 8 + T.Cast("int64", j)] = A_1[T.Cast("int64", j) * 4 + T.Cast("int64", i)]
    Options:
        ``wide``: without it, offsets keep the type of the indices, buffers of one dimension that are no parameters
        stay, ``axis_separators`` keep dimensions apart, and the twins of parameters are declared, as TVM has it.
    Cost: Linear, one simplification a use.
    Source: TVM's ``FlattenBuffer``.
    """
    state = _Flatten(wide, set(func.buffer_map.values()))  # type: ignore[attr-defined]
    state.analyzer.mark_global_non_neg(*(d for _, buffer in func.buffer_map for d in buffer.shape))
    body = state.visit(func.body)
    for _, buffer in () if wide else reversed(func.buffer_map):
        if (twin := state.flat.get(buffer, buffer)) is not buffer:
            body = DeclBuffer(twin, body)
    return func.replace(body=body) if body is not func.body else func


def _as_int64(index: ir.PrimExpr) -> ir.PrimExpr:
    """Widen an index, keeping ramps."""
    if isinstance(index, ir.Ramp):
        return ir.Ramp(ir.cast("int64", index.base), ir.cast("int64", index.stride), index.lanes)
    if isinstance(index, ir.Broadcast):
        return ir.Broadcast(ir.cast("int64", index.value), index.lanes)
    return ir.cast(ir.with_lanes("int64", ir.DataType(index.dtype).lanes), index)


class _Flatten:
    """The flat twin of each buffer."""

    def __init__(self, wide: bool, params: set[Buffer]) -> None:
        self.wide, self.params = wide, params
        self.analyzer = arith.Analyzer()
        self.flat: dict[Buffer, Buffer] = {}

    def buffer(self, buffer: Buffer, allocated: bool = False) -> Buffer:
        """Return the flat twin of a buffer; one that is allocated holds all that its strides reach."""
        twin = self.flat.get(buffer)
        if twin is None:
            plain = not self.wide and buffer not in self.params
            if plain and len(buffer.shape) == 1 and not buffer.strides and buffer.elem_offset is None:
                return self.flat.setdefault(buffer, buffer)
            shape: list[ir.PrimExpr] = []
            for part in self.parts(buffer):
                size: ir.PrimExpr = self.number(1, part.shape)
                if allocated and part.strides:
                    for d, s in zip(part.shape, part.strides, strict=True):
                        size = size + self.as_wide(ir.max_(d - 1, 0)) * self.as_wide(s)
                else:
                    for d in part.shape:
                        size = size * self.as_wide(d)
                shape.append(self.analyzer.simplify(size))
            plain_fields = {"strides": (), "elem_offset": None, "offset_factor": 0}
            twin = replace_node(buffer, shape=tuple(shape), axis_separators=tuple(range(1, len(shape))), **plain_fields)
            self.flat[buffer] = twin
        return twin

    def parts(self, buffer: Buffer) -> list[Buffer]:
        """Return a buffer for each dimension of the twin, where separators make several and code is not next."""
        if self.wide or buffer.strides or not buffer.axis_separators:
            return [buffer]
        shapes = [tuple(buffer.shape[n] for n in group) for group in buffer.dimension_groups()]
        offsets = [*[None] * (len(shapes) - 1), buffer.elem_offset]
        return [replace_node(buffer, shape=s, elem_offset=o) for s, o in zip(shapes, offsets, strict=True)]

    def offsets(self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...]) -> tuple[ir.PrimExpr, ...]:
        """Return the indices of the twin."""
        rest = list(indices)
        return tuple(self.offset(p, tuple(rest.pop(0) for _ in p.shape)) for p in self.parts(buffer))

    def offset(self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...]) -> ir.PrimExpr:
        """Return the offset of an element; of a vector of them, where the last index is one."""
        visited = [_as_int64(self.visit(i)) if self.wide else self.visit(i) for i in indices]
        vector = visited[-1] if visited and ir.DataType(visited[-1].dtype).lanes > 1 else None
        zero = self.number(0, indices)
        last = ir.const(1, zero.dtype)
        strides: list[ir.PrimExpr] = []
        if buffer.strides:
            strides = [self.as_wide(s) for s in buffer.strides]
            last = strides[-1]
        if vector is not None:
            visited[-1] = vector.base if isinstance(vector, ir.Ramp) else zero
        total: ir.PrimExpr = zero
        if buffer.strides:
            for i, s in zip(visited, strides, strict=True):
                total = total + i * s
        else:
            for i, d in zip(visited, buffer.shape, strict=True):
                total = total * self.as_wide(d) + i
        if buffer.elem_offset is not None:
            total = total + self.as_wide(buffer.elem_offset)
        total = self.analyzer.simplify(total)
        if vector is None:
            return total
        if isinstance(vector, ir.Ramp):
            return ir.Ramp(total, self.analyzer.simplify(vector.stride * last), vector.lanes)
        lanes = ir.DataType(vector.dtype).lanes
        scaled = vector if ir.as_int(last) == 1 else vector * ir.Broadcast(last, lanes)
        return scaled if ir.as_int(total) == 0 else scaled + ir.Broadcast(total, lanes)

    def as_wide(self, value: ir.PrimExpr) -> ir.PrimExpr:
        """Return an extent in the type that offsets are computed in."""
        return ir.cast("int64", value) if self.wide else value

    def number(self, value: int, like: tuple[ir.PrimExpr, ...]) -> ir.PrimExpr:
        """Return a number in that type."""
        narrow = ir.with_lanes(like[0].dtype, 1) if like else "int32"
        return ir.const(value, "int64" if self.wide else narrow)

    def visit(self, node: ir.Node) -> Any:
        """Flatten everything below a node."""
        if isinstance(node, (BufferLoad, BufferStore)):
            predicate = self.visit(node.predicate) if node.predicate is not None else None
            at = self.offsets(node.buffer, node.indices)
            value = {"value": self.visit(node.value)} if isinstance(node, BufferStore) else {}
            return replace_node(node, buffer=self.buffer(node.buffer), indices=at, predicate=predicate, **value)
        if isinstance(node, AllocBuffer):
            return AllocBuffer(self.buffer(node.buffer, True), self.visit(node.body), node.annotations, span=node.span)
        if isinstance(node, DeclBuffer):
            body = self.visit(node.body)
            return body if self.wide else DeclBuffer(self.buffer(node.buffer), body, span=node.span)
        if isinstance(node, For):
            self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
            return ir.rebuild(node, self.visit)
        if isinstance(node, (Buffer, ir.Attrs)):
            return node
        return ir.rebuild(node, self.visit) if isinstance(node, Stmt) or hasattr(node, "dtype") else node


def storage_flatten(cache_line_size: int = 64, create_bound_attribute: bool = False) -> ir.Pass:
    """Make :func:`flatten_buffer` as releases of TVM before 0.10 call it.

    Where memory is allocated decides its alignment, and ``InstrumentBoundCheckers`` reads the buffers themselves, so
    that the lines of the cache and bounds as attributes change nothing.
    """
    return flatten_buffer()
