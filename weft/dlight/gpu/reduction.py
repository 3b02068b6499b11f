"""Sums along threads: matrix times vector, reductions, and several reductions of one row such as softmax."""

from __future__ import annotations

from math import prod
from typing import Any

from weft import arith, ir, tir
from weft.dlight.base import GPUScheduleRule, suggest_threads_per_block
from weft.dlight.base.analysis import BlockInfo, get_reduction_expr, is_broadcast_epilogue, is_gemv, normalize_prim_func
from weft.dlight.inline import try_inline_contiguous_spatial
from weft.target import Target
from weft.tir.analysis import used_vars
from weft.tir.schedule import IndexMap, Schedule

_FEW = 32  # fewer elements of a sum are one thread's
_COLUMNS = 32  # sums beside each other whose elements lie beside each other
_EACH, _BLOCKS = 16, 256  # elements of a thread at least, where so many blocks keep a device busy (H200: 18 us for 31)
_PARTS, _MANY = 256, 1 << 16  # a sum of so many elements is made of so many parts, where there are few sums


class Reduction(GPUScheduleRule):
    """One sum, and at most one element-wise block behind it: the threads of a block share each sum.

    Parameters
    ----------
    selective : bool
        Whether to leave alone what a thread for each sum does faster: sums of few elements, and of what caches hold.
    """

    def __init__(self, selective: bool = False) -> None:
        self.selective = selective

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
        elements, summed = (_count(info, kind) for kind in "SR")
        if self.selective and summed is not None:
            if summed < _FEW or (elements is not None and _reuses(node, elements * summed)):
                return None
        block, epilogue = info.block_rv, infos[1].block_rv if len(infos) == 2 else None
        if epilogue is None and elements is not None and elements <= 16 and (summed or 0) >= _MANY:
            parts, _ = sch.split(sch.fuse(*(i.loop_rv for i in info.iters if i.kind == "R")), [_PARTS, None])
            self._sum_along_threads(sch, target, sch.rfactor(parts, 0), None)
        self._sum_along_threads(sch, target, block, epilogue)
        return sch

    def _takes(self, sch: Schedule, info: BlockInfo) -> bool:
        return True

    def _sum_along_threads(self, sch: Schedule, target: Target, block: Any, epilogue: Any) -> None:
        loops, realize = sch.get_loops(block), sch.state.realize(block.name)
        values = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        summed = used_vars(*(value for iv, value in values if iv.iter_type != "data_par"))
        reduced = [loop for loop in loops if sch.get(loop).loop_var in summed]
        spatial = [loop for loop in loops if loop not in reduced] or [sch.add_unit_loop(block)]
        sch.reorder(*spatial, *reduced)
        if epilogue is None and _lies_along_results(sch.get(block)):
            bx, tx = sch.split(sch.fuse(*spatial), [None, _COLUMNS])
            step, ty = sch.split(sch.fuse(*reduced), [None, min(target.max_num_threads // _COLUMNS, 16)])
            sch.reorder(bx, tx, ty, step)
            for loop, thread in ((bx, "blockIdx.x"), (tx, "threadIdx.x"), (ty, "threadIdx.y")):
                sch.bind(loop, thread)
            return
        bx, step = sch.fuse(*spatial), sch.fuse(*reduced)
        (threads,) = suggest_threads_per_block(target, [sch.get(step)])
        terms, rows = ir.as_int(sch.get(step).extent), ir.as_int(sch.get(bx).extent)
        if self.selective and terms is not None and (rows is None or rows >= _BLOCKS):
            threads = min(threads, max(_FEW, 1 << (terms // _EACH).bit_length() - 1))
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


def _count(info: BlockInfo, kind: str) -> int | None:
    """How many values the axes of a kind have together, None where that is not constant."""
    extents = [ir.as_int(i.dom) for i in info.iters if i.kind == kind]
    return None if None in extents else prod(e or 0 for e in extents)


def _reuses(block: tir.Block, terms: int) -> bool:
    """Whether each buffer that sums read is small beside how often they read it."""
    sizes = [prod(ir.as_int(d) or 0 for d in r.buffer.shape) for r in block.reads]
    return 0 < max(sizes) <= terms // 8


def _lies_along_results(block: tir.Block) -> bool:
    """Whether neighbours in memory of what is summed belong to sums of their own."""
    reads = [r for r in block.reads if r.buffer is not block.writes[0].buffer]
    most = max(reads, key=lambda r: len(used_vars(*(d.min for d in r.region))))
    summed = {iv.var for iv in block.iter_vars if iv.iter_type != "data_par"}
    last = next((v for d in reversed(most.region) if (v := used_vars(d.min))), set())
    return bool(last) and last.isdisjoint(summed)


class GEMV(Reduction):
    """A matrix, perhaps decoded on the way, times a vector."""

    def _takes(self, sch: Schedule, info: BlockInfo) -> bool:
        return is_gemv(sch, info) is not None


class LowBatchGEMV(Reduction):
    """A matrix times a few vectors, at most `bucket` where that is known: the threads of a block share each sum."""

    def __init__(self, bucket: int = 4) -> None:
        super().__init__()
        self.bucket = bucket

    def _takes(self, sch: Schedule, info: BlockInfo) -> bool:
        extents = [ir.as_int(i.dom) for i in info.iters if i.kind == "S"]
        few = [e for e in extents if e is None or e <= self.bucket]
        return 0 < len(few) < len(extents) and len(sch.get(info.block_rv).reads) > 1


class GeneralReduction(GPUScheduleRule):
    """Reductions of the same rows and what is made of them, such as softmax and norms: a block of threads a row."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where its blocks do not share leading axes and trailing sums."""
        threads = target.attribute("dlight.row_threads")
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
        unroll = target.attribute("dlight.unrolled_steps")
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


class RMSNorm(GeneralReduction):
    """The norm by the root of a mean of squares: a :class:`GeneralReduction` with a reciprocal root in it."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it has no ``rsqrt``."""
        calls = ir.find(sch.func, ir.CallIntrin)
        return super().schedule(sch, target) if any(n.op.name == "tir.rsqrt" for n in calls) else None
