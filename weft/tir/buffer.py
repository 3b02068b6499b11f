"""Buffers: typed, shaped memory that statements load from and store to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntFlag
from itertools import pairwise
from typing import Any, ClassVar

import msgspec

from weft import ir
from weft.arith import Analyzer
from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.text.scalar import slice_of
from weft.tir.typing import Dims, Value


class BufferAccessKind(IntFlag):
    """What is done at an address: the bits of ``access_ptr``."""

    READ = 1
    WRITE = 2


class Buffer(ir.Node):
    """A buffer. Identity distinguishes buffers; two buffers with one ``data`` alias each other.

    ``strides`` is empty for a compact row-major buffer, else one per dimension, in elements. ``scope`` is ``global``,
    ``local`` (registers or stack of one thread), ``shared``, ``warp``. ``elem_offset`` is in elements;
    ``data_alignment`` in bytes. A flattened buffer's dimensions end before those in ``axis_separators``. Build it with
    :func:`decl_buffer`.
    """

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2
    data: ir.Var
    dtype: str
    shape: tuple[ir.PrimExpr, ...]
    strides: tuple[ir.PrimExpr, ...] = ()
    elem_offset: ir.PrimExpr | None = None
    name: str = "buffer"
    scope: str = "global"
    data_alignment: int = 64
    offset_factor: int = 0
    axis_separators: tuple[int, ...] = ()

    def __getitem__(self, indices: Any) -> Any:
        """Return the element at indices; the region where one of them is a slice."""
        indices = indices if isinstance(indices, tuple) else (indices,)
        if any(isinstance(i, slice) for i in indices):
            if len(indices) != len(self.shape) or any(isinstance(i, slice) and i.step is not None for i in indices):
                raise InvalidArgument(
                    "a region has a start and an end, or an index, for each dimension",
                    expected=f"{len(self.shape)} of them",
                    found=str(indices),
                )
            return BufferRegion(self, tuple(_range_of(i, d) for i, d in zip(indices, self.shape, strict=True)))
        return BufferLoad(self, tuple(ir.as_expr(i) for i in indices))

    def vload(self, begin: Any, dtype: str | None = None, predicate: ir.PrimExpr | None = None) -> ir.PrimExpr:
        """Return the elements from `begin` on: as many as `dtype` has lanes."""
        return BufferLoad(self, self._places(begin, dtype), predicate)

    def _places(self, begin: Any, dtype: str | None) -> tuple[ir.PrimExpr, ...]:
        indices = tuple(ir.as_expr(i) for i in (begin if isinstance(begin, (list, tuple)) else (begin,)))
        lanes = 1 if dtype is None else ir.DataType(dtype).lanes // ir.DataType(self.dtype).lanes
        if lanes == 1:
            return indices
        return (*indices[:-1], ir.Ramp(indices[-1], ir.const(1, indices[-1].dtype), lanes))

    def access_ptr(
        self,
        access_mask: int | str = "rw",
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> ir.PrimExpr:
        """Return the address of the element `offset` elements from the start, for a call of a C function.

        `access_mask` says what is done there (``"r"``, ``"w"``, ``"rw"``); it and the other arguments are TVM's.
        """
        place = ir.as_expr(offset)
        indices = [place] if len(self.shape) == 1 else [ir.as_expr(0)] * len(self.shape)
        address = ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (BufferLoad(self, tuple(indices)),))
        if len(self.shape) == 1 or ir.is_const_int(place, 0):
            return address
        flat = Buffer(self.data, self.dtype, (ir.const(1, "int32"),), (), self.elem_offset, self.name, self.scope)
        return ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (BufferLoad(flat, (place,)),))

    def element_strides(self) -> tuple[ir.PrimExpr, ...]:
        """Return how many elements apart neighbours of each dimension are, where nobody declared it by rows."""
        strides: list[ir.PrimExpr] = []
        step: ir.PrimExpr = ir.const(1, self.shape[0].dtype if self.shape else "int32")
        for d in reversed(self.shape):
            strides.insert(0, step)
            step = step * d
        return self.strides or tuple(strides)

    def offset_of(self, indices: Any) -> list[ir.PrimExpr]:
        """Return how many elements from `data` the element at `indices` is, in a list as memory has one dimension."""
        at = [ir.as_expr(i) for i in (indices if isinstance(indices, (list, tuple)) else (indices,))]
        if len(at) != len(self.shape):
            raise InvalidArgument(
                "an offset is that of one element", expected=f"{len(self.shape)} indices", found=str(len(at))
            )
        total = ir.const(0, "int32") if self.elem_offset is None else self.elem_offset
        for i, s in zip(at, self.element_strides(), strict=True):
            total = total + i * s
        return [Analyzer().simplify(total)]

    def get_flattened_buffer(self) -> Buffer:
        """Return the memory in one dimension, or one for each group of ``axis_separators``; itself where it is so."""
        if len(self.shape) == 1 + len(self.axis_separators) and not self.strides:
            return self
        shape: list[ir.PrimExpr] = []
        empty = any(ir.is_const_int(d, 0) for d in self.shape)
        for group in self.dimension_groups():
            size = ir.const(1, self.shape[0].dtype if self.shape else "int32")
            for d, s in [(self.shape[n], self.element_strides()[n]) for n in group]:
                size = size + (d - 1) * s if self.strides else size * d
            shape.append(ir.const(0, size.dtype) if empty else Analyzer().simplify(size))
        separators = tuple(range(1, len(shape)))
        return msgspec.structs.replace(self, shape=tuple(shape), strides=(), axis_separators=separators)

    def dimension_groups(self) -> list[range]:
        """Return the dimensions between one separator and the next, of which a flattened buffer has one each."""
        ends = [0, *self.axis_separators, len(self.shape)]
        return [range(a, b) for a, b in pairwise(ends)]

    def attribute_in_program(self, name: str) -> Any:
        """Return an attribute as a program reads it, where an offset that nobody declared is 0."""
        value = getattr(self, name)
        return ir.const(0, "int32") if name == "elem_offset" and value is None else value

    @property
    def ty(self) -> Buffer:
        """What TVM's newest release asks the type of a buffer for, which the buffer itself knows."""
        return self

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


def _range_of(index: Any, dim: ir.PrimExpr) -> ir.Range:
    """Return what an index, or a slice, covers of a dimension."""
    if isinstance(index, slice):
        return slice_of(
            ir.const(0, dim.dtype) if index.start is None else index.start, dim if index.stop is None else index.stop
        )
    start = ir.as_expr(index)
    return ir.Range.from_min_extent(start, ir.const(1, start.dtype))


def is_buffer_var(value: object) -> bool:
    """Whether a value is a buffer, which TVM's newest release counts among the variables."""
    return isinstance(value, Buffer)


def index_exprs(node: Any) -> None:
    """Make a tuple of expressions of the indices of a new load or store, where they are numbers or a list."""
    if type(node.indices) is tuple:
        for i in node.indices:
            if not ir.IS_EXPR[type(i)]:
                break
        else:
            return
    ir.make_exprs(node, None, "indices")


def check_predicate(predicate: ir.PrimExpr, dtype: str) -> None:
    """Raise a DTypeMismatch unless a predicate masks the lanes of a vector of a data type."""
    needed = ir.vector_of("bool", ir.DataType(dtype).lanes)
    if predicate.dtype.replace("uint1x", "boolx") != needed:
        raise DTypeMismatch("a predicate has one bool for each lane", expected=needed, found=predicate.dtype)


class BufferLoad(ir.PrimExpr):
    """The value at `indices`; a :class:`~weft.ir.Ramp` as last index loads a vector.

    ``predicate`` (a bool vector) masks lanes; masked-out lanes read as zero.
    """

    reads_memory: ClassVar[bool] = True  # it is wrong to evaluate it where its indices are not inside
    buffer: Buffer
    indices: tuple[ir.PrimExpr, ...]
    predicate: ir.PrimExpr | None = None

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        index_exprs(self)
        if self.predicate is not None:
            check_predicate(self.predicate, self.dtype)

    @property
    def dtype(self) -> str:
        """The data type of the value read."""
        lanes = ir.DataType(self.indices[-1].dtype).lanes if self.indices else 1
        return self.buffer.dtype if lanes == 1 else ir.vector_of(self.buffer.dtype, lanes)


class BufferRegion(ir.Node):
    """A box inside a buffer: one range per dimension."""

    buffer: Buffer
    region: tuple[ir.Range, ...]

    def asobject(self) -> ir.PrimExpr:
        """Return the elements as a scalar or vector, which is what a slice stands for in an expression."""
        indices: list[ir.PrimExpr] = []
        for r in self.region:
            if not isinstance(r.extent, ir.IntImm):
                raise InvalidArgument("a slice of elements has a constant length", found=str(r.extent))
            one = r.extent.value == 1
            indices.append(r.min if one else ir.Ramp(r.min, ir.const(1, r.min.dtype), r.extent.value))
        return BufferLoad(self.buffer, tuple(indices))


class MatchBufferRegion(ir.Node):
    """Within a block, `buffer` names the region `source` of another buffer."""

    buffer: Buffer
    source: BufferRegion


def _broadcast_strides(dims: tuple[ir.PrimExpr, ...]) -> list[ir.PrimExpr]:
    strides: list[ir.PrimExpr] = []
    step = ir.const(1, dims[-1].dtype if dims else "int32")
    for d in reversed(dims):
        zero = ir.const(0, step.dtype)
        one = ir.as_int(d) == 1
        strides.insert(0, zero if one else step if ir.as_int(d) else ir.if_then_else(d.equal(1), zero, step))
        step = step * d
    return strides


def decl_buffer(
    shape: Dims,
    dtype: str = "float32",
    name: str = "buffer",
    data: ir.Var | None = None,
    strides: Iterable[Any] | None = None,
    elem_offset: Value | None = None,
    scope: str = "global",
    data_alignment: int = 64,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
    layout: object = None,
) -> Buffer:
    """Declare a buffer.

    Parameters
    ----------
    shape : int, PrimExpr or iterable of them
        The extents; Python ints become int64 where they do not fit int32, else int32 (as in TVM).
    data : Var, optional
        The pointer to alias; by default a new variable of dtype ``handle`` with the buffer's name.
    elem_offset : PrimExpr, optional
        Where the elements begin, in elements from `data`.
    offset_factor : int, optional
        The offset is a multiple of it; where `elem_offset` is left out, a new variable. 0 says nothing.
    buffer_type : str
        ``"auto_broadcast"`` lets every index of a dimension of one element mean that element: where `strides` are left
        out, they are those of rows, and 0 there.
    axis_separators : sequence of int, optional
        Where groups of dimensions end that FlattenBuffer makes one of each; memory that code is made for has one.
    layout : optional
        TVM's parameter: elements lie by rows.

    Raises
    ------
    InvalidArgument
        When `layout` or `buffer_type` has another value, a separator stands nowhere, or a dimension is no size.
    """
    if layout not in (None, "default"):
        raise InvalidArgument(
            "elements of a buffer lie by rows or by strides", expected="layout=None", found=str(layout)
        )
    dims = tuple(ir.as_expr(d) for d in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    wrong = next((d for d in dims if not ir.DataType(d.dtype).is_integer or (ir.as_int(d) or 0) < 0), None)
    if wrong is not None:
        raise InvalidArgument(f"a dimension of buffer '{name}'", expected="an integer, not negative", found=str(wrong))
    if buffer_type in ("auto_broadcast", "auto"):
        strides = strides or _broadcast_strides(dims)
    elif buffer_type not in ("", "default", None):
        raise InvalidArgument("no such type of buffers", expected='"" or "auto_broadcast"', found=str(buffer_type))
    offset = None if elem_offset is None else ir.as_expr(elem_offset)
    if offset is None and offset_factor:
        offset = ir.Var(f"{name}_elem_offset" if name else "elem_offset", dims[0].dtype if dims else "int32")
    separators = tuple(int(n) for n in axis_separators or ())
    if list(separators) != sorted(n for n in separators if 0 <= n <= len(dims)):
        raise InvalidArgument(
            "axis separators stand in order between dimensions", expected=f"0 to {len(dims)}", found=str(separators)
        )
    return Buffer(
        data if data is not None else ir.Var(name, "handle"),
        ir.DataType(dtype),
        dims,
        tuple(ir.as_expr(s) for s in strides) if strides else (),
        None if ir.is_const_int(offset, 0) else offset,
        name,
        scope,
        data_alignment,
        0 if offset_factor == 1 else offset_factor,
        separators,
    )
