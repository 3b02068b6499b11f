"""Fallback: one thread for each element of whatever could not be inlined."""

from __future__ import annotations

from typing import Any

from weft import ir, tir
from weft.dlight.base import GPUScheduleRule, max_threads_per_block
from weft.dlight.base.analysis import normalize_prim_func
from weft.dlight.inline import try_inline
from weft.target import Target
from weft.tir.schedule import Schedule


class Fallback(GPUScheduleRule):
    """Any function of blocks: what can be inlined is, and spatial loops become blocks of threads."""

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where its blocks have loops of another kind."""
        infos = normalize_prim_func(sch)
        if infos is None:
            return None
        sums: list[tuple[Any, Any]] = []
        for info in try_inline(sch, infos):
            block = info.block_rv
            loops = sch.get_loops(block)
            if _has_threads(sch.get(block)) or any(sch.get(loop).thread_binding is not None for loop in loops):
                continue
            kinds: dict[str, list[Any]] = {"S": [], "R": [], "O": []}
            for loop, kind in zip(loops, info.dom_kind(), strict=True):
                kinds[kind].append(loop)
            spatial = kinds["S"] or [sch.add_unit_loop(block)]
            sch.reorder(*spatial, *kinds["R"], *kinds["O"])
            outer, inner = sch.split(sch.fuse(*spatial), [None, max_threads_per_block(target)])
            sch.bind(outer, "blockIdx.x")
            sch.bind(inner, "threadIdx.x")
            if kinds["R"]:
                sums.append((block, kinds["R"][0]))
        for block, loop in sums:
            sch.decompose_reduction(block, loop)
        return sch


def _has_threads(block: tir.Block) -> bool:
    """Whether statements of a block launch threads themselves."""
    return any(
        (isinstance(n, tir.AttrStmt) and n.attr_key in ("thread_extent", "virtual_thread"))
        or (isinstance(n, tir.For) and n.kind == tir.ForKind.THREAD_BINDING)
        for n in ir.walk(block.body)
    )
