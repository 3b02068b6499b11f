"""IndexMap: where an index goes, as expressions that print, compare and save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from weft.arith import Analyzer
from weft.error import InvalidArgument
from weft.ir import IntImm, Node, PrimExpr, Range, Var, as_expr, cast, const, rebuild, substitute

__all__ = ["IndexMap"]


class IndexMap(Node):
    """``final_indices`` in terms of the variables ``initial_indices``."""

    initial_indices: tuple[Var, ...]
    final_indices: tuple[PrimExpr, ...]

    @staticmethod
    def from_func(func: Callable[..., Any], ndim: int | None = None, index_dtype: str = "int64") -> IndexMap:
        """Make a map of a Python function from indices to indices; `ndim` is needed where it takes ``*args``."""
        parameters = signature(func).parameters.values()
        names = [p.name for p in parameters if p.kind != p.VAR_POSITIONAL]
        count = len(names) if ndim is None else ndim
        if len(names) > count or (len(names) < count and len(names) == len(parameters)):
            raise InvalidArgument(
                "the index map takes another number of indices", expected=str(count), found=str(len(names))
            )
        names += [f"i{n}" for n in range(len(names), count)]
        variables = tuple(Var(n, index_dtype) for n in names[:count])
        image = func(*variables)
        image = image if isinstance(image, (list, tuple)) else [image]
        return IndexMap(variables, tuple(as_expr(e, index_dtype) for e in image))

    @staticmethod
    def from_ranges(func: Callable[..., Any], ndim: int, rank: int, index_dtype: str = "int64") -> IndexMap:
        """Make a map of a function to `rank` points or (begin, end) pairs: the ends of each one after another."""

        def ends(*variables: Var) -> list[Any]:
            found = func(*variables)
            found = list(found) if isinstance(found, (list, tuple)) else [found]
            if len(found) == 2 * rank and not any(isinstance(r, (list, tuple)) for r in found):
                return found  # as such a map prints itself
            pairs = [r if isinstance(r, (list, tuple)) else (r, r + 1) for r in found]
            return [e for pair in pairs for e in pair]

        return IndexMap.from_func(ends, ndim, index_dtype)

    def map_indices(self, indices: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return where an index goes."""
        if len(indices) != len(self.initial_indices):
            raise InvalidArgument(
                "the index has another number of dimensions",
                expected=str(len(self.initial_indices)),
                found=str(len(indices)),
            )
        values = {v: as_expr(i, v.dtype) for v, i in zip(self.initial_indices, indices, strict=True)}
        narrow = bool(values) and all(i.dtype == "int32" for i in values.values())
        if not narrow:
            values = {v: cast(v.dtype, i) for v, i in values.items()}
        analyzer = Analyzer()
        return tuple(
            analyzer.simplify(_typed(e, values, "int32") if narrow else substitute(e, values))
            for e in self.final_indices
        )

    def __call__(self, *indices: Any) -> tuple[PrimExpr, ...]:
        """Return where an index goes."""
        return self.map_indices(indices)

    def map_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """Return the shape that holds the image of a box of the given shape."""
        analyzer = Analyzer()
        for v, d in zip(self.initial_indices, shape, strict=True):
            analyzer.bind(v, Range.from_min_extent(const(0, v.dtype), as_expr(d, v.dtype)))
        last = {v: as_expr(d, v.dtype) - 1 for v, d in zip(self.initial_indices, shape, strict=True)}
        out = []
        for e in self.final_indices:
            bound = analyzer.const_int_bound(analyzer.simplify(e))
            top = const(bound.max_value + 1, e.dtype) if bound.max_value < 2**62 else substitute(e, last) + 1
            out.append(analyzer.simplify(top))
        return tuple(out)

    def as_python(self) -> str:
        """Return the map as a Python lambda."""
        return f"lambda {', '.join(v.name for v in self.initial_indices)}: ({', '.join(map(str, self.final_indices))},)"


def _typed(expr: PrimExpr, values: Mapping[Var, PrimExpr], dtype: str) -> PrimExpr:
    """Replace variables by values, and let what was computed in the variables' type be computed in `dtype`."""
    if isinstance(expr, Var):
        return values.get(expr, expr)
    if isinstance(expr, IntImm) and expr.dtype == "int64":
        return const(expr.value, dtype)
    return rebuild(expr, lambda e: _typed(e, values, dtype) if isinstance(e, PrimExpr) else e)
