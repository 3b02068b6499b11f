"""The default pipeline: one straight list from imported Relax to what the virtual machine's code generator takes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import weft
from weft import error, tune
from weft.ir import IRModule, Pass, Sequential
from weft.machine import Machine
from weft.relax import transform as t
from weft.target import Target, register_attribute

PRECISIONS = {"float32": "float32", "f32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16", "int8": "int8"}
"""What products of float32 tensors may be computed on, by the names that users give."""


def default_passes(target: Target | str | None = None, precision: str = "float32") -> list[Pass]:
    """List the passes of the default pipeline in order.

    Parameters
    ----------
    target : Target or str, optional
        Its machine decides sizes; its kind may bring passes of its own, as ``relax.graph_passes``. By default the
        current target, else the host's CPU.
    precision : str
        ``"float32"``, or ``"bfloat16"``: products with constant weights are computed on bfloat16 operands, where the
        target has instructions for that; or ``"int8"``: rows that meet weights of 2, 4 or 8 bits are rounded to bytes
        in the weights' groups.
    """
    return [*graph_passes(target, precision), t.concat_in_place(), *lowering_passes(target)]


def graph_passes(
    target: Target | str | None = None, precision: str = "float32", check_indices: bool = True
) -> list[Pass]:
    """List the passes of the default pipeline that end in calls of kernels, ``relax.legalized``.

    Kernels clamp indices that are out of range, so memory is safe without `check_indices`, too.
    """
    made = Target.of(target)
    return made.attribute("relax.graph_passes", _graph_passes)(made, precision, check_indices)


register_attribute("cpu", "relax.graph_passes", lambda *a: _graph_passes(*a, tiled=True))  # whole attentions
register_attribute("gpu", "relax.graph_passes", lambda *a: _graph_passes(*a, layouts=False))  # takes them as they are
register_attribute("gpu", "tir.schedule", lambda *a: weft.dlight.gpu.gpu_schedule(*a))  # for who has one


def _graph_passes(
    target: Target, precision: str, check_indices: bool, tiled: bool = False, layouts: bool = True
) -> list[Pass]:
    machine = target.machine
    compress = t.compress_weights(cached_bytes=machine.memory_bound_bytes, matrix_bytes=machine.lost_weight_bytes)
    bfloat16 = t.products_in_bfloat16(dot_forms=machine.dot_forms, channels=machine.pair_channels)
    attentions = t.combine_parallel_matmul(for_attention=True), t.fold_constant(), t.fuse_attention()
    return [
        t.normalize(),
        t.lambda_lift(),
        t.check_relations(indices=check_indices),
        t.legalize_mutable(),
        t.fold_quantization(dot_forms=machine.dot_forms),
        *([_pack_nbits(machine, precision)] if tiled and machine.unpacks_weights else []),
        t.fold_constant(),  # numbers of a normalisation may be quantised, too
        t.fold_batch_norm(),
        t.join_convolutions(),
        t.decompose_ops(whole_attention=tiled, wide_convolutions=tiled),
        t.fold_constant(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        *((*attentions, t.dead_code_elimination()) if tiled else []),
        *([t.widen_conv1d()] if layouts else []),
        *([bfloat16] if _narrows(target, precision) else []),
        *([t.convert_layout(machine=machine, tuned=tune.Tuned(tune.current_database(), target))] if layouts else []),
        *([compress] if tiled and machine.unpacks_weights else []),
        t.fold_constant(),
        t.rewrite_dataflow_reshape(),
        t.split_to_slices(),
        t.reshape_before_slice(),
        t.eliminate_common_subexpr(),
        t.dead_code_elimination(),
        t.fuse_ops(),
        t.lower_ops(target=None if tiled else target),
        t.fuse_tir(),
        *([t.stream_outputs(after=machine.flushing_bytes)] if tiled else []),
    ]


def _pack_nbits(machine: Machine, precision: str) -> Pass:
    in_bytes = PRECISIONS.get(precision) == "int8"
    dot, tiles = machine.byte_lanes, bool(machine.tile_forms)
    return t.pack_nbits(panel=machine.panel_columns, dot=dot, rows_in_bytes=in_bytes, tiles=tiles)


def _narrows(target: Target, precision: str) -> bool:
    """Whether products are computed on bfloat16 operands: as asked for, where the target can."""
    if precision not in PRECISIONS:
        raise error.InvalidArgument(f"unknown precision '{precision}'", expected=", ".join(PRECISIONS))
    if PRECISIONS[precision] != "bfloat16":
        return False
    if any(form[0] == "bfloat16" for form in target.machine.dot_forms):
        return True
    warnings.warn(
        f"precision '{precision}': the target has no dot products of bfloat16 (avx512bf16); "
        "products are computed in float32",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def lowering_passes(target: Target | str | None = None) -> list[Pass]:
    """List the passes that take legalized Relax to the virtual machine; what is there already they leave as it is."""
    return [*dataflow_lower_passes(target), *finalize_passes(target)]


def library_dispatch_passes(target: Target | str | None = None) -> list[Pass]:
    """List the passes that choose foreign kernels, which are none."""
    return []


def legalize_passes(target: Target | str | None = None) -> list[Pass]:
    """List the passes of the default pipeline that end in calls of kernels that write where they are to."""
    return [*graph_passes(target), t.concat_in_place()]


def dataflow_lower_passes(target: Target | str | None = None) -> list[Pass]:
    """List the first of the lowering passes, up to memory that is allocated for each result."""
    return [t.to_non_dataflow(), t.remove_purity_checking(keep_indices=True), t.fresh_outputs(), t.call_tir_rewrite()]


def finalize_passes(target: Target | str | None = None) -> list[Pass]:
    """List the last of the lowering passes, which plan memory and compute shapes."""
    return [
        t.plan_memory(),
        t.lower_alloc_tensor(),
        t.kill_after_last_use(),
        t.lower_runtime_builtin(target=Target.of(target)),
        t.vm_shape_lower(),
        t.attach_global_symbol(),
    ]


def _zero_passes() -> list[Pass]:
    """Kernels without any other decision, fused by what they are seen to do, as in TVM's pipeline of that name."""
    return [
        t.normalize(),
        t.check_relations(),
        t.lower_ops(),
        t.annotate_tir_op_pattern(),
        t.fold_constant(),
        t.fuse_ops(),
        t.fuse_tir(),
    ]


def _tuning_passes(
    *,
    total_trials: int,
    work_dir: str = "tuning_logs",
    max_trials_per_task: int | None = None,
    cpu_weight_prepack: bool = False,
) -> list[Pass]:
    """Kernels as ``zero`` makes them, tuned; `cpu_weight_prepack` is accepted, weights stay as they are."""
    passes = _zero_passes()
    if total_trials > 0:
        passes.append(t.MetaScheduleTuneIRMod({}, work_dir, total_trials, max_trials_per_task))
    return [*passes, t.MetaScheduleApplyDatabase(work_dir)]


_PIPELINES: dict[str, Callable[..., Pass | list[Pass]]] = {
    "default": default_passes,
    "default_build": default_passes,
    "static_shape_tuning": _tuning_passes,
    "zero": _zero_passes,
}


def register_pipeline(name: str) -> Callable[[Callable[..., Pass | list[Pass]]], Callable[..., Pass | list[Pass]]]:
    """Register a function that makes a pass, or a list of passes, as the pipeline of a name.

    It is given ``target`` and ``precision`` where it has such parameters, and all other options of `get_pipeline`.
    """

    def register(fn: Callable[..., Pass | list[Pass]]) -> Callable[..., Pass | list[Pass]]:
        _PIPELINES[name] = fn
        return fn

    return register


def get_pipeline(
    name: str = "default", target: Target | str | None = None, precision: str = "float32", **options: Any
) -> Pass:
    """Return a pipeline as one pass, which runs with the target, if one is given, as the current one.

    Raises
    ------
    InvalidArgument
        When there is none of that name, or it has one precision only and another is asked for.
    """
    if name not in _PIPELINES:
        raise error.InvalidArgument(f"no pipeline is called '{name}'", expected=", ".join(sorted(_PIPELINES)))
    make = _PIPELINES[name]
    names = inspect.signature(make).parameters
    if PRECISIONS.get(precision) != "float32":
        if "precision" not in names:
            raise error.InvalidArgument(
                f"pipeline '{name}' computes in float32", expected="float32", found=repr(precision)
            )
        options["precision"] = precision
    if "target" in names:
        options["target"] = target
    made = make(**options)
    made = made if isinstance(made, Pass) else Sequential(made, name=name)
    if target is None or "target" in names:
        return made

    def under_target(mod: IRModule) -> IRModule:
        with Target(target):
            return made(mod)

    return Pass(name, under_target)


def get_default_pipeline(target: Target | str | None = None) -> Pass:
    """Return the default pipeline for a target."""
    return get_pipeline("default", target)


def default_build_pipeline() -> Pass:
    """Return the default pipeline for the current target."""
    return get_pipeline("default_build")


def static_shape_tuning_pipeline(
    total_trials: int,
    target: Target | str | None = None,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
) -> Pass:
    """Return the pipeline ``"static_shape_tuning"``: kernels as ``"zero"`` makes them, tuned for a target."""
    options: dict[str, Any] = {
        "total_trials": total_trials,
        "work_dir": work_dir,
        "max_trials_per_task": max_trials_per_task,
    }
    return get_pipeline("static_shape_tuning", target, cpu_weight_prepack=cpu_weight_prepack, **options)


def zero_pipeline(*, enable_warning: bool = False) -> Pass:
    """Return the pipeline ``"zero"``; every operator has a kernel, so there is nothing to warn of."""
    return get_pipeline("zero")
