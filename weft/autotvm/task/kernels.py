"""The template of kernels that a compiled program needs: one reduction, with what is computed before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import ir, te, tir
from weft.autotvm.task.dispatcher import DispatchContext
from weft.autotvm.task.space import ConfigEntity, ConfigSpace
from weft.autotvm.task.task import TASK_TABLE, args_to_workload, get_config, register
from weft.error import InvalidArgument
from weft.target import Target


def register_kernel_template(name: str, compute: Callable[..., te.Tensor]) -> None:
    """Register the template of the kernels around an operator, once; ``compute(*args)`` makes its tensor."""

    def make(*args: Any) -> tuple[te.Schedule, list[te.Tensor]]:
        out = compute(*args)
        tensors = [*(a for a in args if isinstance(a, te.Tensor)), out]
        return scheduled_kernel(tensors, get_config()), tensors

    if name not in TASK_TABLE:
        register(name, "fcustomized", make)


def anchor_of(args: Sequence[Any]) -> te.Tensor | None:
    """Return the one reduction that a kernel has; None where there are none or several, or other operations."""
    roots = (t.op for t in args if isinstance(t, te.Tensor))
    found = ir.reached(roots, lambda op: [t.op for t in op.input_tensors_tuple])
    if not all(isinstance(op, (te.ComputeOp, te.PlaceholderOp)) for op in found):
        return None
    reductions = [op for op in found if isinstance(op, te.ComputeOp) and isinstance(op.body[0], tir.Reduce)]
    return reductions[0].output(0) if len(reductions) == 1 and reductions[0].num_outputs == 1 else None


def scheduled_kernel(args: Sequence[Any], cfg: ConfigSpace | ConfigEntity) -> te.Schedule:
    """Schedule a kernel as a configuration says; of a space, define its knobs.

    The last two axes of the output are tiled, and the sums of a tile stay in a local buffer until what follows is
    computed of them. What is computed before is written out first, or again where it is read (``inline``).

    Parameters
    ----------
    args : sequence of Tensor
        The parameters of the kernel, its output last.
    cfg : ConfigSpace or ConfigEntity
        Of the knobs ``tile_0``, ``tile_1``, ``tile_k``, ``unroll`` and ``inline``.

    Raises
    ------
    InvalidArgument
        When the kernel has not one reduction.
    """
    out, anchor = args[-1], anchor_of(args)
    if anchor is None or not out.op.axis:
        raise InvalidArgument("the template takes kernels with one reduction and an output with axes", found=str(out))
    s = te.create_schedule(out.op)
    before = _readers_last(anchor)
    between = [op for op in _readers_last(out) if op not in before and op not in (out.op, anchor.op)]
    cfg.define_knob("inline", [0, 1])
    for op in between:
        s[op].compute_inline()
    for op in before:
        if cfg["inline"].val:
            s[op].compute_inline()
        else:
            s[op].parallel(s[op].fuse(*op.axis))
    sums = anchor if out.op is not anchor.op else s.cache_write(out, "local")
    if sums is anchor:
        s[sums].set_scope("local")
    at, inner = _tiled(s, out, cfg)
    s[sums].compute_at(s[out], at)
    stage: Any = s[sums].op
    k, axes = stage.reduce_axis, list(stage.axis)
    cfg.define_split("tile_k", k[-1], num_outputs=2)
    ko, ki = cfg["tile_k"].apply(s, sums, k[-1])
    s[sums].reorder(*axes[:-inner], *k[:-1], ko, ki, *axes[-inner:])
    s[sums].vectorize(axes[-1])
    cfg.define_knob("unroll", [0, 1])
    if cfg["unroll"].val:
        s[sums].unroll(ki)
        if inner > 1:
            s[sums].unroll(axes[-2])
    return s


def from_log(
    log: DispatchContext, target: Target, args: Sequence[Any], anchor: tuple[Any, ...] | None, name: str
) -> tir.PrimFunc | None:
    """Make a kernel of its parameters as a log says of the operator in it; None where it says nothing."""
    if anchor is None or anchor_of(args) is None:
        return None
    cfg = log.query(target, args_to_workload(anchor[1:], anchor[0]))
    if cfg is None or cfg.is_fallback:
        return None
    return te.schedule_to_prim_func(scheduled_kernel(args, cfg), args, name)


def _tiled(s: te.Schedule, out: Any, cfg: Any) -> tuple[Any, int]:
    """Tile the last axes of the output; return the loop over tiles, which is parallel, and how many axes a tile has."""
    axes = list(out.op.axis)
    inner = min(2, len(axes))
    outers, tile = axes[:-inner], []
    for i, axis in enumerate(axes[-inner:]):
        cfg.define_split(f"tile_{i}", axis, num_outputs=2, filter=lambda e: e.size[-1] <= 64)
        o, t = cfg[f"tile_{i}"].apply(s, out, axis)
        outers.append(o)
        tile.append(t)
    s[out].reorder(*outers, *tile)
    at = s[out].fuse(*outers)
    s[out].parallel(at)
    s[out].vectorize(tile[-1])
    return at, inner


def _readers_last(tensor: te.Tensor) -> list[Any]:
    """List the computations that a tensor is made of, what reads behind what it reads."""
    order: dict[Any, None] = {}

    def visit(t: te.Tensor) -> None:
        for i in t.op.input_tensors_tuple:
            if isinstance(i.op, te.ComputeOp) and i.op not in order:
                visit(i)
                order[i.op] = None

    visit(tensor)
    return list(order)
