"""What the blocks of a function are: their axes, kinds and loops, in the normal form that the rules start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir, tir
from weft.target import Target
from weft.tir.analysis import is_reduction, used_vars
from weft.tir.schedule import BlockRV, IndexMap, Schedule

_KINDS = {"data_par": "S", "reduce": "R"}


class IterInfo:
    """An axis of a block: its kind ("S" spatial, "R" reduced, "O" other), variable, extent and loop."""

    def __init__(self, kind: str, var: ir.Var, dom: Any, loop_rv: Any) -> None:
        self.kind, self.var, self._dom, self.loop_rv = kind, var, dom, loop_rv

    @property
    def dom(self) -> Any:
        """The extent: a number where it is constant."""
        known = ir.as_int(self._dom)
        return self._dom if known is None else known

    def __repr__(self) -> str:
        return f'Iter("{self.kind}", {self.dom})'


class BlockInfo:
    """A block in normal form: one loop for each of its axes."""

    def __init__(self, name: str, iters: list[IterInfo], block_rv: Any, reduction_block: bool = False) -> None:
        self.name, self.iters, self.block_rv, self._reduces = name, iters, block_rv, reduction_block

    def dom(self) -> list[Any]:
        """The extents of the axes."""
        return [i.dom for i in self.iters]

    def dom_kind(self) -> str:
        """The kinds of the axes, such as "SSR"."""
        return "".join(i.kind for i in self.iters)

    def get_loops(self) -> list[Any]:
        """The loop of each axis."""
        return [i.loop_rv for i in self.iters]

    def is_injective(self) -> bool:
        """Whether all axes are spatial."""
        return set(self.dom_kind()) <= {"S"}

    def is_reduction(self) -> bool:
        """Whether the block is a reduction that may be parted."""
        return self._reduces

    def is_elementwise(self, sch: Schedule) -> bool:
        """Whether the block reads one buffer at the place that it writes."""
        block = sch.get(self.block_rv)
        if not self.is_injective() or len(block.reads) != 1 or len(block.writes) != 1:
            return False
        places = [iv.var for iv in block.iter_vars]
        return all(
            len(r.region) == len(places)
            and all(d.min is v and ir.as_int(d.extent) == 1 for d, v in zip(r.region, places, strict=True))
            for r in (block.reads[0], block.writes[0])
        )

    def __repr__(self) -> str:
        return f'BlockInfo("{self.name}", "{self.dom_kind()}", {self.dom()})'


def normalize_prim_func(sch: Schedule) -> list[BlockInfo] | None:
    """Give each block one loop for each of its axes, none of extent 1; a block without spatial axes gets one of 1.

    Returns
    -------
    list of BlockInfo or None
        The innermost blocks in order; None where a block's axes are not the loops around it.
    """
    leaves = _leaves(sch, sch.get_block("root"))
    for block in leaves:
        loops, realize = [sch.get(loop) for loop in sch.get_loops(block)], sch.state.realize(block.name)
        values = realize.iter_values
        plain = len(loops) == len(values) and all(
            v is loop.loop_var and ir.as_int(loop.min) == 0 for v, loop in zip(values, loops, strict=True)
        )
        if loops and not plain:
            return None
    return [_normal_block(sch, block) for block in leaves]


def _leaves(sch: Schedule, block: Any) -> list[Any]:
    inner = sch.get_child_blocks(block)
    return [leaf for b in inner for leaf in _leaves(sch, b)] if inner else [block]


def _normal_block(sch: Schedule, block: Any) -> BlockInfo:
    iters = sch.get(block).iter_vars
    kept = [i for i, iv in enumerate(iters) if ir.as_int(iv.dom.extent) != 1]
    lead = [] if any(iters[i].iter_type == "data_par" for i in kept) else [ir.const(0, "int64")]
    if lead or len(kept) < len(iters):
        shape = IndexMap.from_func(lambda *i: [*lead, *(i[n] for n in kept)], ndim=len(iters))
        try:
            sch.transform_block_layout(block, shape)
        except error.ScheduleError:
            pass  # its axes stay as they are, and the loops around it
    node, loops = sch.get(block), sch.get_loops(block)
    infos = [
        IterInfo(_KINDS.get(iv.iter_type, "O"), iv.var, iv.dom.extent, loop)
        for iv, loop in zip(node.iter_vars, loops, strict=False)
    ]
    return BlockInfo(
        node.name_hint, infos, block, is_reduction(sch.state.realize(block.name), sch.state.scope_of_block(block.name))
    )


def get_reduction_expr(block: tir.Block) -> Any:
    """Return what a block adds to the element that it writes, or None where it does something else."""
    store: Any = block.body
    if not isinstance(store, tir.BufferStore) or not isinstance(store.value, ir.Add):
        return None
    same = ir.structural_equal(store.value.a, tir.BufferLoad(store.buffer, store.indices))
    return store.value.b if same else None


def collect_vars_used_in_prim_expr(expr: ir.PrimExpr) -> set[ir.Var]:
    """Return the variables of an expression."""
    return used_vars(expr)


def collect_block_iter_vars_used_in_access_region(block: tir.Block, region: Sequence[ir.Range]) -> set[ir.Var]:
    """Return the axes of a block that decide which elements a region has."""
    return used_vars(*(r.min for r in region)) & {iv.var for iv in block.iter_vars}


def detect_dominant_read(block: tir.Block) -> Any:
    """Return the offset, in elements, at which the read that most axes decide begins."""
    used = [collect_block_iter_vars_used_in_access_region(block, r.region) for r in block.reads]
    read = block.reads[max(range(len(used)), key=lambda i: (len(used[i]), -i))]
    offset: Any = ir.const(0, read.region[0].min.dtype)
    for r, extent in zip(read.region, read.buffer.shape, strict=True):
        offset = offset * ir.cast(offset.dtype, extent) + ir.cast(offset.dtype, r.min)
    return offset


def is_broadcast_epilogue(sch: Schedule, block: BlockRV, epilogue: BlockRV) -> bool:
    """Whether a block reads one element of what another writes for several of its own."""
    written = {w.buffer for w in sch.get(block).writes}
    node = sch.get(epilogue)
    axes = [iv for iv in node.iter_vars if ir.as_int(iv.dom.extent) != 1]
    return any(
        len(collect_block_iter_vars_used_in_access_region(node, r.region)) < len(axes)
        for r in node.reads
        if r.buffer in written
    )


def is_gemv(sch: Schedule, block_info: BlockInfo) -> list[tir.Buffer] | None:
    """Return the buffers of the vectors where a block multiplies a matrix by vectors and sums, else None."""
    block = sch.get(block_info.block_rv)
    plain = block_info.is_reduction() and len(block.reads) >= 2 and len(block.writes) == 1
    if not plain or get_reduction_expr(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    used = {r.buffer: len(collect_block_iter_vars_used_in_access_region(block, r.region)) for r in block.reads}
    vectors = [b for b, n in used.items() if 0 < n < len(block.iter_vars)]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def get_root_block(sch: Schedule, func_name: str = "main") -> Any:
    """Return the root block of the function under work."""
    return sch.get_block("root", func_name)


def get_max_threads_per_block(target: Target) -> int:
    """Return how many threads a block of a GPU may have, 64 where the target does not say."""
    limit = target.attrs.get("max_threads_per_block") or target.attrs.get("max_num_threads")
    return int(limit or 64)


def get_max_shared_memory_per_block(target: Target) -> int:
    """Return how many bytes the threads of a block of a GPU may share."""
    return int(target.attrs.get("max_shared_memory_per_block") or target.attribute("dlight.shared_bytes", 16384))


def numbering(info: BlockInfo, given: Sequence[int], groups: Sequence[Sequence[int]]) -> Callable[..., list[Any]]:
    """Return a function from values of the axes `given` to one index for each group of axes, which numbers its values.

    Parameters
    ----------
    given, groups : sequences of int
        Places of axes in ``info.iters``; the last of a group runs fastest.
    """

    def index(*variables: Any) -> list[Any]:
        at, places = dict(zip(given, variables, strict=True)), []
        for group in groups:
            place: Any = ir.const(0, info.iters[0].var.dtype)
            for a in group:
                place = place * info.iters[a].dom + at[a]
            places.append(place)
        return places

    return index
