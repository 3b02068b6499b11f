"""Sums along threads: matrix times vector, reductions, and several reductions of one row such as softmax."""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.dlight.base import GPUScheduleRule, suggest_threads_per_block
from weft.dlight.base.analysis import BlockInfo, get_reduction_expr, is_broadcast_epilogue, is_gemv, normalize_prim_func
from weft.dlight.inline import try_inline_contiguous_spatial
from weft.target import Target
from weft.tir.analysis import used_vars
from weft.tir.schedule import IndexMap, Schedule


class Reduction(GPUScheduleRule):
    """One sum, and at most one element-wise block behind it: the threads of a block share each sum."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it is no such sum."""
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos or len(infos) > 2 or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        info, node = infos[0], sch.get(infos[0].block_rv)
        if not self._takes(sch, info) or "R" not in info.dom_kind() or len(node.writes) != 1:
            return None
        if not info.is_reduction() or get_reduction_expr(node) is None:
            return None
        self._sum_along_threads(sch, target, info, infos[1].block_rv if len(infos) == 2 else None)
        return sch

    def _takes(self, sch: Schedule, info: BlockInfo) -> bool:
        return True

    def _sum_along_threads(self, sch: Schedule, target: Target, info: BlockInfo, epilogue: Any) -> None:
        block = info.block_rv
        spatial = [i.loop_rv for i in info.iters if i.kind == "S"] or [sch.add_unit_loop(block)]
        reduced = [i.loop_rv for i in info.iters if i.kind == "R"]
        sch.reorder(*spatial, *reduced)
        bx, step = sch.fuse(*spatial), sch.fuse(*reduced)
        (threads,) = suggest_threads_per_block(target, [sch.get(step)])
        step, tx = sch.split(step, [None, threads])
        sch.reorder(bx, tx, step)
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        sch.annotate(step, "pragma_auto_unroll_max_step", 256)
        sch.annotate(step, "pragma_unroll_explicit", 1)
        if epilogue is None:
            return
        sch.set_scope(block, 0, "shared")
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        if is_broadcast_epilogue(sch, block, epilogue):
            sch.bind(sch.split(sch.fuse(*sch.get_loops(epilogue)[1:]), [None, threads])[1], "threadIdx.x")


class GEMV(Reduction):
    """A matrix, perhaps decoded on the way, times a vector."""

    def _takes(self, sch: Schedule, info: BlockInfo) -> bool:
        return is_gemv(sch, info) is not None


class GeneralReduction(GPUScheduleRule):
    """Reductions of the same rows and what is made of them, such as softmax and norms: a block of threads a row."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where its blocks do not share leading axes and trailing sums."""
        threads = 256 if target.kind.name in ("cuda", "opencl") else 64
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos:
            return None
        kinds, last = infos[0].dom_kind(), infos[-1]
        leading, trailing = len(kinds) - len(kinds.lstrip("S")), len(kinds) - len(kinds.rstrip("R"))
        if len(last.iters) < len(kinds):
            self._widen(sch, infos, len(kinds))
        fits = trailing and leading and last.is_injective() and len(last.iters) <= len(kinds)
        if not fits or any(i.dom_kind() != kinds for i in infos[1:-1]):
            return None
        self._rows_first(sch, infos)
        unroll = 256 if target.kind.name == "cuda" else 64
        loops = sch.get_loops(last.block_rv)
        bx = sch.fuse(*loops[:leading])
        self._share(sch, sch.get_loops(last.block_rv)[-1], threads, unroll, bx)
        for info in reversed(infos[:-1]):
            block = info.block_rv
            for i in range(len(sch.get(block).writes)):
                sch.set_scope(block, i, "shared")
            sch.compute_at(block, bx, preserve_unit_loops=True)
            self._share(sch, sch.fuse(*sch.get_loops(block)[-trailing:]), threads, unroll)
        return sch

    def _share(self, sch: Schedule, loop: Any, threads: int, unroll: int, bx: Any = None) -> None:
        """Run a loop on the threads of a block."""
        step, tx = sch.split(loop, [None, threads])
        sch.reorder(tx, step)
        if bx is not None:
            sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        sch.annotate(step, "pragma_auto_unroll_max_step", unroll)
        sch.annotate(step, "pragma_unroll_explicit", 1)

    def _widen(self, sch: Schedule, infos: list[BlockInfo], rank: int) -> None:
        """Give the last block axes of one element where the first has axes that it lacks."""
        first, last, an = infos[0], infos[-1], arith.Analyzer()

        def image(*own: Any) -> list[Any]:
            zero, matched, out = ir.const(0, own[0].dtype), 0, []
            for it in first.iters:
                same = matched < len(own) and an.can_prove_equal(
                    ir.as_expr(it.dom), ir.as_expr(last.iters[matched].dom)
                )
                out.append(own[matched] if same else zero)
                matched += bool(same)
            return out if matched == len(own) else [*[zero] * (rank - len(own)), *own]

        sch.transform_block_layout(last.block_rv, IndexMap.from_func(image, ndim=len(last.iters)))

    def _rows_first(self, sch: Schedule, infos: list[BlockInfo]) -> None:
        """Put those loops of the last block first that decide which reduced values it reads."""
        reduced = {w.buffer for i in infos[:-1] for w in sch.get(i.block_rv).writes}
        block = sch.get(infos[-1].block_rv)
        deciding = used_vars(*(r.region for r in block.reads if r.buffer in reduced))
        loops = sch.get_loops(infos[-1].block_rv)
        first = [
            loop
            for iv, loop in zip(block.iter_vars, loops, strict=True)
            if iv.var in deciding or ir.as_int(sch.get(loop).extent) == 1
        ]
        sch.reorder(*first, *(loop for loop in loops if loop not in first))
