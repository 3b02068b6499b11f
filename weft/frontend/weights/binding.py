"""Stored weights as constants of a function's parameters; what is stored in blocks stays in few bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import error, ir, op, relax, runtime
from weft.frontend.weights.files import Groups, Stored
from weft.relax.transform import normalize


def bind_weights(
    mod: ir.IRModule, weights: Mapping[str, Stored | Groups | np.ndarray], function: str = "main", rows: str = "float32"
) -> ir.IRModule:
    """Bind parameters of a function, by name, to weights; matrices in blocks become ``dequantize_groups`` of integers.

    Parameters
    ----------
    rows : str
        What rows that such matrices multiply may be rounded to: ``"float32"`` or ``"int8"``.

    Raises
    ------
    InvalidArgument
        For names that are no parameters, and other shapes.
    """
    func = mod[function]
    assert isinstance(func, ir.Function) and isinstance(func.body, relax.SeqExpr)
    params = {p.name_hint: p for p in func.params}
    unknown = sorted(set(weights) - set(params))
    if unknown:
        raise error.InvalidArgument(
            f"'{function}' has no such parameters", found=", ".join(unknown), expected=", ".join(params)
        )
    bound = {params[name]: _value(params[name], weight, rows) for name, weight in weights.items()}
    calls = {p: v for p, v in bound.items() if isinstance(v, ir.Call)}

    def rule(_binding: Any, value: ir.Expr, bb: Any) -> ir.Expr | None:
        used = {p: bb.emit(v) for p, v in calls.items() if any(n is p for n in ir.walk(value))}
        return ir.substitute(value, used) if used else None

    body = ir.substitute(func.body, {p: v for p, v in bound.items() if p not in calls})
    kept = tuple(p for p in func.params if p not in bound)
    made = relax.rewrite_bindings(func.replace(params=kept, body=body, ty=None), mod, rule)
    return normalize()(mod.with_functions({**mod.functions, mod.get_global_var(function): made}))


def _value(param: Any, weight: Stored | Groups | np.ndarray, rows: str) -> ir.Expr:
    shape = tuple(ir.as_int(d) for d in param.ty.shape)
    found = tuple((weight.q if isinstance(weight, Groups) else weight).shape)
    if shape != found:
        raise error.InvalidArgument(
            f"parameter '{param.name_hint}' has another shape", expected=str(shape), found=str(found)
        )
    dtype = str(param.ty.dtype)
    if isinstance(weight, Stored) and weight.is_quantized and len(shape) == 2:
        weight = weight.groups()
    if isinstance(weight, Groups):
        q, scale, zero, group = weight
        parts = [ir.constant(runtime.aligned(np.ascontiguousarray(a))) for a in (q, scale, zero)]
        return op.make_call("dequantize_groups")(*parts, axis=1, group=group, out_dtype=dtype, rows=rows)
    values = weight.numpy() if isinstance(weight, Stored) else weight
    return ir.constant(runtime.aligned(np.ascontiguousarray(values).astype(ir.numpy_dtype(dtype))))
