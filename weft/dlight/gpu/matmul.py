"""Matmul: each thread keeps a tile of the result in registers; factors come through the caches."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.dlight.base import GPUScheduleRule, analysis
from weft.dlight.inline import try_inline_contiguous_spatial
from weft.target import Target
from weft.tir.schedule import Schedule

_THREADS, _REGISTERS, _DEPTH = 16, 4, 16


class Matmul(GPUScheduleRule):
    """A product of matrices, or a batch of them, with element-wise work before and behind."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it is no product."""
        infos = try_inline_contiguous_spatial(sch, analysis.normalize_prim_func(sch))
        if not infos or len(infos) > 2 or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        axes = _axes(sch, infos[0])
        if axes is None:
            return None
        block = infos[0].block_rv
        kept = sch.cache_write(block, 0, "local")
        if len(infos) == 2:
            sch.reverse_compute_inline(infos[1].block_rv)
        batch, rows, columns, depth = (axes[k] or [sch.add_unit_loop(block)] for k in "BIJK")
        sch.reorder(*batch, *rows, *columns, *depth)
        batch, rows, columns, depth = (sch.fuse(*loops) for loops in (batch, rows, columns, depth))
        ty, tx = (_threads(sch, loop) for loop in (rows, columns))
        by, ty_loop, i = sch.split(rows, [None, ty, _REGISTERS])
        bx, tx_loop, j = sch.split(columns, [None, tx, _REGISTERS])
        ko, k = sch.split(depth, [None, _DEPTH])
        sch.reorder(batch, by, bx, ty_loop, tx_loop, ko, k, i, j)
        for loop, thread in ((batch, "blockIdx.z"), (by, "blockIdx.y"), (bx, "blockIdx.x"), (ty_loop, "threadIdx.y"),
                             (tx_loop, "threadIdx.x")):  # fmt: skip
            sch.bind(loop, thread)
        sch.reverse_compute_at(kept, tx_loop)
        sch.decompose_reduction(block, ko)
        return sch


def _threads(sch: Schedule, loop: Any) -> int:
    """Return how many threads run along a loop: a power of two, fewer for a short one."""
    extent = ir.as_int(sch.get(loop).extent)
    if extent is None:
        return _THREADS
    return min(_THREADS, 1 << (-(-extent // _REGISTERS) - 1).bit_length())


def _axes(sch: Schedule, info: analysis.BlockInfo) -> dict[str, list[Any]] | None:
    """Sort the loops of a product: of both factors (B), of the first (I), of the second (J), summed (K)."""
    block = sch.get(info.block_rv)
    if not info.is_reduction() or len(block.writes) != 1 or analysis.get_reduction_expr(block) is None:
        return None
    written = block.writes[0].buffer
    factors = [
        analysis.collect_block_iter_vars_used_in_access_region(block, r.region)
        for r in block.reads
        if r.buffer is not written
    ]
    if len(factors) != 2:
        return None
    axes: dict[str, list[Any]] = {k: [] for k in "BIJK"}
    for it in info.iters:
        inside = it.var in factors[0], it.var in factors[1]
        if it.kind == "R" and all(inside):
            axes["K"].append(it.loop_rv)
        elif it.kind == "S" and any(inside):
            axes["B" if all(inside) else "I" if inside[0] else "J"].append(it.loop_rv)
        else:
            return None
    return axes if axes["I"] and axes["J"] and axes["K"] else None
