"""The default pipeline: one straight list from imported Relax to what the virtual machine's code generator takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Pass, Sequential
from weft.relax import transform as t

__all__ = ["default_passes", "get_default_pipeline", "get_pipeline", "graph_passes", "register_pipeline"]


def default_passes(target: Any = None) -> list[Pass]:
    """List the passes of the default pipeline in order.

    Parameters
    ----------
    target : Target, optional
        Decides the width of weight panels; by default 512-bit vectors are assumed.
    """
    return [*graph_passes(target), *lowering_passes()]


def graph_passes(target: Any = None) -> list[Pass]:
    """List the passes of the default pipeline that end in calls of kernels, ``relax.legalized``."""
    panel = 2 * getattr(target, "vector_bits", 512) // 32
    return [
        t.normalize(),
        t.lambda_lift(),
        t.fold_batch_norm(),
        t.decompose_ops(),
        t.fold_constant(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        t.convert_layout(panel=panel, dot_forms=getattr(target, "dot_forms", ())),
        t.fold_constant(),
        t.rewrite_dataflow_reshape(),
        t.split_to_slices(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        t.fuse_ops(),
        t.legalize_ops(),
    ]


def lowering_passes() -> list[Pass]:
    """List the passes that take legalized Relax to the virtual machine."""
    return [
        t.to_non_dataflow(),
        t.remove_purity_checking(),
        t.call_tir_rewrite(),
        t.plan_memory(),
        t.lower_alloc_tensor(),
        t.kill_after_last_use(),
        t.lower_runtime_builtin(),
        t.vm_shape_lower(),
        t.attach_global_symbol(),
    ]


def _zero_passes(_target: Any = None) -> list[Pass]:
    return [t.normalize(), t.lambda_lift(), t.legalize_ops(), *lowering_passes()]


_PIPELINES: dict[str, Callable[..., list[Pass]]] = {
    "default": default_passes,
    "default_build": default_passes,
    "zero": _zero_passes,
}


def register_pipeline(name: str) -> Callable[[Callable[..., list[Pass]]], Callable[..., list[Pass]]]:
    """Register ``fn(target) -> list of passes`` as a pipeline."""

    def register(fn: Callable[..., list[Pass]]) -> Callable[..., list[Pass]]:
        _PIPELINES[name] = fn
        return fn

    return register


def get_pipeline(name: str = "default", target: Any = None) -> Pass:
    """Return a pipeline as one pass.

    Raises
    ------
    InvalidArgument
        When there is none of that name.
    """
    if name not in _PIPELINES:
        raise InvalidArgument(f"no pipeline is called '{name}'", expected=", ".join(sorted(_PIPELINES)))
    return Sequential(_PIPELINES[name](target), name=name)


def get_default_pipeline(target: Any = None) -> Pass:
    """Return the default pipeline for a target."""
    return get_pipeline("default", target)
