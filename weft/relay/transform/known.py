"""What is known of values at compile time: constants, calls of operators on them, and what patterns match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import error, ir
from weft.relay.adt import Constructor, Pattern, PatternConstructor, PatternTuple, PatternVar
from weft.relay.expr import Call, Constant, Tuple, Var, const
from weft.relay.op.evaluate import evaluate
from weft.relay.op.registry import get, has

MAX_BYTES = 1 << 22  # a result above it is folded only where it is no larger than what it is computed from
_FILL = {"zeros_like", "ones_like", "full_like", "full", "dyn.zeros", "dyn.ones", "dyn.full"}
_LEFT = {*_FILL, "device_copy", "on_device", "annotation.stop_fusion", "nn.dropout"}
_OF_SHAPES = {"shape_of", "ndarray_size"}
NO, UNKNOWN = "no", "unknown"


def arrays_of(expr: ir.Node) -> Any:
    """Return the array of a constant, or the tuple of arrays of a tuple of constants; None for anything else."""
    if type(expr) is Constant:
        return expr.data.numpy()
    if type(expr) is not Tuple:
        return None
    fields = tuple(arrays_of(f) for f in expr.fields)
    return None if any(f is None for f in fields) else fields


def constants_of(value: np.ndarray | tuple[Any, ...]) -> Any:
    """Return the constant of an array, or the tuple of constants of a tuple of arrays."""
    return Tuple(tuple(map(constants_of, value))) if isinstance(value, tuple) else const(np.array(value, order="C"))


def evaluate_call(call: Call, value: Callable[[Any], Any] = arrays_of) -> Any:
    """Evaluate a call of an operator whose arguments, or whose argument's shape, are known.

    Returns
    -------
    Expr or None
        A constant or tuple of constants; None where something is not known, the result is large, or there is none.
    """
    if not isinstance(call.op, ir.Op) or not call.args or not has(call.op.name) or call.op.name in _LEFT:
        return None
    op = get(call.op)
    if op.expand is None or not op.pure or str(call.attrs.get("dtype")).startswith("custom["):
        return None
    arrays = [_shape_only(a) for a in call.args] if op.name in _OF_SHAPES else [value(a) for a in call.args]
    if any(a is None for a in arrays):
        return None
    try:
        with np.errstate(all="ignore"):
            result = evaluate(call, arrays)
    except (error.WeftError, ArithmeticError, ValueError, IndexError):
        return None  # it fails at run time, if it is reached
    if _bytes(result) > max(MAX_BYTES, sum(map(_bytes, arrays))):
        return None
    return constants_of(result)


def _shape_only(arg: ir.Expr) -> Any:
    """Return an array of the shape of an expression, of which nothing else is used."""
    ty = arg.ty
    shape = [ir.as_int(d) for d in ty.shape] if isinstance(ty, ir.TensorType) and ty.shape is not None else [None]
    known = tuple(d for d in shape if d is not None)
    return np.broadcast_to(np.zeros((), ir.numpy_dtype(ty.dtype)), known) if len(known) == len(shape) else None


def _bytes(value: Any) -> int:
    return sum(map(_bytes, value)) if isinstance(value, tuple) else value.nbytes


def match_known(pattern: Pattern, value: ir.Expr, known: Callable[[Any], Any], bound: list[tuple[Var, Any]]) -> Any:
    """Compare a value with a pattern as far as both are known.

    Parameters
    ----------
    known : callable
        Returns what a variable or expression stands for: a call of a constructor, a tuple, or anything else.
    bound : list
        Gets the pattern's variables with their values.

    Returns
    -------
    bool or str
        True, ``NO`` or ``UNKNOWN``.
    """
    if isinstance(pattern, PatternVar):
        bound.append((pattern.var, value))
        return True
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return True
    what = known(value)
    if isinstance(pattern, PatternTuple):
        if type(what) is not Tuple:
            return UNKNOWN
        fields = what.fields
    else:
        if type(what) is not Call or type(what.op) is not Constructor:
            return UNKNOWN
        if what.op is not pattern.constructor and what.op.name_hint != pattern.constructor.name_hint:
            return NO
        fields = what.args
    found = [match_known(p, f, known, bound) for p, f in zip(pattern.patterns, fields, strict=True)]
    return NO if NO in found else UNKNOWN if UNKNOWN in found else True
