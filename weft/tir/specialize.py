"""Specialize: dimensions of a function become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.arith import Analyzer
from weft.ir import IntImm, PrimExpr, Var, children, rewrite
from weft.tir.function import PrimFunc

__all__ = ["dimension_places", "specialize"]


def dimension_places(func: PrimFunc) -> list[tuple[Var, int, int]] | None:
    """Say where the symbolic dimensions of a function's arguments can be read.

    Returns
    -------
    list of (variable, argument, dimension), or None
        Dimension -1: the argument itself, an integer. None when a dimension appears only inside an expression.
    """
    places: dict[Any, tuple[Var, int, int]] = {}
    needed: set[Var] = set()
    for i, p in enumerate(func.params):
        buffer = func.buffer_of(p)
        if buffer is None:
            if str(p.dtype) in ("int32", "int64"):
                places.setdefault(p, (p, i, -1))
            continue
        for k, d in enumerate(buffer.shape):
            if isinstance(d, Var):
                places.setdefault(d, (d, i, k))
            needed.update(_variables(d))
    return None if any(v not in places for v in needed) else list(places.values())


def _variables(expr: Any) -> list[Var]:
    if isinstance(expr, Var):
        return [expr]
    return [v for c in children(expr) if isinstance(c, PrimExpr) for v in _variables(c)]


def specialize(func: PrimFunc, values: Mapping[Var, int]) -> PrimFunc:
    """Return a function for given values of its symbolic dimensions.

    Parameters
    ----------
    func : PrimFunc
        The function; it takes the same arguments afterwards.
    values : mapping of Var to int
        Dimensions of parameters, or parameters that are integers.
    """
    known: dict[Any, IntImm] = {v: IntImm(v.dtype, value) for v, value in values.items()}
    analyzer = Analyzer()

    def fold(node: Any) -> Any:
        if isinstance(node, PrimExpr) and not isinstance(node, IntImm):
            parts = list(children(node))
            if parts and all(isinstance(p, IntImm) for p in parts):
                return analyzer.simplify(node)
        return node

    made = rewrite(func.replace(params=()), fold, pre=known.get)
    pairs = tuple((p, b) for (p, _), (_, b) in zip(func.buffer_map, made.buffer_map, strict=True))
    return made.replace(params=func.params, buffer_map=pairs)
