"""Regions between annotations: what ``compiler_begin`` and ``compiler_end`` enclose, as sets of expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import error, ir
from weft.relay.adt import Match
from weft.relay.analysis.excerpt import excerpt
from weft.relay.expr import Call, Function, Let
from weft.relay.walk import operator_name, parts, rewrite

BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"


def annotation_of(expr: ir.Expr, name: str) -> str | None:
    """The compiler that an annotation of the operator `name` is for; None for other expressions."""
    return expr.attrs["compiler"] if operator_name(expr) == name else None  # type: ignore[attr-defined]


class AnnotatedRegion:
    """A region: its annotations at the border, and all expressions between them.

    Attributes
    ----------
    id : int
        Its number within the set.
    target : str
        The compiler.
    args, rets : list of Expr
        The annotations where values come in and go out.
    nodes : set of Expr
        Everything, both annotations included.
    """

    def __init__(self, number: int, target: str) -> None:
        self.id, self.target = number, target
        self.nodes: set[Any] = set()
        self._ins: dict[Any, None] = {}
        self._outs: dict[Any, None] = {}
        self._into: AnnotatedRegion | None = None

    @property
    def args(self) -> list[Any]:
        """The annotations of what comes in."""
        return list(self._ins)

    @property
    def rets(self) -> list[Any]:
        """The annotations of what goes out."""
        return list(self._outs)

    def __repr__(self) -> str:
        return f"AnnotatedRegion({self.id}, {self.target!r}, {len(self.nodes)} expressions)"


class AnnotatedRegionSet:
    """The regions of a function.

    Parameters
    ----------
    expr : Function or Expr
        What is annotated.
    region_begin_op, region_end_op : Op, optional
        The annotations; by default ``annotation.compiler_begin`` and ``annotation.compiler_end``.

    Raises
    ------
    InvalidArgument
        When a region ends that did not begin, or ends for another compiler.
    """

    def __init__(self, expr: Any, region_begin_op: ir.Op | None = None, region_end_op: ir.Op | None = None) -> None:
        self._begin = region_begin_op.name if region_begin_op is not None else BEGIN
        self._end = region_end_op.name if region_end_op is not None else END
        self._of: dict[Any, AnnotatedRegion] = {}
        self._made: list[AnnotatedRegion] = []
        rewrite(expr, self._visit)

    def get_region(self, expr: ir.Expr) -> AnnotatedRegion | None:
        """Return the region that an expression is in."""
        region = self._of.get(expr)
        return None if region is None else self.whole(region)

    def whole(self, region: AnnotatedRegion) -> AnnotatedRegion:
        """Return what a region has become part of by merging; itself at first."""
        while region._into is not None:
            region = region._into
        return region

    def __len__(self) -> int:
        return sum(r._into is None for r in self._made)

    def __iter__(self) -> Iterator[AnnotatedRegion]:
        return (r for r in self._made if r._into is None)

    def merge(self, source: AnnotatedRegion, into: AnnotatedRegion) -> None:
        """Make one region of two; annotations between them are inside then."""
        if source is into:
            return
        few, many = sorted((source.nodes, into.nodes), key=len)
        many |= few
        into.nodes, source._into = many, into
        into._ins |= source._ins
        into._outs |= source._outs
        for begin in [i for i in into._ins if self.get_region(i.args[0]) is into]:
            del into._ins[begin]
            into._outs.pop(begin.args[0], None)

    def _visit(self, expr: Any) -> Any:
        if (target := annotation_of(expr, self._begin)) is not None:
            region = AnnotatedRegion(len(self._made), target)
            self._made.append(region)
            self._put(expr, region)
            region._ins[expr] = None
        elif (target := annotation_of(expr, self._end)) is not None:
            region = self.get_region(expr.args[0])
            if region is None or region.target != target:
                raise error.InvalidArgument(
                    "a region ends that did not begin" if region is None else "a region ends for another compiler",
                    where=expr.span,
                    expected=f"a {self._begin} for '{target if region is None else region.target}'",
                    found=excerpt(expr),
                )
            self._put(expr, region)
            region._outs[expr] = None
        elif type(expr) is Call:
            self._join(expr, expr.args)
        elif type(expr) not in (Function, Let, Match):
            self._join(expr, list(parts(expr)))
        return expr

    def _put(self, expr: ir.Expr, region: AnnotatedRegion) -> None:
        self._of[expr] = region
        region.nodes.add(expr)

    def _join(self, expr: ir.Expr, operands: Sequence[Any]) -> None:
        """Put an expression into the one region that its operands are in, as far as these did not end."""
        inside: AnnotatedRegion | None = None
        for o in operands:
            region = self.get_region(o) if annotation_of(o, self._end) is None else None
            if region is not None:
                inside = inside or region
                self.merge(region, inside)
        if inside is not None:
            self._put(expr, inside)
