"""Element-wise operators of one and more operands; activations are in ``activation``."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from weft import error, tir
from weft.ir import DataType, Expr, ExprVar, PrimType, TensorType, numpy_dtype
from weft.op.attributes import dtype, number
from weft.op.infer import broadcast, broadcast_dims, same_as, same_dtype, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.broadcast import elementwise
from weft.topi.elementwise import BINARY, FLOAT_UNARY, UNARY, astype, clip, where, within
from weft.topi.math import reinterpret


def erf_reference(x: np.ndarray) -> np.ndarray:
    """Compute the error function, for which NumPy has no name, in float64."""
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64)) if np.size(x) else np.asarray(x)


_REFERENCES: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "erf": erf_reference,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-np.asarray(x, np.float64))),
    "reciprocal": lambda x: 1 / np.asarray(x, np.float64),
    "bitwise_not": np.invert,
    "round": np.round,
}


def _unary(name: str, dtype: str | None = None, kind: str = "") -> None:
    reference = _REFERENCES.get(name) or getattr(np, name)

    def ref(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(reference(x)).astype(numpy_dtype(dtype) if dtype else x.dtype)

    declare(
        name,
        "x",
        infer=same_as(name, dtype, kind),
        lower=lambda x: elementwise(UNARY[name], x, name="T_" + name),
        reference=ref,
        fusion=Fusion.ELEMENTWISE,
        doc=f"Element-wise ``{name}``.",
        tags=("unary",),
    )


for _name in FLOAT_UNARY:
    _unary(_name, kind="float")
for _name in ("abs", "ceil", "floor", "round", "square", "trunc"):
    _unary(_name)
for _name in ("negative", "sign"):
    _unary(_name, kind="number")
for _name in ("logical_not", "isnan", "isinf", "isfinite"):
    _unary(_name, "bool")
_unary("bitwise_not", kind="integral")


def _clip_ref(x: Any, min: Any, max: Any) -> Any:
    y = x if min is None else np.maximum(x, np.asarray(within(min, x.dtype.name)).astype(x.dtype))
    return y if max is None else np.minimum(y, np.asarray(within(max, x.dtype.name)).astype(x.dtype))


declare(
    "clip",
    "x",
    {"min": number(None).or_none(), "max": number(None).or_none()},
    infer=same_as("clip"),
    lower=clip,
    reference=_clip_ref,
    fusion=Fusion.ELEMENTWISE,
    doc="Limit to ``min..max``; either may be None.",
)


def _cast_infer(op: str, x: Expr, dtype: str) -> TensorType:
    ty = tensor_arg(op, "x", x)
    return TensorType(ty.shape, DataType(dtype), ty.ndim, ty.vdevice)


def _cast_ref(x: Any, dtype: str) -> Any:
    """Convert as kernels do: of floats that are beyond an integer's range the end of it, of NaN 0."""
    x, target = np.asarray(x), DataType(dtype)
    with np.errstate(all="ignore"):
        if not target.is_integer or x.dtype.kind in "iub":
            return x.astype(numpy_dtype(dtype))
        signed = target.code == "int"
        low, beyond = -(1 << target.bits - 1) if signed else 0, 1 << target.bits - signed
        exact = np.trunc(x.astype(np.float64))
        made = np.where((low < exact) & (exact < beyond), exact, 0).astype(numpy_dtype(dtype))
        made[exact >= beyond], made[exact <= low] = beyond - 1, low
        return made


for _name, _doc in (
    (
        "astype",
        "Convert to another data type; float to integer truncates, keeps to the range's ends and makes 0 of NaN.",
    ),
    (
        "wrap_param",
        "Convert a parameter of a model; programs that compute with another type mark with it what they may.",
    ),
):
    declare(
        _name,
        "x" if _name == "astype" else "data",
        {"dtype": dtype("float32")},
        infer=lambda x, dtype, _op=_name: _cast_infer(_op, x, dtype),
        lower=astype,
        reference=_cast_ref,
        fusion=Fusion.ELEMENTWISE,
        doc=_doc,
    )


def _reinterpret_infer(x: Expr, dtype: str) -> TensorType:
    ty = tensor_arg("reinterpret", "x", x)
    if ty.dtype and (DataType(ty.dtype).bits != DataType(dtype).bits or "bool" in (ty.dtype, dtype)):
        raise error.DTypeMismatch(
            "reinterpret: data types of different sizes",
            expected=f"{DataType(dtype).bits} bits",
            found=ty.dtype,
            where=x.span,
        )
    return TensorType(ty.shape, DataType(dtype), ty.ndim, ty.vdevice)


declare(
    "reinterpret",
    "x",
    {"dtype": dtype("float32")},
    infer=_reinterpret_infer,
    lower=reinterpret,
    reference=lambda x, dtype: np.ascontiguousarray(x).view(numpy_dtype(dtype)).reshape(np.shape(x)),
    fusion=Fusion.ELEMENTWISE,
    doc="The same bits as another data type of their size.",
)


# --- two operands -----------------------------------------------------------------------------------------------------


def _guarded(integers: Any, floats: Any) -> Any:
    """A division whose integer form gives 0 for a zero divisor."""
    return lambda a, b: (
        np.where(b == 0, 0, integers(a, np.where(b == 0, 1, b))) if a.dtype.kind in "iu" else floats(a, b)
    )


def _truncated(a: Any, b: Any) -> Any:
    q = a // b
    return np.where(((a < 0) != (b < 0)) & (q * b != a), q + np.ones_like(q), q)


def _power_ref(a: Any, b: Any) -> Any:
    wide = np.float64 if a.dtype.kind in "fV" else a.dtype
    return tir.INTRINSICS["pow"].reference(a.astype(wide), b.astype(wide))


_BINARY_REFERENCES: dict[str, Any] = {
    "atan2": np.arctan2,
    "divide": _guarded(_truncated, np.divide),
    "floor_divide": _guarded(np.floor_divide, lambda a, b: np.floor(a / b)),
    "floor_mod": _guarded(np.mod, np.mod),
    "fmod": _guarded(np.fmod, np.fmod),
    "log_add_exp": np.logaddexp,
    "mod": _guarded(np.mod, np.mod),
    "power": _power_ref,
}
_BINARY_DOCS = {
    "divide": "Division; integers round towards zero and a zero divisor gives 0.",
    "floor_mod": "Remainder with the sign of the divisor.",
    "fmod": "Remainder with the sign of the dividend, as C's fmod.",
    "log_add_exp": "``log(exp(lhs) + exp(rhs))`` without overflow.",
    "mod": "Remainder with the sign of the divisor.",
    "power": "Power; an integer to a negative one is the quotient 1 / lhs**-rhs, rounded towards zero (0 for 0).",
}
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_KINDS = {
    **dict.fromkeys(("atan2", "log_add_exp"), "float"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), "integral"),
    **dict.fromkeys(("left_shift", "right_shift"), "integer"),
    **dict.fromkeys(("divide", "floor_divide", "floor_mod", "fmod", "mod", "subtract"), "number"),
}
"""The kinds of operands of those that do not take every data type: NumPy answers them for others with another type."""


def _binary_infer(name: str, dtype: str | None, kind: str, lhs: Expr, rhs: Expr) -> TensorType | PrimType:
    scalars = [arg for arg in (lhs, rhs) if isinstance(arg.ty, PrimType)]
    for side, arg in (("lhs", lhs), ("rhs", rhs)):
        tensor_arg(name, side, ExprVar(side, TensorType((), arg.ty.dtype, 0)) if arg in scalars else arg, kind=kind)  # type: ignore[union-attr]
    shared = same_dtype(name, lhs, rhs)
    if len(scalars) == 2:
        return PrimType(dtype or shared)
    if not scalars:
        return broadcast(name, lhs, rhs, dtype=dtype)
    ty: TensorType = (rhs if lhs in scalars else lhs).ty
    return TensorType(ty.shape, dtype if dtype is not None else ty.dtype, ty.ndim, ty.vdevice)


def _binary(name: str, dtype: str | None = None, kind: str = "") -> None:
    reference = _BINARY_REFERENCES.get(name) or getattr(np, name)

    def ref(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            out = np.asarray(reference(np.asarray(a), np.asarray(b)))
        return out.astype(numpy_dtype(dtype) if dtype else np.asarray(a).dtype)

    declare(
        name,
        "lhs rhs",
        infer=partial(_binary_infer, name, dtype, kind),
        lower=lambda a, b: elementwise(BINARY[name], a, b, name="T_" + name),
        reference=ref,
        fusion=Fusion.BROADCAST,
        doc=_BINARY_DOCS.get(name, f"Element-wise ``{name}`` with broadcasting."),
        tags=("binary",),
    )


for _name in BINARY:
    _binary(_name, "bool" if _name in _COMPARISONS + _LOGICAL else None, _KINDS.get(_name, ""))


def _where_infer(condition: Expr, x1: Expr, x2: Expr) -> TensorType:
    c = tensor_arg("where", "condition", condition)
    if c.dtype and c.dtype != "bool":
        raise error.DTypeMismatch(
            "where: 'condition' has the wrong data type", expected="bool", found=c.dtype, where=condition.span
        )
    types = [c, tensor_arg("where", "x1", x1), tensor_arg("where", "x2", x2)]
    dtype = same_dtype("where", x1, x2)
    if any(t.shape is None for t in types):
        return TensorType(None, dtype, max(t.ndim for t in types) if all(t.ndim >= 0 for t in types) else -1)
    dims = broadcast_dims("where", *(t.shape for t in types))  # type: ignore[misc]
    return TensorType(dims, dtype, len(dims))


declare(
    "where",
    "condition x1 x2",
    infer=_where_infer,
    lower=where,
    reference=np.where,
    fusion=Fusion.BROADCAST,
    doc="``x1`` where `condition` holds, else ``x2``.",
)

declare(
    "ewise_fma",
    "x1 x2 x3",
    infer=lambda x1, x2, x3: broadcast("ewise_fma", x1, x2, x3),
    lower=lambda x1, x2, x3: elementwise(lambda a, b, c: a * b + c, x1, x2, x3, name="T_fma"),
    reference=lambda x1, x2, x3: (
        (x1.astype(np.float64) * x2 + x3).astype(x1.dtype) if x1.dtype.kind in "fV" else x1 * x2 + x3
    ),
    fusion=Fusion.BROADCAST,
    doc="``x1 * x2 + x3``.",
)
