"""Fallback: one thread for each element of whatever could not be inlined."""

from collections.abc import Sequence
from typing import Any

from weft import ir, tir
from weft.dlight.base import GPUScheduleRule, max_threads_per_block
from weft.dlight.base.analysis import BlockInfo, normalize_prim_func, numbering
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
            kept = in_registers(sch, info) if "R" in info.dom_kind() else None
            kinds: dict[str, list[Any]] = {"S": [], "R": [], "O": []}
            for loop, iv in zip(sch.get_loops(block), sch.get(block).iter_vars, strict=True):
                kinds[{"data_par": "S", "reduce": "R"}.get(iv.iter_type, "O")].append(loop)
            spatial = kinds["S"] or [sch.add_unit_loop(block)]
            sch.reorder(*spatial, *kinds["R"], *kinds["O"])
            fused, most = sch.fuse(*spatial), max_threads_per_block(target)
            outer, inner = sch.split(fused, [None, min(most, max(ir.as_int(sch.get(fused).extent) or most, 1))])
            sch.bind(outer, "blockIdx.x")
            sch.bind(inner, "threadIdx.x")
            if kept is not None:
                sch.reverse_compute_at(kept, inner)
            if kinds["R"]:
                sums.append((block, kinds["R"][0]))
        for block, loop in sums:
            sch.decompose_reduction(block, loop)
        return sch


def in_registers(sch: Schedule, info: BlockInfo, behind: Sequence[BlockInfo] = ()) -> Any:
    """Let a block make its results in registers, over one axis for all of them; returns the block that stores them.

    None where it writes several buffers, or blocks `behind` cannot all be computed where results are stored.
    """
    if len(sch.get(info.block_rv).writes) != 1:
        return None
    every = list(range(len(info.iters)))
    spatial = [a for a in every if info.iters[a].kind == "S"]
    rest = [[a] for a in every if a not in spatial]
    kept = sch.reindex_cache_write(info.block_rv, 0, "local", numbering(info, every, [spatial]))
    if try_inline(sch, list(behind)):
        return None
    sch.transform_block_layout(info.block_rv, numbering(info, every, [spatial, *rest]))
    sch.transform_block_layout(kept, numbering(info, spatial, [spatial]))
    return kept


def _has_threads(block: tir.Block) -> bool:
    """Whether statements of a block launch threads themselves."""
    return any(
        (isinstance(n, tir.AttrStmt) and n.attr_key in ("thread_extent", "virtual_thread"))
        or (isinstance(n, tir.For) and n.kind == tir.ForKind.THREAD_BINDING)
        for n in ir.walk(block.body)
    )
