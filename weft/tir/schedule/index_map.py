"""IndexMap: where an index goes, as expressions that print, compare and save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from math import lcm
from typing import Any, ClassVar

import numpy as np

from weft import ir
from weft.arith import Analyzer, detect_iter_map, inverse_affine_iter_map
from weft.error import InvalidArgument
from weft.ir.text.doc import Doc
from weft.ir.text.printer import EXPR, Printer
from weft.runtime import Tensor, tensor
from weft.spelling import also_called
from weft.tir.analysis.apart import values_at
from weft.tir.analysis.structure import used_vars


class IndexMap(ir.Node):
    """``final_indices`` in terms of the variables ``initial_indices``."""

    AXIS_SEPARATOR: ClassVar[str] = "axis_separator"
    initial_indices: tuple[ir.Var, ...]
    final_indices: tuple[ir.PrimExpr, ...]

    @staticmethod
    @also_called(mapping_function="func")
    def from_func(
        func: Callable[..., Any], ndim: int | None = None, inverse_index_map: Any = None, *, index_dtype: str = "int64"
    ) -> IndexMap:
        """Make a map of a Python function from indices to indices; `ndim` is needed where it takes ``*args``.

        Names behind them stand for the last indices. A given inverse is not looked at: :meth:`inverse` finds it.
        """
        parameters = signature(func).parameters.values()
        names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)]
        last = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
        least = len(names) + len(last)
        count = least if ndim is None else ndim
        if least > count or (least < count and least == len(parameters)):
            raise InvalidArgument(
                "the index map takes another number of indices", expected=str(count), found=str(least)
            )
        names += [f"i{n}" for n in range(len(names), count - len(last))]
        variables = tuple(ir.Var(n, index_dtype) for n in (*names, *last))
        image = func(*variables[: len(names)], **dict(zip(last, variables[len(names) :], strict=True)))
        image = image if isinstance(image, (list, tuple)) else [image]
        return IndexMap(variables, tuple(ir.as_expr(e, index_dtype) for e in image))

    @staticmethod
    @also_called(mapping_function="func")
    def from_func_with_separators(
        func: Callable[..., Any], ndim: int | None = None, inverse_index_map: Any = None, *, index_dtype: str = "int64"
    ) -> tuple[IndexMap, tuple[int, ...]]:
        """Make a map of a function that says ``AXIS_SEPARATOR`` between some indices, and return where it did."""
        found: list[int] = []

        def plain(*indices: Any, **named: Any) -> list[Any]:
            image = func(*indices, **named)
            image = list(image) if isinstance(image, (list, tuple)) else [image]
            is_mark = [isinstance(e, str) and e == IndexMap.AXIS_SEPARATOR for e in image]
            found[:] = [n - i for i, n in enumerate(n for n, mark in enumerate(is_mark) if mark)]
            return [e for e, mark in zip(image, is_mark, strict=True) if not mark]

        plain.__signature__ = signature(func)  # type: ignore[attr-defined]
        return IndexMap.from_func(plain, ndim, inverse_index_map, index_dtype=index_dtype), tuple(found)

    @staticmethod
    def from_ranges(func: Callable[..., Any], ndim: int, rank: int, index_dtype: str = "int64") -> IndexMap:
        """Make a map of a function to `rank` points or (begin, end) pairs: the ends of each one after another."""

        def ends(*variables: ir.Var) -> list[Any]:
            found = func(*variables)
            found = list(found) if isinstance(found, (list, tuple)) else [found]
            if len(found) == 2 * rank and not any(isinstance(r, (list, tuple)) for r in found):
                return found  # as such a map prints itself
            pairs = [r if isinstance(r, (list, tuple)) else (r, r + 1) for r in found]
            return [e for pair in pairs for e in pair]

        return IndexMap.from_func(ends, ndim, index_dtype=index_dtype)

    def map_indices(self, indices: Sequence[Any], analyzer: Analyzer | None = None) -> tuple[ir.PrimExpr, ...]:
        """Return where an index goes, in the type of its parts; an analyzer knows more than the map says."""
        if len(indices) != len(self.initial_indices):
            raise InvalidArgument(
                "the index has another rank", expected=str(len(self.initial_indices)), found=str(len(indices))
            )
        values = {v: ir.as_expr(i, v.dtype) for v, i in zip(self.initial_indices, indices, strict=True)}
        kinds = {i.dtype for i in values.values()}
        own = kinds.pop() if len(kinds) == 1 else ""
        if own not in ("int32", "int64"):
            values = {v: ir.cast(v.dtype, i) for v, i in values.items()}
        analyzer = analyzer or Analyzer()
        return tuple(
            analyzer.simplify(_typed(e, values, own) if own in ("int32", "int64") else ir.substitute(e, values))
            for e in self.final_indices
        )

    def __call__(self, *indices: ir.PrimExpr) -> tuple[ir.PrimExpr, ...]:
        """Return where an index goes."""
        return self.map_indices(indices)

    def map_shape(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> tuple[ir.PrimExpr, ...]:
        """Return the shape that holds the image of a box of the given shape, in the widest type of both.

        Raises
        ------
        InvalidArgument
            When an index has no bound that the sizes tell.
        """
        analyzer, extents = analyzer or Analyzer(), [ir.as_expr(d) for d in shape]
        wide = max((e.dtype for e in (*self.final_indices, *extents)), key=lambda t: ir.DataType(t).bits)
        box = {
            v: ir.Range.from_min_extent(ir.const(0, v.dtype), ir.cast(v.dtype, d))
            for v, d in zip(self.initial_indices, extents, strict=True)
        }
        for v, r in box.items():
            analyzer.bind(v, r)
        exact = all(isinstance(d, ir.IntImm) for d in extents)
        out = []
        for e in map(analyzer.simplify, self.final_indices):
            top = ir.const(analyzer.const_int_bound(e).max_value, e.dtype) if exact else None
            top = top or analyzer.int_set(e, box).max_value
            if not isinstance(top, ir.PrimExpr) or not used_vars(top).isdisjoint(box):
                raise InvalidArgument(f"the index {e} has no bound", found=f"({', '.join(map(str, extents))})")
            out.append(analyzer.simplify(ir.cast(wide, top + 1)))
        return tuple(out)

    def is_equivalent_to(self, other_map: IndexMap, analyzer: Analyzer | None = None) -> bool:
        """Whether another map is proved to take every index to the same place."""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        analyzer = analyzer or Analyzer()
        images = other_map.map_indices(self.initial_indices, analyzer)
        return len(images) == len(self.final_indices) and all(
            analyzer.can_prove_equal(a, b) for a, b in zip(self.final_indices, images, strict=True)
        )

    def inverse(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> IndexMap:
        """Return the map from places back to indices of a box: extents, or ranges.

        Raises
        ------
        InvalidArgument
            When the map is not known to be one to one between the box and the shape of its image.
        """
        analyzer = analyzer or Analyzer()
        box = {
            v: d if isinstance(d, ir.Range) else ir.Range.from_min_extent(ir.const(0, v.dtype), ir.as_expr(d, v.dtype))
            for v, d in zip(self.initial_indices, shape, strict=True)
        }
        for v, r in box.items():  # what does not cross a quotient's steps leaves it
            analyzer.bind(v, r, allow_override=True)
        image = [analyzer.simplify(e) for e in self.final_indices]
        found = detect_iter_map(image, box, check_level="bijective", analyzer=analyzer)
        if len(found.indices) != len(image):
            raise InvalidArgument(
                f"{self.as_python()} has no inverse on the box",
                found=f"({', '.join(str(d) for d in shape)})",
                help="; ".join(("each place must come from one index", *found.errors)),
            )
        outs = [ir.Var(e.name if isinstance(e, ir.Var) else f"axis{n}", e.dtype) for n, e in enumerate(image)]
        back = inverse_affine_iter_map(found.indices, outs)
        units = {v: r.min for v, r in box.items() if v not in back}
        return IndexMap(tuple(outs), tuple(analyzer.simplify({**units, **back}[v]) for v in self.initial_indices))

    def non_surjective_inverse(
        self, shape: Sequence[Any], analyzer: Analyzer | None = None
    ) -> tuple[IndexMap, ir.PrimExpr]:
        """Return the map from places back to indices, and whether nothing of a box goes to a place.

        Extents are rounded up to what constants divide them by, so that each place comes from one index, which may
        lie outside of the box.
        """
        steps = [
            d.value
            for e in self.final_indices
            for n in ir.walk(e)
            if isinstance(n, (ir.FloorDiv, ir.FloorMod))
            for d in (n.b,)
            if isinstance(d, ir.IntImm) and d.value > 0
        ]
        unit, analyzer = lcm(*steps), analyzer or Analyzer()
        extents = [ir.as_expr(d, v.dtype) for v, d in zip(self.initial_indices, shape, strict=True)]
        used = [
            any(v in set(ir.walk(n)) for e in self.final_indices for n in ir.walk(e) if isinstance(n, ir.FloorDiv))
            for v in self.initial_indices
        ]
        padded = [
            analyzer.simplify(ir.ceildiv(ir.cast(v.dtype, d), unit) * unit) if u else ir.cast(v.dtype, d)
            for v, d, u in zip(self.initial_indices, extents, used, strict=True)
        ]
        back = self.inverse(padded, analyzer)
        outside: ir.PrimExpr = ir.const(False, "bool")
        for e, d, p in zip(back.final_indices, extents, padded, strict=True):
            if not analyzer.can_prove_equal(d, p):
                outside = ir.logical_or(outside, e >= ir.cast(e.dtype, d))
        return back, outside

    def map_tensor(self, arr_src: Tensor, fill: Any = 0) -> Tensor:
        """Return a tensor whose element at ``self(i)`` is that of `arr_src` at ``i``; where nothing goes is `fill`."""
        source = arr_src.numpy()
        image = [ir.as_int(d) or 0 for d in self.map_shape(source.shape)]
        out = np.full(image, fill, source.dtype)
        places = np.indices(source.shape).reshape(source.ndim, -1)
        env = dict(zip(self.initial_indices, places, strict=True))
        found = [values_at(e, env) for e in self.final_indices]
        if any(f is None for f in found):
            raise InvalidArgument("an index is not made of sums, products and quotients", found=self.as_python())
        out[tuple(np.broadcast_to(f, places.shape[1:]) for f in found)] = source.reshape(-1)  # type: ignore[arg-type]
        return tensor(out)

    map_ndarray = map_tensor

    def as_python(self) -> str:
        """Return the map as a Python lambda."""
        return f"lambda {', '.join(v.name for v in self.initial_indices)}: ({', '.join(map(str, self.final_indices))},)"


def _typed(expr: ir.PrimExpr, values: Mapping[ir.Var, ir.PrimExpr], dtype: str) -> ir.PrimExpr:
    """Replace variables by values, and let what was computed in the variables' type be computed in `dtype`."""
    if isinstance(expr, ir.Var):
        return values.get(expr, expr)
    if isinstance(expr, ir.IntImm):
        return ir.const(expr.value, dtype) if expr.dtype in ("int32", "int64") else expr
    return ir.rebuild(expr, lambda e: _typed(e, values, dtype) if isinstance(e, ir.PrimExpr) else e)


@EXPR.on(IndexMap)
def _(node: IndexMap, p: Printer) -> Doc:
    p.dialects.add("T")
    kinds = {v.dtype for v in node.initial_indices} - {"int64"}
    return f"T.index_map({node.as_python()}{''.join(f', index_dtype={chr(34)}{k}{chr(34)}' for k in kinds)})"
