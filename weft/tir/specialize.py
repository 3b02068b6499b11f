"""Specialize: dimensions of a function become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import arith, error
from weft.ir import IntImm, Node, PrimExpr, Var, as_expr, as_int, children, rewrite
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc


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


def _variables(expr: PrimExpr) -> list[Var]:
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
    return _substituted(func, {v: IntImm(v.dtype, value) for v, value in values.items()})


def specialize_params(func: PrimFunc, param_map: Mapping[Any, Any]) -> PrimFunc:
    """Return a function for given parameters (``PrimFunc.specialize``).

    Parameters
    ----------
    func : PrimFunc
    param_map : mapping of Var or Buffer to PrimExpr, number or Buffer
        For a parameter that is a number, or a variable of the dimensions, its value; a parameter goes then. For one
        that is a buffer, or the buffer itself, another one, whose shape, strides and offset are the values of the
        variables in those of the first.

    Raises
    ------
    InvalidArgument
        When a key is no parameter, or a buffer has another rank, data type, or a number that disagrees.
    """
    if not param_map:
        return func
    values: dict[Any, PrimExpr] = {}
    buffers = {b: b for _, b in func.buffer_map}
    for key, value in param_map.items():
        buffer = buffers.get(key) if isinstance(key, Buffer) else func.buffer_of(key)
        if buffer is not None and isinstance(value, Buffer):
            _bind_buffer(buffer, value, values)
        elif isinstance(key, Var) and buffer is None and not isinstance(value, Buffer):
            _bind(key, as_expr(value, key.dtype), values)
        else:
            raise error.InvalidArgument(
                "what is specialized is a parameter, by a buffer where it is one, else by a number",
                expected=", ".join(p.name for p in func.params),
                found=f"{key}: {value}",
            )
    made = _substituted(func, values)
    return made.replace(params=tuple(p for p in made.params if p not in values))


def _bind(var: PrimExpr, value: PrimExpr, values: dict[Any, PrimExpr]) -> None:
    """Note a variable's value; what is there must agree."""
    known = values.get(var, var)
    if isinstance(var, Var) and known is var:
        values[var] = value
    elif known is not value and not arith.Analyzer().can_prove_equal(known, value):
        raise error.InvalidArgument("a value disagrees", expected=str(known), found=str(value))


def _bind_buffer(old: Buffer, new: Buffer, values: dict[Any, PrimExpr]) -> None:
    if old.ndim != new.ndim or old.dtype != new.dtype:
        raise error.InvalidArgument(
            f"'{old.name}' is specialized by a buffer of another kind",
            expected=f"{old.ndim} dimensions of {old.dtype}",
            found=f"{new.ndim} dimensions of {new.dtype}",
        )
    pairs = [*zip(old.shape, new.shape, strict=True)]
    if old.strides and new.strides:
        pairs += zip(old.strides, new.strides, strict=True)
    if isinstance(old.elem_offset, Var):
        pairs.append((old.elem_offset, as_expr(0) if new.elem_offset is None else new.elem_offset))
    for a, b in pairs:
        _bind(a, as_expr(b, a.dtype) if as_int(b) is not None else b, values)


def _substituted(func: PrimFunc, values: Mapping[Any, PrimExpr]) -> PrimFunc:
    """Put values in the places of variables, the dimensions of buffers among them, and fold."""
    analyzer = arith.Analyzer()

    def fold(node: Node) -> Any:
        parts = list(children(node)) if isinstance(node, PrimExpr) else []
        return analyzer.simplify(node) if parts and all(isinstance(p, IntImm) for p in parts) else node

    made = rewrite(func.replace(params=()), fold, pre=values.get)
    pairs = tuple((p, b) for (p, _), (_, b) in zip(func.buffer_map, made.buffer_map, strict=True))
    return made.replace(params=func.params, buffer_map=pairs)
