"""Layouts by letters: ``NCHW16c`` has blocks of 16 of C last, ``OIHW[4o4i]`` those of O and I as one dimension."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.arith import Analyzer
from weft.error import InvalidArgument
from weft.ir import IterVar, PrimExpr, Range, Var, as_expr, const, floordiv, floormod

_AXIS = r"[A-Z]|\d+[a-z]"


class Part(NamedTuple):
    """What a dimension has of an axis: what is outside of its blocks, or a block of `size`, called in lower case."""

    name: str
    size: int | None


class Layout:
    """The order of the dimensions of a tensor.

    Parameters
    ----------
    name : str
        Axes in upper case, blocks as their sizes and axes in lower case, in brackets where several are one dimension.
        Nothing, or ``"__undef__"``, is the layout that is not known.
    dtype : str
        The type of the indices.

    Raises
    ------
    InvalidArgument
        When an axis occurs twice or a block's axis is missing.
    TypeError
        When `dtype` is no type of integers.
    """

    def __init__(self, name: str, dtype: str = "int32") -> None:
        if dtype not in ("int32", "int64"):
            raise TypeError(f"the indices of a layout are int32 or int64, not {dtype!r}")
        self.name, self.dtype = ("" if name == "__undef__" else name), dtype
        found = re.fullmatch(rf"((?:{_AXIS})|\[(?:\d+[a-z])+\])*", self.name)
        texts = re.findall(rf"{_AXIS}|\[[^]]*\]", self.name)
        self.dims = [[Part(n, int(s) if s else None) for s, n in re.findall(r"(\d*)([A-Za-z])", t)] for t in texts]
        self._texts = [t.strip("[]") for t in texts]
        parts = [p for dim in self.dims for p in dim]
        names = [p.name for p in parts]
        if not found or len(set(names)) < len(names) or any(p.name.upper() not in names or p.size == 0 for p in parts):
            raise InvalidArgument(f"unknown layout '{name}'", expected="axes such as NCHW, NHWC, NCHW16c, OIHW[4o4i]")

    def __len__(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        return self.name or "__undef__"

    def __repr__(self) -> str:
        return f'Layout("{self}")'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __contains__(self, axis: str) -> bool:
        return axis in self._texts or any(axis == p.name for dim in self.dims for p in dim)

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"layout {self} has {len(self)} dimensions, no dimension {index}")
        return self._texts[index]

    @property
    def axes(self) -> tuple[IterVar, ...]:
        """An iteration variable for each dimension; the extents of those that are no blocks are variables."""
        made: list[IterVar] = []
        for text, dim in zip(self._texts, self.dims, strict=True):
            extent: PrimExpr = const(_product(dim), self.dtype)
            if dim[0].size is None:
                extent = Var(f"{text}_shape", self.dtype)
            made.append(IterVar(Range(const(0, self.dtype), extent), Var(text, self.dtype)))
        return tuple(made)

    def index_of(self, axis: str) -> int:
        """Return the dimension of an axis, -1 where it is none of its own."""
        own = [axis in (text, dim[0].name) and (text == axis or len(dim) == 1)
               for text, dim in zip(self._texts, self.dims, strict=True)]  # fmt: skip
        return own.index(True) if any(own) else -1

    def factor_of(self, axis: str) -> int:
        """Return how many elements the blocks of an axis have, -1 where it has none."""
        own = self.blocks(axis.upper())
        return _product(own) if own and axis in self else -1

    def blocks(self, axis: str, after: str = "") -> list[Part]:
        """List the blocks of an axis, outer ones first; with `after`, those inside of that block."""
        own = [p for dim in self.dims for p in dim if p.size is not None and p.name.upper() == axis]
        names = [p.name for p in own]
        return own[names.index(after) + 1 :] if after in names else own


def _product(parts: Sequence[Part]) -> int:
    result = 1
    for p in parts:
        result *= p.size or 1
    return result


class BijectiveLayout:
    """Two layouts of the same axes, and where the elements of one lie in the other; as TVM's `BijectiveLayout`.

    Parameters
    ----------
    src_layout, dst_layout : Layout or str
        The layouts.
    """

    def __init__(self, src_layout: Layout | str, dst_layout: Layout | str) -> None:
        made = [x if isinstance(x, Layout) else Layout(x) for x in (src_layout, dst_layout)]
        self.src_layout, self.dst_layout = made
        if not self.src_layout.name or _axes(made[0]) != _axes(made[1]):
            raise InvalidArgument("the layouts do not fit", found=f"{src_layout}, {dst_layout}",
                                  expected="the same axes in both")  # fmt: skip

    def forward_index(self, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return where an element of the source lies in the destination."""
        return _place(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return where an element of the destination lies in the source."""
        return _place(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return the shape in the destination of what has a shape in the source."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return the shape in the source of what has a shape in the destination."""
        return _shape(self.dst_layout, self.src_layout, shape)


def _axes(layout: Layout) -> set[str]:
    return {p.name.upper() for dim in layout.dims for p in dim}


def _place(source: Layout, target: Layout, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
    an, whole = Analyzer(), dict[str, Any]()
    _check_rank(source, index)
    for dim, value in zip(source.dims, index, strict=True):
        for n, p in enumerate(dim):
            part: Any = as_expr(value)
            if len(dim) > 1:
                part = floordiv(part, const(_product(dim[n + 1 :]), part.dtype))
                part = floormod(part, const(p.size or 1, part.dtype)) if n else part
            part, axis = part * _product(source.blocks(p.name.upper(), p.name)), p.name.upper()
            whole[axis] = whole[axis] + part if axis in whole else part
    places: list[PrimExpr] = []
    for dim in target.dims:
        value: Any = 0
        for p in dim:
            part = whole[p.name.upper()]
            part = floordiv(part, const(_product(target.blocks(p.name.upper(), p.name)), part.dtype))
            value = value * (p.size or 1) + (part if p.size is None else floormod(part, const(p.size, part.dtype)))
        places.append(an.simplify(value))
    return tuple(places)


def _shape(source: Layout, target: Layout, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
    an, whole = Analyzer(), dict[str, Any]()
    _check_rank(source, shape)
    for (p, *_), extent in zip(source.dims, shape, strict=True):
        if p.size is None:
            whole[p.name] = as_expr(extent) * _product(source.blocks(p.name))
    sizes: list[PrimExpr] = []
    for dim in target.dims:
        extent, block = whole[dim[0].name.upper()], _product(target.blocks(dim[0].name))
        is_block = dim[0].size is not None
        sizes.append(const(_product(dim), extent.dtype) if is_block
                     else an.simplify(floordiv(extent, const(block, extent.dtype))))  # fmt: skip
    return tuple(sizes)


def _check_rank(layout: Layout, values: Sequence[Any]) -> None:
    if len(values) != len(layout):
        raise InvalidArgument(f"layout {layout} has {len(layout)} dimensions", found=str(len(values)))


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """Return the layout of a name."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: Layout | str, dst_layout: Layout | str) -> BijectiveLayout | None:
    """Return the way between two layouts, None where there is none."""
    try:
        return BijectiveLayout(src_layout, dst_layout)
    except InvalidArgument:
        return None


SLayout, SBijectiveLayout, slayout, sbijective_layout = Layout, BijectiveLayout, layout, bijective_layout
