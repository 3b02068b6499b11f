"""Transpose: tiles go through shared memory, so that both sides are read and written in rows."""

from typing import Any

from weft import tir
from weft.dlight.base import GPUScheduleRule
from weft.dlight.base.analysis import normalize_prim_func
from weft.dlight.inline import try_inline
from weft.target import Target
from weft.tir.schedule import Schedule


class Transpose(GPUScheduleRule):
    """A copy of a matrix, perhaps computed element by element first, with its dimensions exchanged."""

    def is_transpose(self, sch: Schedule, block_rv: Any) -> bool:
        """Whether a block copies elements to the same indices in another order."""
        store = sch.get(block_rv).body
        if not isinstance(store, tir.BufferStore) or not isinstance(store.value, tir.BufferLoad):
            return False
        to, source = list(store.indices), list(store.value.indices)
        return len(to) == len(source) and to != source and set(to) == set(source)

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it has no transpose at its end."""
        infos = normalize_prim_func(sch)
        at = next((i for i in reversed(range(len(infos or ()))) if self.is_transpose(sch, infos[i].block_rv)), None)  # type: ignore[index]
        if infos is None or at is None or not all(i.is_injective() for i in infos):
            return None
        block, others = infos[at].block_rv, [i for n, i in enumerate(infos) if n != at]
        if len(sch.get_loops(block)) != 2 or try_inline(sch, others):
            return None
        tx, ty = (16, 8) if target.attribute("dlight.row_threads") > 64 else (8, 4)
        cached = sch.cache_read(block, 0, "shared")
        i, j = sch.get_loops(block)
        outer_i, inner_i = sch.split(i, [None, ty])
        outer_j, inner_j = sch.split(j, [None, tx])
        sch.reorder(outer_i, outer_j, inner_i, inner_j)
        for loop, thread in (
            (outer_i, "blockIdx.y"),
            (outer_j, "blockIdx.x"),
            (inner_i, "threadIdx.y"),
            (inner_j, "threadIdx.x"),
        ):
            sch.bind(loop, thread)
        sch.compute_at(cached, outer_j)
        _, rows, columns = sch.split(sch.fuse(*sch.get_loops(cached)[2:]), [None, ty, tx])
        sch.bind(rows, "threadIdx.y")
        sch.bind(columns, "threadIdx.x")
        sch.storage_align(cached, 0, 0, 32, 1)
        sch.annotate(outer_i, "pragma_auto_unroll_max_step", target.attribute("dlight.unrolled_steps"))
        sch.annotate(outer_i, "pragma_unroll_explicit", 1)
        return sch
