"""Calibrating: the steps of weights come from their values, those of activations from data or the configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument
from weft.relay.analysis import free_vars, post_order_visit
from weft.relay.bind import bind
from weft.relay.executor import create_executor
from weft.relay.expr import Call, Function, Tuple, const
from weft.relay.quantize.config import QAnnotateKind, current_qconfig
from weft.relay.walk import rewrite
from weft.support.ranges import METHODS, observe
from weft.target import Target

SIMULATED = ir.Op.get("relay.op.annotation.simulated_quantize")
_METHODS = {"kl_divergence": "entropy", "percentile": "percentile"}
_WEIGHT = QAnnotateKind.WEIGHT


def calibrate(dataset: Iterable[Mapping[str, Any]] | None = None) -> Callable[..., ir.IRModule]:
    """Return a function over modules, ``fn(mod, ctx)``, that gives each ``simulated_quantize`` its step and limits.

    Parameters
    ----------
    dataset : iterable of mapping of str to array, optional
        Batches of inputs by name; ``"kl_divergence"`` and ``"percentile"`` need them.

    Raises
    ------
    InvalidArgument
        When there is no data set and the configuration needs one, or a batch has not all inputs.
    """

    def run(mod: ir.IRModule, ctx: Any = None) -> ir.IRModule:
        func: Any = mod["main"]
        calls: list[Call] = []
        post_order_visit(func, lambda e: calls.append(e) if is_simulated(e) else None)
        largest = _weights(calls) | _activations(mod, [c for c in calls if c.attrs["kind"] != _WEIGHT], dataset)
        values: dict[Any, Any] = {}
        for call in calls:
            bits = current_qconfig().get_nbit_by_kind(call.attrs["kind"]) - int(call.attrs["sign"])
            numbers = largest[call] / 2**bits, 1 - 2**bits, 2**bits - 1
            values.update((v, const(np.float32(n))) for v, n in zip(call.args[1:], numbers, strict=True))
        return mod.with_functions(
            {**mod.functions, next(v for v in mod.functions if v.name_hint == "main"): bind(func, values)}
        )

    return run


def is_simulated(e: object) -> bool:
    """Whether an expression is a call of ``simulated_quantize``."""
    return type(e) is Call and e.op is SIMULATED


def _weights(calls: Iterable[Any]) -> dict[Call, float]:
    """Return the magnitude that the range of each weight ends at; that of zeros is 1."""
    found = {
        c: float(np.abs(c.args[0].data.numpy()).max(initial=0)) or 1.0 for c in calls if c.attrs["kind"] == _WEIGHT
    }
    if current_qconfig().weight_scale == "power2":
        return {c: 2.0 ** math.ceil(math.log2(v)) for c, v in found.items()}
    return found


def _activations(mod: ir.IRModule, calls: list[Call], dataset: Any) -> dict[Call, float]:
    config = current_qconfig()
    if config.calibrate_mode == "global_scale":
        return dict.fromkeys(calls, float(config.global_scale))
    if dataset is None:
        raise InvalidArgument(
            f"calibrate_mode '{config.calibrate_mode}' needs a data set",
            help='quantize(mod, params, dataset), or calibrate_mode="global_scale"',
        )
    batches = list(dataset)
    names = [str(i) for i in range(len(calls))]
    seen = observe(names, lambda: _observed(mod, calls, batches), histograms=True) if calls else {}
    method = METHODS[_METHODS[config.calibrate_mode]]
    ends = (method(seen[n]) for n in names)
    return {c: float(max(-low, high)) or 1.0 for c, (low, high) in zip(calls, ends, strict=True)}


def _observed(mod: ir.IRModule, calls: list[Call], batches: list[Any]) -> Iterator[dict[str, np.ndarray]]:
    """Run the network on floats and yield, for each batch, what each call would round, by the call's place."""
    func: Any = mod["main"]
    exact: dict[Call, Any] = {}

    def rule(old: Any) -> Any:
        return old.args[0] if is_simulated(old) else old

    for call in calls:  # operands first, so that what a call reads is there
        exact[call] = call.args[0]
    body = rewrite(Tuple(tuple(exact.values())), rule)
    used = free_vars(body)
    params = [p for p in func.params if p in used]
    target = Target.current(allow_none=True)
    run = create_executor("vm", mod=mod, target=target or "llvm").evaluate(Function(tuple(params), body))
    for batch in batches:
        missing = [p.name_hint for p in params if p.name_hint not in batch]
        if missing:
            wanted = ", ".join(p.name_hint for p in params)
            raise InvalidArgument(f"the data set has no '{missing[0]}'", expected=wanted, found=", ".join(batch))
        given = (
            np.asarray(getattr(b, "numpy", lambda b=b: b)(), p.ty.dtype) for p in params for b in (batch[p.name_hint],)
        )
        yield {str(i): v.numpy() for i, v in enumerate(run(*given))}
