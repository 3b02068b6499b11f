"""The default pipeline: one straight list from imported Relax to what the virtual machine's code generator takes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Pass, Sequential
from weft.relax import transform as t
from weft.target import Target
from weft.tune import Tuned, current_database

__all__ = ["PRECISIONS", "default_passes", "get_default_pipeline", "get_pipeline", "graph_passes", "register_pipeline"]


PRECISIONS = {"float32": "float32", "f32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16"}
"""What products of float32 tensors may be computed on, by the names that users give."""


_WIDE_PANEL = 16
"""Panels of weights, two vectors wide, from which on (256-bit vectors) 28-bit weights are unpacked fast enough."""


def default_passes(target: Any = None, precision: str = "float32") -> list[Pass]:
    """List the passes of the default pipeline in order.

    Parameters
    ----------
    target : Target, optional
        Decides the width of weight panels; by default 512-bit vectors are assumed.
    precision : str
        ``"float32"``, or ``"bfloat16"``: products with constant weights are computed on bfloat16 operands, where the
        target has instructions for that.
    """
    return [*graph_passes(target, precision), t.concat_in_place(), *lowering_passes()]


def graph_passes(target: Any = None, precision: str = "float32", check_indices: bool = True) -> list[Pass]:
    """List the passes of the default pipeline that end in calls of kernels, ``relax.legalized``.

    Kernels clamp indices that are out of range, so memory is safe without `check_indices`, too.
    """
    target = Target(target) if isinstance(target, str) else target
    panel = 2 * getattr(target, "vector_bits", 512) // 32
    dot_forms = getattr(target, "dot_forms", ())
    tiled = target is None or getattr(target.kind, "name", "llvm") in ("llvm", "c")
    return [
        t.normalize(),
        t.lambda_lift(),
        t.check_relations(indices=check_indices),
        t.legalize_mutable(),
        t.fold_quantization(dot_forms=dot_forms),
        t.fold_batch_norm(),
        t.decompose_ops(whole_attention=tiled),
        t.fold_constant(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        *(_attention_passes() if tiled else []),
        t.widen_conv1d(),
        *([t.products_in_bfloat16(dot_forms=dot_forms)] if _narrows(target, precision) else []),
        t.convert_layout(panel=panel, dot_forms=dot_forms, tuned=Tuned(current_database(), target)),
        *([t.compress_weights()] if tiled and panel >= _WIDE_PANEL else []),
        t.fold_constant(),
        t.rewrite_dataflow_reshape(),
        t.split_to_slices(),
        t.reshape_before_slice(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        t.fuse_ops(),
        t.legalize_ops(),
        t.fuse_tir(),
        *([t.stream_outputs()] if tiled else []),
    ]


def _attention_passes() -> list[Pass]:
    return [
        t.combine_parallel_matmul(for_attention=True),
        t.fold_constant(),
        t.fuse_attention(),
        t.dead_code_elimination(),
    ]


def _narrows(target: Any, precision: str) -> bool:
    """Whether products are computed on bfloat16 operands: as asked for, where the target can."""
    if precision not in PRECISIONS:
        raise InvalidArgument(f"unknown precision '{precision}'", expected=", ".join(PRECISIONS))
    if PRECISIONS[precision] == "float32":
        return False
    if any(form[0] == "bfloat16" for form in getattr(target, "dot_forms", ())):
        return True
    warnings.warn(
        f"precision '{precision}': the target has no dot products of bfloat16 (avx512bf16); "
        "products are computed in float32",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def lowering_passes() -> list[Pass]:
    """List the passes that take legalized Relax to the virtual machine; what is there already they leave as it is."""
    return [
        t.to_non_dataflow(),
        t.remove_purity_checking(),
        t.fresh_outputs(),
        t.call_tir_rewrite(),
        t.plan_memory(),
        t.lower_alloc_tensor(),
        t.kill_after_last_use(),
        t.lower_runtime_builtin(),
        t.vm_shape_lower(),
        t.attach_global_symbol(),
    ]


def _zero_passes(_target: Any = None) -> list[Pass]:
    """Kernels without any other decision, fused by what they are seen to do, as in TVM's pipeline of that name."""
    return [
        t.normalize(),
        t.check_relations(),
        t.legalize_ops(),
        t.annotate_tir_op_pattern(),
        t.fold_constant(),
        t.fuse_ops(),
        t.fuse_tir(),
    ]


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


def get_pipeline(name: str = "default", target: Any = None, precision: str = "float32") -> Pass:
    """Return a pipeline as one pass.

    Raises
    ------
    InvalidArgument
        When there is none of that name, or it has one precision only and another is asked for.
    """
    if name not in _PIPELINES:
        raise InvalidArgument(f"no pipeline is called '{name}'", expected=", ".join(sorted(_PIPELINES)))
    make = _PIPELINES[name]
    if PRECISIONS.get(precision) == "float32":
        return Sequential(make(target), name=name)
    if "precision" not in inspect.signature(make).parameters:
        raise InvalidArgument(f"pipeline '{name}' computes in float32", expected="float32", found=repr(precision))
    return Sequential(make(target, precision=precision), name=name)


def get_default_pipeline(target: Any = None) -> Pass:
    """Return the default pipeline for a target."""
    return get_pipeline("default", target)
