"""Layouts by letters: ``NCHW16c`` has blocks of 16 of C last, ``OIHW[4o4i]`` those of O and I as one dimension."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from weft.arith import Analyzer
from weft.error import InvalidArgument
from weft.ir import ExprLike, IterVar, PrimExpr, Range, Var, as_expr, const, floordiv, floormod


class Layout:
    """The order of the dimensions of a tensor: axes in upper case, sizes and axes of blocks in lower case.

    Blocks in brackets are one dimension. Nothing, or ``"__undef__"``, is the layout that is not known.

    Raises
    ------
    InvalidArgument
        When an axis or a block occurs twice, or a block's axis is missing.
    TypeError
        When `dtype`, that of the indices, is not int32 or int64.
    """

    def __init__(self, name: str, dtype: str = "int32") -> None:
        if dtype not in ("int32", "int64"):
            raise TypeError(f"the indices of a layout are int32 or int64, not {dtype!r}")
        self.name, self.dtype = ("" if name == "__undef__" else name), dtype
        found = re.fullmatch(r"(?:[A-Z]|\d+[a-z]|\[(?:\d+[a-z])+\])*", self.name)
        self._texts = [t.strip("[]") for t in re.findall(r"[A-Z]|\d+[a-z]|\[[^]]*\]", self.name)]
        self.dims = [re.findall(r"(\d*)([A-Za-z])", t) for t in self._texts]
        names = [n for dim in self.dims for _, n in dim]
        self.blocks = {n.upper(): int(size) for dim in self.dims for size, n in dim if size}
        self.letters = {n for n in names if n.isupper()}
        wrong = len(set(names)) < len(names) or not self.letters >= set(self.blocks) or 0 in self.blocks.values()
        if wrong or not found:
            raise InvalidArgument(f"unknown layout '{name}'", expected="axes such as NCHW, NHWC, NCHW16c, OIHW[4o4i]")

    def __len__(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        return self.name or "__undef__"

    def __contains__(self, axis: str) -> bool:
        return axis in self._texts or any(axis == n for dim in self.dims for _, n in dim)

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"layout {self} has {len(self)} dimensions, no dimension {index}")
        return self._texts[index]

    @property
    def axes(self) -> tuple[IterVar, ...]:
        """An iteration variable for each dimension; the extents of those that are no blocks are variables."""
        ends = [
            Var(f"{t}_shape", self.dtype) if t.isupper() else const(_extent(dim), self.dtype)
            for t, dim in zip(self._texts, self.dims, strict=True)
        ]
        return tuple(
            IterVar(Range(const(0, self.dtype), e), Var(t, self.dtype)) for t, e in zip(self._texts, ends, strict=True)
        )

    def index_of(self, axis: str) -> int:
        """Return the dimension of an axis, -1 where it is none of its own."""
        own = [
            axis == text or (len(dim) == 1 and axis == dim[0][1])
            for text, dim in zip(self._texts, self.dims, strict=True)
        ]
        return own.index(True) if any(own) else -1

    def factor_of(self, axis: str) -> int:
        """Return how many elements the blocks of an axis have, -1 where it has none."""
        return self.blocks.get(axis.upper(), -1)


def _extent(dim: list[tuple[str, str]]) -> int:
    return math.prod(int(size) for size, _ in dim if size)


class BijectiveLayout:
    """Two layouts of the same axes, and where the elements of one lie in the other."""

    def __init__(self, src_layout: Layout | str, dst_layout: Layout | str) -> None:
        self.src_layout, self.dst_layout = (x if isinstance(x, Layout) else Layout(x) for x in (src_layout, dst_layout))
        if not self.src_layout.name or self.src_layout.letters != self.dst_layout.letters:
            raise InvalidArgument(
                "the layouts do not fit", found=f"{src_layout}, {dst_layout}", expected="the same axes in both"
            )

    def forward_index(self, index: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
        """Return where an element of the source lies in the destination."""
        return _place(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
        """Return where an element of the destination lies in the source."""
        return _place(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
        """Return the shape in the destination of what has a shape in the source."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
        """Return the shape in the source of what has a shape in the destination."""
        return _shape(self.dst_layout, self.src_layout, shape)


def _place(source: Layout, target: Layout, index: Sequence[Any]) -> tuple[PrimExpr, ...]:
    whole: dict[str, Any] = {}
    for dim, value in _of_dims(source, index):
        for n, (size, name) in enumerate(dim):
            part, inside = value, _extent(dim[n + 1 :])
            part = floordiv(part, const(inside, part.dtype)) if inside > 1 else part
            part = floormod(part, const(int(size), part.dtype)) if n else part
            part = part if size else part * source.blocks.get(name, 1)
            whole[name.upper()] = whole[name.upper()] + part if name.upper() in whole else part
    places: list[Any] = []
    for dim in target.dims:
        places.append(0)
        for size, name in dim:
            axis = whole[name.upper()]
            block = const(target.blocks.get(name.upper(), 1), axis.dtype)
            places[-1] = places[-1] * block + floormod(axis, block) if size else floordiv(axis, block)
    analyzer = Analyzer()
    return tuple(analyzer.simplify(p) for p in places)


def _shape(source: Layout, target: Layout, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
    whole = {n: d * source.blocks.get(n, 1) for ((size, n), *_), d in _of_dims(source, shape) if not size}
    analyzer = Analyzer()
    dims = [(dim, whole[dim[0][1].upper()]) for dim in target.dims]
    return tuple(
        const(_extent(dim), d.dtype)
        if dim[0][0]
        else analyzer.simplify(floordiv(d, const(target.blocks.get(dim[0][1], 1), d.dtype)))
        for dim, d in dims
    )


def _of_dims(layout: Layout, values: Sequence[Any]) -> list[tuple[list[tuple[str, str]], Any]]:
    if len(values) != len(layout):
        raise InvalidArgument(f"layout {layout} has {len(layout)} dimensions", found=str(len(values)))
    return [(dim, as_expr(v)) for dim, v in zip(layout.dims, values, strict=True)]


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
