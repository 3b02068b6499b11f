"""Matmul: blocks of threads stage tiles of both factors in shared memory, each thread sums a tile in registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import ir, tir
from weft.dlight.base import GPUScheduleRule, analysis
from weft.dlight.gpu.fallback import in_registers
from weft.dlight.inline import try_inline
from weft.target import Target
from weft.tir.analysis import used_vars
from weft.tir.schedule import Schedule

_DEPTH = 16  # products that are staged together
_WRITTEN_OUT = 4  # of them, steps without a loop: more take long to compile
_RUN = 4  # neighbouring elements of a thread, which one instruction loads
_BLOCKS = 256  # as many keep the units of the largest GPUs busy
_LEAST = 64  # products that a part of a sum has


class _Tile(NamedTuple):
    """Threads along an axis, and how many runs of neighbouring elements each has, those of other threads between."""

    threads: int
    virtual: int

    @property
    def size(self) -> int:
        """Elements along the axis."""
        return self.threads * self.virtual * _RUN

    @property
    def stored(self) -> int:
        """Elements that a row takes in shared memory, where the next one begins at another bank."""
        return self.virtual * (-(-(self.threads * _RUN - 4) // 32) * 32 + 4)


_LARGE, _SMALL = _Tile(16, 2), (_Tile(8, 1), _Tile(8, 2))


class Matmul(GPUScheduleRule):
    """Sums of products of two tensors, such as products of matrices and convolutions, with work before and behind.

    Axes are those of both factors (a batch), of the first (rows), of the second (columns) and summed ones; each kind is
    one axis of the tiles, whatever the tensors' own are.
    """

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it is no product."""
        infos = analysis.normalize_prim_func(sch)
        products = [i for i in infos or () if not i.is_injective()]
        axes = _axes(sch, products[0]) if len(products) == 1 else None
        if infos is None or axes is None:
            return None
        parted = _in_parts(sch.copy(), products[0], axes)
        whole = None if parted is None else self._two_kernels(parted, target)
        return whole or self._staged(sch, target, infos)

    def _two_kernels(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule sums of parts and, in a kernel behind, their sum with what follows."""
        infos = analysis.normalize_prim_func(sch)
        if infos is None:
            return None
        at = next(i for i, info in enumerate(infos) if not info.is_injective())
        total = infos[at + 1]
        kept = in_registers(sch, total, infos[at + 2 :])
        if kept is None:
            return None
        results, parts = sch.get_loops(total.block_rv)
        block, thread = sch.split(results, [None, min(target.max_num_threads, 256)])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.reverse_compute_at(kept, thread)
        sch.decompose_reduction(total.block_rv, parts)
        return self._staged(sch, target, infos[: at + 1])

    def _staged(self, sch: Schedule, target: Target, infos: Sequence[analysis.BlockInfo]) -> Schedule | None:
        at = next(i for i, info in enumerate(infos) if not info.is_injective())
        info, axes = infos[at], _axes(sch, infos[at])
        if axes is None:
            return None
        block, staged = info.block_rv, []
        for factor, kinds in enumerate(("KI", "KJ")):
            along = _runs_along(sch, info, factor, axes)
            copy = sch.reindex_cache_read(block, factor, "shared", _places(info, axes, "BIJK", f"B{kinds}"))
            kinds = kinds if along == kinds[1] else kinds[::-1]
            sch.transform_block_layout(copy, _places(info, axes, f"B{kinds}", f"B{kinds}"))
            staged.append(copy)
        kept = sch.reindex_cache_write(block, 0, "local", _places(info, axes, "BIJK", "BIJ"))
        sch.transform_block_layout(block, _places(info, axes, "BIJK", "BIJK"))
        for before in reversed(infos[:at]):
            sch.compute_inline(before.block_rv)
        if try_inline(sch, list(infos[at + 1 :])):
            return None
        sch.transform_block_layout(kept, _places(info, axes, "BIJ", "BIJ"))
        self._tile(sch, target, block, staged, kept)
        return sch

    def _tile(self, sch: Schedule, target: Target, block: Any, staged: Sequence[Any], kept: Any) -> None:
        batch, rows, columns, depth = sch.get_loops(block)
        y, x, staged_depth = _tiles(sch, target, staged, batch, rows, columns)
        by, vy, ty, i = sch.split(rows, [None, y.virtual, y.threads, _RUN])
        bx, vx, tx, j = sch.split(columns, [None, x.virtual, x.threads, _RUN])
        ko, k = sch.split(depth, [None, staged_depth])
        sch.reorder(batch, by, bx, vy, vx, ty, tx, ko, k, i, j)
        # Rows may be many, as a convolution's are: a device has at most 65,535 blocks along all axes but the first.
        for loop, thread in (
            (batch, "blockIdx.z"),
            (bx, "blockIdx.y"),
            (by, "blockIdx.x"),
            (vy, "vthread.y"),
            (vx, "vthread.x"),
            (ty, "threadIdx.y"),
            (tx, "threadIdx.x"),
        ):
            sch.bind(loop, thread)
        for copy in staged:
            sch.compute_at(copy, ko)
            sch.storage_align(copy, 0, -2, 32, 4)  # rows begin at other banks, at wholes of four elements
            step, own_y, own_x = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, y.threads, x.threads])
            sch.bind(own_y, "threadIdx.y")
            sch.bind(own_x, "threadIdx.x")
            sch.unroll(step)
        for note, value in (("stage", [0, 0, 1]), ("order", [0, 1, 2]), ("async_stages", [0])):
            sch.annotate(ko, f"software_pipeline_{note}", value)
        sch.reverse_compute_at(kept, tx)
        written = k if staged_depth < _DEPTH else sch.split(k, [None, _WRITTEN_OUT])[1]
        for loop in (written, i, j):
            sch.unroll(loop)
        sch.decompose_reduction(block, ko)


def _in_parts(sch: Schedule, info: analysis.BlockInfo, axes: dict[str, list[int]]) -> Schedule | None:
    """Make the sum of parts of the depth a block of its own, where results are too few to keep all units busy."""
    sizes = {kind: [info.iters[a].dom for a in axes[kind]] for kind in "BIJK"}
    if not all(isinstance(n, int) for own in sizes.values() for n in own):
        return None
    batch, rows, columns, depth = (math.prod(sizes[kind]) for kind in "BIJK")
    tiles = batch * -(-rows // _SMALL[0].size) * -(-columns // _SMALL[1].size)
    axis = max(axes["K"], key=lambda a: info.iters[a].dom)
    most = min(_BLOCKS // tiles, depth // _LEAST)
    parts = max((n for n in range(1, most + 1) if info.iters[axis].dom % n == 0), default=1)
    if parts == 1:
        return None
    outer, _ = sch.split(sch.get_loops(info.block_rv)[axis], [parts, None])
    for block in (sch.rfactor(outer, 0), info.block_rv):  # loops in the order of what they run over
        loops = {sch.get(loop).loop_var: loop for loop in sch.get_loops(block)}
        sch.reorder(*[loops[v] for v in sch.state.realize(block.name).iter_values])  # type: ignore[index]
    return sch


def _tiles(sch: Schedule, target: Target, staged: Sequence[Any], *loops: Any) -> tuple[_Tile, _Tile, int]:
    """The tiles of rows, of columns and of the depth: large ones where they keep all units busy, or what fits axes."""
    batch, rows, columns = (ir.as_int(sch.get(loop).extent) for loop in loops)
    element = max(ir.DataType(sch.get(copy).writes[0].buffer.dtype).itemsize for copy in staged)
    most, room = target.max_num_threads, target.max_shared_memory_per_block // (2 * _DEPTH * element)
    if batch is not None and rows is not None and columns is not None:
        blocks = batch * -(-rows // _LARGE.size) * -(-columns // _LARGE.size)
        if blocks >= _BLOCKS and _LARGE.threads**2 <= most and _LARGE.stored <= room:
            return _LARGE, _LARGE, _DEPTH // 2
    x = _fitting(columns, _SMALL[1])
    y = _fitting(rows, _Tile(min(most, 64) // x.threads, 1))
    while y.stored + x.stored > room and y.threads > 1:
        y = _Tile(y.threads // 2, 1)
    return y, x, _DEPTH


def _fitting(extent: int | None, tile: _Tile) -> _Tile:
    """A tile for an axis, smaller where the axis is short."""
    if extent is None or extent > tile.threads * _RUN:
        return tile
    return _Tile(1 << (-(-extent // _RUN) - 1).bit_length(), 1)


def _places(info: analysis.BlockInfo, axes: dict[str, list[int]], own: str, kinds: str) -> Callable[..., list[Any]]:
    """Number the values of the axes of each of `kinds`, as one index each, for a block with the axes of `own`."""
    return analysis.numbering(info, sorted(a for kind in own for a in axes[kind]), [axes[kind] for kind in kinds])


def _runs_along(sch: Schedule, info: analysis.BlockInfo, factor: int, axes: dict[str, list[int]]) -> str:
    """The kind of axis along which a factor lies in memory."""
    region = _factors(sch, info)[factor].region
    last = next((used_vars(r.min) for r in reversed(region) if used_vars(r.min)), set())
    own = "IJ"[factor]
    return own if not last or not last.isdisjoint(info.iters[a].var for a in axes[own]) else "K"


def _factors(sch: Schedule, info: analysis.BlockInfo) -> list[tir.BufferRegion]:
    """What a block reads as its factors: all but what it sums into, as primitives count what is read."""
    block = sch.get(info.block_rv)
    return [r for r in block.reads if r.buffer is not block.writes[0].buffer]


def _axes(sch: Schedule, info: analysis.BlockInfo) -> dict[str, list[int]] | None:
    """Sort the axes of a product: of both factors (B), of the first (I), of the second (J), summed (K)."""
    block = sch.get(info.block_rv)
    if not info.is_reduction() or len(block.writes) != 1 or analysis.get_reduction_expr(block) is None:
        return None
    reads = _factors(sch, info)
    factors = [analysis.collect_block_iter_vars_used_in_access_region(block, r.region) for r in reads]
    if len(factors) != 2:
        return None
    axes: dict[str, list[int]] = {k: [] for k in "BIJK"}
    for a, it in enumerate(info.iters):
        inside = it.var in factors[0], it.var in factors[1]
        if it.kind == "R" and all(inside):
            axes["K"].append(a)
        elif it.kind == "S" and any(inside):
            axes["B" if all(inside) else "I" if inside[0] else "J"].append(a)
        else:
            return None
    axes["K"].sort(key=lambda a: _dimension(reads[1].region, info.iters[a].var))
    return axes if axes["I"] and axes["J"] and axes["K"] else None


def _dimension(region: Sequence[ir.Range], variable: ir.Var) -> int:
    return next((i for i, r in enumerate(region) if variable in used_vars(r.min)), 0)
