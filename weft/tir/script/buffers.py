"""The names of ``T`` that declare, match and allocate buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from weft.error import InvalidArgument
from weft.ir import Attrs, DataType, Range, Var, as_expr, as_int, const
from weft.spelling import also_called
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer as BufferNode
from weft.tir.buffer import BufferLoad as BufferLoadNode
from weft.tir.buffer import BufferRegion
from weft.tir.buffer import decl_buffer as declare
from weft.tir.script import commands
from weft.tir.script.dtypes import DTypeLike
from weft.tir.typing import Dims, Value


class _BufferMaker:
    """``T.Buffer(shape, dtype, ...)``: an annotation, or a buffer that the function does not introduce otherwise."""

    def __call__(
        self,
        shape: Any,
        dtype: Any = "float32",
        data: Any = None,
        strides: Any = None,
        elem_offset: Any = None,
        scope: str = "global",
        align: int = 0,
        offset_factor: int = 0,
        buffer_type: str = "",
        axis_separators: Sequence[int] | None = None,
    ) -> BufferNode:
        """Declare a buffer without a name; TVM's zero and negative values stand for the defaults."""
        dims = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        element = getattr(dtype, "dtype", dtype)
        strides = [Var(s, "int32") if isinstance(s, str) else s for s in strides or ()]
        if isinstance(elem_offset, Var) and elem_offset.name == "":
            elem_offset = type(elem_offset)("elem_offset", elem_offset.dtype)
        align, factor = align if align > 0 else 64, max(offset_factor, 0)
        place = (data, strides, elem_offset, scope or "global", align, factor, buffer_type, axis_separators)
        return declare(dims, element, "", *place)

    def __getitem__(self, items: Any) -> BufferNode:
        typed = isinstance(items, tuple) and (isinstance(items[0], (tuple, list)) or isinstance(items[-1], str))
        return self(*items) if typed else self(items)


Buffer = _BufferMaker()


def match_buffer(
    param: Var | BufferRegion | BufferLoadNode,
    shape: Dims | None = None,
    dtype: DTypeLike = "float32",
    data: Var | None = None,
    strides: Dims | None = None,
    elem_offset: Value | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> commands.MatchBuffer:
    """Name the memory of a handle parameter, or a region of another buffer."""
    if shape is None:
        if not isinstance(param, BufferRegion):
            raise InvalidArgument("match_buffer: a parameter needs a shape")
        shape, dtype = tuple(r.extent for r in param.region), param.buffer.dtype
    if isinstance(param, BufferLoadNode):
        one = [Range.from_min_extent(i, const(1, i.dtype)) for i in param.indices]
        param = BufferRegion(param.buffer, tuple(one))
    place = (data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    buffer = Buffer(shape, dtype, *place)
    if isinstance(param, BufferRegion) and elem_offset is not None:  # a zero is a claim about the region
        buffer = structs.replace(buffer, elem_offset=as_expr(elem_offset))
    return commands.MatchBuffer(param, buffer)


def preflattened_buffer(postflattened: BufferNode, shape: Dims, *rest: Any, **facts: Any) -> commands.MatchBuffer:
    """Say which shape callers see of a parameter whose memory the text names as one row, as TVM 0.9 prints it."""
    facts |= {} if "data" in facts or len(rest) > 1 else {"data": postflattened.data}
    return commands.MatchBuffer(postflattened, Buffer(shape, *rest, **facts))


def sblock_alloc_buffer(
    shape: Dims,
    dtype: DTypeLike = "float32",
    data: Var | None = None,
    strides: Dims | None = None,
    elem_offset: Value | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> commands.AllocBlockBuffer:
    """Allocate a buffer in the block under way."""
    return commands.AllocBlockBuffer(
        Buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    )


@also_called(dtypes="dtype")
def alloc_buffer(
    shape: Dims,
    dtype: DTypeLike = "float32",
    data: Var | None = None,
    strides: Dims | None = None,
    elem_offset: Value | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> commands.Scope:
    """Allocate a buffer for the rest of the sequence; among the first statements of a block, in that block."""
    b = Buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    notes = Attrs.of(annotations)
    return commands.Scope(b, lambda value, body, _: stmts.AllocBuffer(value, body, notes), "alloc", notes)


def decl_buffer(
    shape: Dims,
    dtype: DTypeLike = "float32",
    data: Var | None = None,
    strides: Dims | None = None,
    elem_offset: Value | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> commands.Scope:
    """Declare a buffer as a view of the memory that `data` points to; without it, allocate the memory."""
    b = Buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    if data is None:
        return commands.Scope(b, lambda value, body, _: stmts.AllocBuffer(value, body))
    return commands.Scope(b, lambda value, body, _: stmts.DeclBuffer(value, body))


def allocate(
    extents: Dims | Value,
    dtype: DTypeLike = "float32",
    scope: str = "global",
    condition: Value = True,
    annotations: Mapping[str, Any] | None = None,
) -> commands.Scope:
    """Allocate memory for the rest of the sequence; the name that this is bound to is a pointer to it.

    Its elements may be named by the pointer, as TVM 0.9 prints them.
    """
    if condition is not True and as_int(condition) != 1:
        raise InvalidArgument("allocate: memory is allocated without conditions", found=str(condition))
    shape = tuple(as_expr(e) for e in (extents if isinstance(extents, (list, tuple)) else (extents,)))
    element = DataType(getattr(dtype, "dtype", dtype))
    notes = Attrs.of(annotations)

    def view(pointer: Any) -> BufferNode:
        return declare(shape, element, pointer.name, pointer, scope=scope)

    def make(pointer: Any, body: stmts.Stmt, p: Any) -> stmts.Stmt:
        return stmts.AllocBuffer(p.state.memory.get(pointer) or view(pointer), body, notes)

    return commands.Scope(Var("", DataType("handle")), make, "memory", view)
