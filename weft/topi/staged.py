"""Kernels of single operators as stages of TOPI's functions, which schedules for such kernels look for.

Stages that are element by element are inlined when a kernel is scheduled. The operators' own ``lower`` is one stage.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from weft import ir, te, topi
from weft.topi import quant


def _gelu(x: te.Tensor) -> Any:
    error = topi.erf(topi.multiply(x, ir.const(0.5**0.5, x.dtype)))
    return topi.multiply(x, topi.add(ir.const(0.5, x.dtype), topi.multiply(error, ir.const(0.5, x.dtype))))


def _gelu_tanh(x: te.Tensor) -> Any:
    half, one, root, cubic = (ir.const(v, x.dtype) for v in (0.5, 1.0, (2 / math.pi) ** 0.5, 0.044715))
    square = topi.multiply(topi.multiply(cubic, x), x)
    inner = topi.multiply(topi.multiply(root, x), topi.add(one, square))
    return topi.multiply(topi.multiply(half, x), topi.add(one, topi.tanh(inner)))


_LIMITED = {name: functools.partial(getattr(quant, name), limited=True) for name in ("dequantize", "quantize")}
_STAGES = {"nn.gelu": _gelu, "nn.gelu_tanh": _gelu_tanh, "nn.silu": lambda x: topi.multiply(x, topi.sigmoid(x))}


def stages_of(name: str, dtype: str) -> Callable[..., Any] | None:
    """Return what computes an operator on tensors of a type; None where that is the operator's own ``lower``.

    Stages of a type narrower than float32 would round to it.
    """
    return _LIMITED.get(name) or (_STAGES.get(name) if dtype in ("float32", "float64") else None)
