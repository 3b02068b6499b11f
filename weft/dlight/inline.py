"""Blocks that need no memory of their own go into those that read or write beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.dlight.base.analysis import BlockInfo
from weft.error import ScheduleError
from weft.tir.schedule import Schedule


def try_inline(sch: Schedule, blocks: list[BlockInfo]) -> list[BlockInfo]:
    """Inline as many of `blocks` as possible, into consumers first; returns those that remain, in order."""

    def one(inline: Callable[[Any], None]) -> int | None:
        for i, block in enumerate(blocks):
            try:
                inline(block.block_rv)
            except ScheduleError:
                continue
            return i
        return None

    while True:
        done = one(sch.compute_inline)
        done = one(sch.reverse_compute_inline) if done is None else done
        if done is None:
            return blocks
        blocks.pop(done)


def try_inline_contiguous_spatial(sch: Schedule, block_infos: list[BlockInfo] | None) -> list[BlockInfo] | None:
    """Inline within each run of blocks without reductions; returns the blocks that remain, in order."""
    if block_infos is None:
        return None
    remaining: list[BlockInfo] = []
    run: list[BlockInfo] = []
    for block in block_infos:
        if block.is_injective():
            run.append(block)
            continue
        remaining += [*try_inline(sch, run), block]
        run = []
    return remaining + try_inline(sch, run)
