"""Elements that depend on no loop: several a thread, so that several loads are under way at once."""

from __future__ import annotations

from math import prod

from weft import ir
from weft.dlight.base import GPUScheduleRule
from weft.dlight.base.analysis import normalize_prim_func
from weft.dlight.gpu.fallback import in_registers
from weft.dlight.inline import try_inline
from weft.target import Target
from weft.tir.schedule import Schedule

_EACH, _THREADS = 4, 256  # elements of a thread; threads of a block: on an H200 1.8 times as fast as 1 and 1024
_MANY = 1 << 19  # fewer elements do not keep all threads of a large device busy


class Elementwise(GPUScheduleRule):
    """One block without sums, of very many elements: each thread makes four in registers, then stores them.

    Stores between loads would keep the compiler from loading ahead, since results may take the memory of what is read.
    """

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it has several blocks, sums, or few elements."""
        infos = normalize_prim_func(sch)
        left = try_inline(sch, infos) if infos else []
        if len(left) != 1 or not left[0].is_injective() or len(sch.get(left[0].block_rv).writes) != 1:
            return None
        info, extents = left[0], [ir.as_int(i.dom) for i in left[0].iters]
        threads = min(_THREADS, target.max_num_threads)
        many = 0 if None in extents else prod(e or 0 for e in extents)
        if many < _MANY or many % (_EACH * threads):
            return None
        kept, each = in_registers(sch, info), _EACH * threads

        def place(n: ir.PrimExpr) -> list[ir.PrimExpr]:
            return [n // each, n // threads % _EACH, n % threads]

        sch.transform_layout(info.block_rv, ("write", 0), place)
        sch.transform_block_layout(info.block_rv, place)
        outer, step, thread = sch.split(sch.get_loops(kept)[0], [None, _EACH, threads])
        sch.reorder(outer, thread, step)
        sch.bind(outer, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.compute_at(info.block_rv, thread)
        for loop in (sch.get_loops(info.block_rv)[-1], step):
            sch.unroll(loop)
        return sch
