"""The schedule of a kernel for a GPU that nobody scheduled: the first rule whose kernels can be built, else threads."""

from __future__ import annotations

from weft import error, ir, tir
from weft.dlight.base import ApplyDefaultSchedule
from weft.dlight.gpu.elementwise import Elementwise
from weft.dlight.gpu.fallback import Fallback
from weft.dlight.gpu.matmul import Matmul
from weft.dlight.gpu.reduction import GEMV, GeneralReduction, Reduction
from weft.dlight.gpu.transpose import Transpose
from weft.target import Target
from weft.target.gpu import check_allocations, launch_extents, lower_for_gpu
from weft.tir.transform import default_gpu_schedule

_SUMS = (Matmul(), GEMV(selective=True), Reduction(selective=True), GeneralReduction())
_RULES = (*_SUMS, Transpose(), Elementwise(), Fallback())


def gpu_schedule(func: tir.PrimFunc, target: Target) -> tir.PrimFunc:
    """Schedule a function for a GPU.

    A rule whose threads would not be what a device can run (two of them store one element, a block has too many) does
    not take the function; the last resort is a thread for each element of each block. Functions of the host alone
    (``tir.is_host_func``) stay as they are.
    """
    if func.attrs.get("tir.is_host_func"):
        return func
    mod = ir.IRModule({"main": func.with_attr("target", target)})
    for rule in _RULES:
        made = ApplyDefaultSchedule(rule)(mod)["main"]
        if isinstance(made, tir.PrimFunc) and made.attrs.get("tir.is_scheduled") and _runs(made, target):
            return made.replace(attrs=func.attrs)
    return default_gpu_schedule(max_threads=target.max_num_threads)(mod)["main"].replace(attrs=func.attrs)


def _runs(func: tir.PrimFunc, target: Target) -> bool:
    """Whether the host touches no memory of the device, and each thread can do its part."""
    try:
        _, device = lower_for_gpu(ir.IRModule({"main": func}), target)
        for kernel in device.values():
            launch_extents(kernel, target.max_num_threads)
            check_allocations(kernel, target.max_shared_memory_per_block)
    except (error.CodegenError, error.LoweringError):
        return False
    return True
