"""Layers whose weights are transposed once and for all."""

from __future__ import annotations

from typing import Any

from weft import ir, runtime
from weft.relay.data_dep_optimization.bsr_dense import Params, replaced, weights_of
from weft.relay.expr import Call, Function, Var
from weft.relay.types import TensorType


def convert(func: Function, params: Params) -> tuple[Function, Params]:
    """Read ``w.T`` where layers transpose a weight ``w``; it takes its place in `params`, which are returned, too."""
    made: dict[Any, Any] = {}
    for e in weights_of(func):
        weight: Any = e.args[0] if type(e) is Call and e.op is ir.Op.get("transpose") else None
        axes = e.attrs["axes"] if weight is not None else None
        turned = axes is None or [ir.as_int(a) for a in axes] == [1, 0]
        if weight not in func.params or weight.name_hint not in params or not turned:
            continue
        array = params[weight.name_hint].numpy().T.copy()
        params[f"{weight.name_hint}.T"] = runtime.tensor(array)
        made[e] = Var(f"{weight.name_hint}.T", TensorType(array.shape, str(array.dtype)))
    found = replaced(func, made)
    for name in {e.args[0].name_hint for e in made} - {p.name_hint for p in found.params}:
        del params[name]
    return found, params
