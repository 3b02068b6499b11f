"""The schedules that TVM's topi names after kinds of operators, ``topi.generic.schedule_reduce`` and so on.

One form for all, by the target of ``with Target(...)``: what is computed element by element is inlined, and each other
stage gets a loop nest of its own: threads on a GPU, on a CPU parallel rows and vectors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

from weft import ir, te
from weft.error import InvalidArgument
from weft.target import Target
from weft.te.auto_inline import AutoInlineInjective, is_injective
from weft.topi import nn as computations
from weft.topi import vision

__all__ = ["default_schedule", "schedule_injective_from_existing"]

_KINDS = frozenset(
    """
adaptive_pool argsort argwhere batch_matmul batch_norm binarize_pack binary_dense bitpack bitserial_conv2d_nchw
bitserial_conv2d_nhwc bitserial_dense broadcast concatenate conv1d_ncw conv1d_nwc conv1d_transpose_ncw conv2d_NCHWc
conv2d_NCHWc_int8 conv2d_hwcn conv2d_nchw conv2d_nchw_int8 conv2d_nhwc conv2d_transpose_nchw conv3d_ncdhw conv3d_ndhwc
conv3d_transpose_ncdhw correlation_nchw deformable_conv2d_nchw deformable_conv2d_nhwc dense depthwise_conv2d_NCHWc
depthwise_conv2d_nchw depthwise_conv2d_nhwc dilation2d_nchw dilation2d_nhwc einsum elemwise extern fast_softmax
get_valid_counts group_conv1d_ncw group_conv1d_nwc group_conv2d_nchw group_conv2d_nhwc
group_conv2d_transpose_nchw injective lrn lstm matmul multibox_detection multibox_prior multibox_transform_loc nms pool
pool_grad proposal reduce reorg roi_align roi_pool scan scatter scatter_add softmax sort sparse_dense sparse_transpose
topk transpose unique
""".split()
)
_VARIANTS = ("_winograd", "_spatial_pack", "_nopack", "_pack", "_tensorcore", "_small_batch", "_large_batch")
"""How TVM names other ways to the same result, which the schedule here is the one for."""
_THREADS, _LANES = 256, 16
_FEW_RESULTS = 1 << 14  # fewer sums than threads of a GPU: the threads of a block share each


def default_schedule(outs: object, *options: object, gpu: bool | None = None) -> te.Schedule:
    """Schedule results for the current target, by default the CPU.

    Parameters
    ----------
    outs : Tensor or sequence of Tensor
        The results.
    options
        What TVM's schedules of some kinds take besides, such as a layout: nothing depends on it. A configuration of
        AutoTVM may stand before the results.
    gpu : bool, optional
        Whether loops are threads; by default what the target is.
    """
    if options and not _tensors(outs):
        outs = options[0]  # a template's configuration comes first
    results = _tensors(outs)
    if not results:
        raise InvalidArgument("a schedule needs results", expected="a tensor or a list of them", found=repr(outs))
    s = te.create_schedule([t.op for t in results])
    AutoInlineInjective(s)
    for stage in list(s.stages):
        if isinstance(stage.op, te.ComputeOp) and stage.placement[0].name == "GROUP_ROOT":
            _schedule_stage(s, stage.op.output(0), gpu)
    return s


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor, gpu: bool | None = None) -> te.Schedule:
    """Give one stage of a schedule the loops that :func:`default_schedule` gives to it."""
    _schedule_stage(sch, out, gpu)
    return sch


def __getattr__(name: str) -> Any:
    variant = "" if name.removeprefix("schedule_") in _KINDS else next(filter(name.endswith, _VARIANTS), "")
    plain = name.removesuffix(variant)
    if plain.removeprefix("schedule_") in _KINDS and plain.startswith("schedule_"):
        return default_schedule
    packages = (computations, vision, sys.modules["weft.topi"])
    found = next((p for p in packages if callable(p.__dict__.get(plain))), None)
    if name == "nn":
        return sys.modules[__name__]
    return getattr(computations, name) if found is None else getattr(found, plain)


def _tensors(outs: object) -> Sequence[te.Tensor]:
    given = [outs] if isinstance(outs, te.Tensor) else outs
    if isinstance(given, Sequence) and len(given) == 1 and isinstance(given[0], (list, tuple)):
        return _tensors(given[0])  # a list of what a computation with several results returns
    return list(given) if isinstance(given, Sequence) and all(isinstance(t, te.Tensor) for t in given) else []


def _schedule_stage(s: te.Schedule, out: te.Tensor, gpu: bool | None) -> None:
    target = Target.current(allow_none=True)
    if gpu or (gpu is None and target is not None and "gpu" in target.keys):
        _for_threads(s, out)
        return
    stage = s[out]
    op: Any = stage.op
    axes, summed = list(op.axis), list(op.reduce_axis)
    if len(axes) > 1 or (axes and not summed):
        inner = ir.as_int(axes[-1].dom.extent)
        if inner is not None and inner % _LANES == 0:
            *_, lanes = axes[-1:] = stage.split(axes[-1], _LANES)
            stage.reorder(*axes[:-1], *summed, lanes)
            stage.vectorize(lanes)
            axes.pop()
    if axes:
        stage.parallel(stage.fuse(*axes[: max(len(axes) - 1, 1)]))


def _for_threads(s: te.Schedule, out: te.Tensor) -> None:
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    stage = s[out]
    op: Any = stage.op
    results = [ir.as_int(iv.dom.extent) for iv in op.axis]
    few = None not in results and prod(e or 0 for e in results) <= _FEW_RESULTS
    if is_injective(stage) or (op.axis and not few):
        if op.axis:
            blocks, threads = stage.split(stage.fuse(*op.axis), _THREADS)
            stage.bind(blocks, block)
            stage.bind(threads, thread)
        return
    _, step = stage.split(stage.fuse(*op.reduce_axis), _THREADS // 2)
    part = s.rfactor(out, step)
    part = part[0] if isinstance(part, list) else part
    op = stage.op  # with one axis to sum over
    if op.axis:
        stage.bind(stage.fuse(*op.axis), block)
    (shared,) = op.reduce_axis
    stage.bind(shared, thread)
    s[part].compute_at(stage, shared)
    stage.set_store_predicate(thread.var.equal(0))
