"""Expressions of tensor types in random programs: constants and calls of operators.

Numbers stay small, and no integer or bool depends on a float, so that rounding cannot change which way a program goes.
"""

import numpy as np

from tests.relay.programs.kinds import has_any, scalar, shape_of
from weft import relay

INTS = ("int32", "int64")


def constant(d, ty):
    """A constant."""
    shape = shape_of(ty)
    n = int(np.prod(shape))
    if ty.dtype == "bool":
        numbers = [d.chance(2) for _ in range(n)]
    elif ty.dtype == "float32":
        numbers = [d.pick((0.0, 1.0, -1.0, 0.5, -2.0)) for _ in range(n)]
    else:
        numbers = [d.number(-3, 4) for _ in range(n)]
    return relay.const(np.array(numbers, ty.dtype).reshape(shape))


def operation(d, ty, scope):
    """A call of an operator whose result has the type."""
    if has_any(ty):
        return d.pick((_unary, _shifted, _with_itself))(d, ty, scope)
    rules = list(_BOOL if ty.dtype == "bool" else _NUMERIC)
    if ty.dtype == "float32" and shape_of(ty) == () and d.dynamic:
        rules.append(_sum_of_unknown)
    if ty.dtype != "bool" and len(ty.shape) <= 1:
        rules.append(_sum)
    if len(ty.shape) == 2:
        rules += [_transpose, _reshape, _concatenate]
    if shape_of(ty) == (2, 2) and ty.dtype == "float32":
        rules.append(_dense)
    return d.pick(rules)(d, ty, scope)


def _operands(d, ty, scope, dtype=None):
    """Two expressions whose shapes broadcast to the type's."""
    wide = relay.TensorType(ty.shape, dtype or ty.dtype)
    narrow = wide
    if not has_any(ty) and d.chance(3):
        keep = [d.chance(2) for _ in ty.shape]
        narrow = relay.TensorType(tuple(n if k else 1 for n, k in zip(shape_of(ty), keep, strict=True)), wide.dtype)
        if d.chance(2):
            narrow = scalar(wide.dtype)
    pair = d.expr(wide, scope), d.expr(narrow, scope)
    return pair if d.chance(2) else pair[::-1]


def _binary(d, ty, scope):
    a, b = _operands(d, ty, scope)
    return d.pick((relay.add, relay.subtract, relay.maximum, relay.minimum))(a, b)


def _product(d, ty, scope):
    out = relay.multiply(*_operands(d, ty, scope))
    if ty.dtype == "float32":
        return relay.clip(out, -8.0, 8.0)
    return relay.floor_mod(out, relay.const(np.array(d.pick((7, 5)), ty.dtype)))


def _unary(d, ty, scope):
    fns = (relay.negative, relay.abs)
    fns += (relay.tanh, relay.sigmoid, relay.nn.relu) if ty.dtype == "float32" else ()
    return d.pick(fns)(d.expr(ty, scope))


def _cast(d, ty, scope):
    from_ = {"int32": ("int64", "bool"), "int64": ("int32", "bool"), "float32": ("int32", "bool")}[ty.dtype]
    return relay.cast(d.expr(relay.TensorType(ty.shape, d.pick(from_)), scope), ty.dtype)


def _where(d, ty, scope):
    cond = d.expr(relay.TensorType(ty.shape, "bool"), scope)
    return relay.where(cond, d.expr(ty, scope), d.expr(ty, scope))


def _compare(d, ty, scope):
    fns = (relay.less, relay.less_equal, relay.equal, relay.not_equal, relay.greater, relay.greater_equal)
    return d.pick(fns)(*_operands(d, ty, scope, d.pick(INTS)))


def _logical(d, ty, scope):
    if d.chance(3):
        return relay.logical_not(d.expr(ty, scope))
    return d.pick((relay.logical_and, relay.logical_or))(*_operands(d, ty, scope))


def _sum(d, ty, scope):
    """A sum over the first dimension, whose size may be zero."""
    n = d.pick((2, 0, 3))
    return relay.sum(d.expr(relay.TensorType((n, *ty.shape), ty.dtype), scope), axis=0)


def _transpose(d, ty, scope):
    a, b = shape_of(ty)
    return relay.transpose(d.expr(relay.TensorType((b, a), ty.dtype), scope), axes=(1, 0))


def _reshape(d, ty, scope):
    flat = relay.TensorType((int(np.prod(shape_of(ty))),), ty.dtype)
    return relay.reshape(d.expr(flat, scope), shape_of(ty), allowzero=True)


def _concatenate(d, ty, scope):
    a, b = shape_of(ty)
    cut = d.number(0, a)
    halves = [d.expr(relay.TensorType((n, b), ty.dtype), scope) for n in (cut, a - cut)]
    return relay.concatenate(relay.Tuple(tuple(halves)), axis=0)


def _dense(d, ty, scope):
    x, w = (d.expr(relay.TensorType((2, 3), ty.dtype), scope) for _ in range(2))
    return relay.clip(relay.nn.dense(x, w), -8.0, 8.0)


def _sum_of_unknown(d, ty, scope):
    return relay.sum(d.expr(d.pick(d.dynamic), scope))


def _shifted(d, ty, scope):
    return relay.add(d.expr(ty, scope), d.expr(scalar(ty.dtype), scope))


def _with_itself(d, ty, scope):
    x = relay.var("x", ty)
    return relay.Let(x, d.expr(ty, scope), relay.subtract(x, relay.tanh(x)))


_NUMERIC = (_binary, _unary, _product, _cast, _where)
_BOOL = (_compare, _logical, _where)
