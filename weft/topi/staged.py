"""Kernels of single operators as stages of TOPI's functions, which schedules for such kernels look for.

Stages that are element by element are inlined when a kernel is scheduled. The operators' own ``lower`` is one stage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import topi
from weft.topi import quant
from weft.topi.activation import STEPWISE

_LIMITED = {name: functools.partial(getattr(quant, name), limited=True) for name in ("dequantize", "quantize")}
_STAGES = {f"nn.{name}": functools.partial(STEPWISE[name], of=topi) for name in ("gelu", "gelu_tanh", "silu")}


def stages_of(name: str, dtype: str) -> Callable[..., Any] | None:
    """Return what computes an operator on tensors of a type; None where that is the operator's own ``lower``.

    Stages of a type narrower than float32 would round to it.
    """
    return _LIMITED.get(name) or (_STAGES.get(name) if dtype in ("float32", "float64") else None)
