"""Schedule: the primitives as methods, with handles of blocks and loops and a trace of what was done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir
from weft.spelling import also_called
from weft.tir.analysis.dependence import consumers_of, producers_of
from weft.tir.analysis.structure import blocks_in, child_realizes
from weft.tir.buffer import Buffer
from weft.tir.schedule import (
    annotate,
    blockize,
    blocks,
    cache,
    compute_at,
    epilogue_fusion,
    guards,
    iteration,
    layout,
    loops,
    merge,
    pad_einsum,
    padding,
    reduction,
    reindex,
    rolling_buffer,
    sampling,
    tensorize,
)
from weft.tir.schedule.block_buffers import BufferName
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.instruction import BlockRV, ExprRV, LoopRV
from weft.tir.schedule.recording import Recorder, handle_key, primitive
from weft.tir.stmt import Block

Factor = int | ir.PrimExpr | None
ScheduleError = error.ScheduleError


class Schedule(Recorder):
    """A function with the transformations applied to it so far.

    Each primitive keeps what the function computes, or is refused. The parameters are those of :class:`Recorder`.
    """

    # --- finding ---

    @primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """Find a block by name."""
        if func_name is not None and (func_name != self._name or self._undecided):
            self.work_on(func_name)
        if self._undecided:
            names = ", ".join(v.name_hint for v in self._mod)
            raise error.InvalidArgument(
                "the schedule does not know which function to be working on",
                found=names,
                help="call work_on(name), or pass func_name",
            )
        self.state.path_to_block(name)
        return BlockRV(name)

    get_sblock = get_block

    @primitive
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """List the loops around a block, outermost first."""
        return [LoopRV(f.loop_var) for f in self.state.loops_of(block.name)]

    @primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """List the blocks directly inside a block or loop."""
        node: Any = self.get(block_or_loop)
        return [BlockRV(r.block.name_hint) for r in child_realizes(node if isinstance(node, Block) else node.body)]

    @primitive
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """List the blocks whose output a block reads."""
        scope = self.state.scope_of_block(block.name)
        return [BlockRV(r.block.name_hint) for r in producers_of(self.state.realize(block.name).block, scope)]

    @primitive
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """List the blocks that read the output of a block."""
        scope = self.state.scope_of_block(block.name)
        return [BlockRV(r.block.name_hint) for r in consumers_of(self.state.realize(block.name).block, scope)]

    def get_output_blocks(self, scope_block: BlockRV | str = "root") -> list[BlockRV]:
        """List the blocks in a scope, inner ones too, that write parameters of the function."""
        name = scope_block if isinstance(scope_block, str) else scope_block.name
        scope = self.state.realize(name).block
        return [
            BlockRV(b.name_hint)
            for b in blocks_in(scope.body)
            if any(self.state.is_argument(w.buffer) for w in b.writes)
        ]

    # --- loops ---

    @primitive
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Split a loop by `factors`, outermost first.

        One may be None. Where the product is too large, blocks get a predicate, unless `disable_predication` says
        that the extent is a multiple after all.
        """
        return [LoopRV(v) for v in loops.split(self.state, loop.var, factors, preserve_unit_iters, disable_predication)]

    @primitive
    def fuse(self, *loops_: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Fuse directly nested loops, outermost first."""
        return LoopRV(loops.fuse(self.state, [rv.var for rv in loops_], preserve_unit_iters))

    @primitive
    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Give loops of one nest the order listed."""
        loops.reorder(self.state, [rv.var for rv in ordered_loops])

    @primitive
    def loop_partition(self, loop: LoopRV, factors: Sequence[Factor], preserve_unit_iters: bool = True) -> list[LoopRV]:
        """Cut a loop into consecutive loops of the given lengths; a missing last length is added."""
        return [LoopRV(v) for v in loops.loop_partition(self.state, loop.var, factors, preserve_unit_iters)]

    @primitive
    def merge(self, *loops_: LoopRV) -> LoopRV:
        """Run nests that stand one after another as one, iteration by iteration; returns the merged loop."""
        return LoopRV(merge.merge(self.state, [rv.var for rv in loops_]))

    @primitive
    def specialize(self, loop: LoopRV, condition: ir.PrimExpr) -> list[BlockRV]:
        """Copy a loop nest: the original runs where `condition` holds, the copy elsewhere.

        Returns the blocks of the copy.
        """
        return [BlockRV(n) for n in loops.specialize(self.state, loop.var, condition)[0]]

    @primitive
    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of one iteration around a block or loop."""
        return LoopRV(loops.add_unit_loop(self.state, handle_key(block_or_loop)))

    # --- how loops run ---

    @primitive
    def parallel(self, loop: LoopRV) -> None:
        """Run a loop on the thread pool."""
        annotate.parallel(self.state, loop.var)

    @primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Run a loop of constant extent as vector lanes."""
        annotate.vectorize(self.state, loop.var)

    @primitive
    def unroll(self, loop: LoopRV) -> None:
        """Write a loop out."""
        annotate.unroll(self.state, loop.var)

    @primitive
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to a GPU thread axis."""
        annotate.bind(self.state, loop.var, thread_axis)

    @primitive
    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Note something on a block or loop."""
        annotate.annotate(self.state, handle_key(block_or_loop), ann_key, ann_val)

    @primitive
    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Remove a note."""
        annotate.unannotate(self.state, handle_key(block_or_loop), ann_key)

    # --- where blocks run ---

    @primitive
    def compute_inline(self, block: BlockRV) -> None:
        """Compute an element-wise block where it is read."""
        blocks.compute_inline(self.state, block.name)

    @primitive
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Compute an element-wise block where its producer stores: each element that it makes of one that it reads."""
        blocks.reverse_compute_inline(self.state, block.name)

    @primitive
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Compute in each iteration of `loop` what the consumers of `block` need there."""
        if isinstance(loop.var, str) and loop.var == sampling.INLINE:
            blocks.compute_inline(self.state, block.name)
        if isinstance(loop.var, str):  # inlined, or left where it is
            return
        compute_at.compute_at(self.state, block.name, loop.var, preserve_unit_loops, index)

    @primitive
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Run in each iteration of `loop` the part of `block` that uses what was made there."""
        if isinstance(loop.var, str) and loop.var == sampling.INLINE:
            blocks.reverse_compute_inline(self.state, block.name)
        if isinstance(loop.var, str):  # inlined, or left where it is
            return
        compute_at.reverse_compute_at(self.state, block.name, loop.var, preserve_unit_loops, index)

    @primitive
    def split_consumers(self, block: BlockRV, consumers: Sequence[BlockRV]) -> list[BlockRV]:
        """Give each consumer its own copy of a block, so that each can be computed where its consumer is."""
        return [BlockRV(n) for n in blocks.split_consumers(self.state, block.name, [c.name for c in consumers])]

    # --- reductions ---

    @primitive
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Put the init of a reduction before `loop`; returns the init block, and `block` becomes the update."""
        init, update = reduction.decompose_reduction(
            self.state, self.state.realize(block.name).block.name_hint, loop.var
        )
        self.state.renamed[block.name] = update
        return BlockRV(init)

    @primitive
    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Make a reduction loop spatial; returns the block of partial results."""
        return BlockRV(reduction.rfactor(self.state, loop.var, factor_axis))

    @primitive
    def fuse_reduction_epilogue(self, reduction_block: BlockRV, epilogue_block: BlockRV) -> None:
        """Let a reduction start from what a block adds to its results, and write what that block does."""
        epilogue_fusion.fuse_reduction_epilogue(self.state, reduction_block.name, epilogue_block.name)

    @primitive
    def skip_zeros(self, block: BlockRV) -> None:
        """Turn ``C += if_then_else(c, x, 0) * w`` into ``if c: C += x * w``, so that the test can leave inner loops."""
        guards.skip_zeros(self.state, self.state.realize(block.name).block.name_hint)

    # --- blocks of blocks ---

    @primitive
    @also_called(loop="target")
    def blockize(self, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """Make one block of a loop and all inside it, or of blocks that stand one after another."""
        if not isinstance(target, LoopRV):
            names = [self.state.realize(b.name).block.name_hint for b in target]
            return BlockRV(blockize.blockize_blocks(self.state, names, preserve_unit_iters))
        return BlockRV(blockize.blockize(self.state, target.var, preserve_unit_iters))

    @primitive
    def tensorize(
        self,
        block_or_loop: BlockRV | LoopRV,
        tensor_intrin: str | tensorize.TensorIntrin,
        preserve_unit_iters: bool = True,
    ) -> None:
        """Compute a block, or a loop that is made one, by an intrinsic that describes the same computation."""
        name = (
            block_or_loop.name
            if isinstance(block_or_loop, BlockRV)
            else blockize.blockize(self.state, block_or_loop.var, preserve_unit_iters)
        )
        tensorize.tensorize(self.state, name, tensor_intrin)

    # --- buffers ---

    @primitive
    def reindex(self, block: BlockRV, buffer: BufferName) -> BlockRV:
        """Let a block address a buffer by its own iteration variables; returns the block that copies."""
        return BlockRV(reindex.reindex(self.state, block.name, buffer))

    @primitive
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> None:
        """Round the extents of a contraction's iteration variables up to multiples of `padding`."""
        pad_einsum.pad_einsum(self.state, block.name, padding)

    @primitive
    def reindex_cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str, index_map: Callable[..., Any] | IndexMap
    ) -> BlockRV:
        """Copy what a block reads to a new buffer first, at the place that a map of the block's variables gives."""
        where = ("read", read_buffer_index)
        return BlockRV(reindex.reindex(self.state, block.name, where, index_map, storage_scope))  # type: ignore[arg-type]

    @primitive
    def reindex_cache_write(
        self, block: BlockRV, write_buffer_index: int, storage_scope: str, index_map: Callable[..., Any] | IndexMap
    ) -> BlockRV:
        """Let a block write a new buffer, at the place that a map of its variables gives, that is copied afterwards."""
        where = ("write", write_buffer_index)
        return BlockRV(reindex.reindex(self.state, block.name, where, index_map, storage_scope))  # type: ignore[arg-type]

    @primitive
    def cache_read(
        self,
        block: BlockRV,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:
        """Copy what a block reads to a new buffer first."""
        users = [b.name for b in consumer_blocks or ()]
        return BlockRV(cache.cache_read(self.state, block.name, read_buffer_index, storage_scope, users))

    @primitive
    def cache_write(
        self,
        block: BlockRV,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:
        """Let a block write a new buffer that is copied afterwards, and let `consumer_blocks` read the new one."""
        users = [b.name for b in consumer_blocks or ()]
        return BlockRV(cache.cache_write(self.state, block.name, write_buffer_index, storage_scope, users))

    @primitive
    def read_at(self, loop: LoopRV, block: BlockRV, read_buffer_index: int, storage_scope: str) -> BlockRV:
        """Copy in each iteration of `loop` what a block reads there to a new buffer first."""
        copy = cache.cache_read(self.state, block.name, read_buffer_index, storage_scope)
        compute_at.compute_at(self.state, copy, loop.var)
        annotate.annotate(self.state, copy, "auto_copy", 1)
        return BlockRV(copy)

    @primitive
    def write_at(self, loop: LoopRV, block: BlockRV, write_buffer_index: int, storage_scope: str) -> BlockRV:
        """Let a block write a new buffer, what of it is made in an iteration of `loop` being copied at its end."""
        copy = cache.cache_write(self.state, block.name, write_buffer_index, storage_scope)
        compute_at.reverse_compute_at(self.state, copy, loop.var)
        annotate.annotate(self.state, copy, "auto_copy", 1)
        return BlockRV(copy)

    @primitive
    def cache_inplace(self, block: BlockRV, read_buffer_index: int | str | Buffer, storage_scope: str) -> list[BlockRV]:
        """Let a block work on a copy of a buffer that it reads and writes; returns the blocks that copy in and out."""
        return [BlockRV(n) for n in cache.cache_inplace(self.state, block.name, read_buffer_index, storage_scope)]

    @primitive
    def cache_index(self, block: BlockRV, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute indices of what a block loads ahead; with `cse_thresh`, what occurs in them so often or more."""
        return [BlockRV(n) for n in cache.cache_index(self.state, block.name, storage_scope, cse_thresh)]

    @primitive
    def set_axis_separator(self, block: BlockRV, buffer: BufferName, axis_separators: Sequence[int] | None) -> None:
        """Say between which dimensions a buffer is laid out in further dimensions of memory, where there are such."""
        layout.set_axis_separator(self.state, block.name, buffer, axis_separators or ())

    @primitive
    def set_scope(self, block: BlockRV, buffer_index: int | str | Buffer, storage_scope: str) -> None:
        """Choose where the buffer that a block writes lives."""
        cache.set_scope(self.state, block.name, buffer_index, storage_scope)

    @primitive
    def unsafe_set_dtype(self, block: BlockRV, buffer_index: int | str | Buffer, dtype: str) -> None:
        """Keep the buffer that a block writes in another data type, whatever that does to its values."""
        cache.set_dtype(self.state, block.name, buffer_index, dtype)

    @primitive
    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Fill with the padding before `loop`, and let `block` copy what lies inside; returns the block that fills."""
        return BlockRV(padding.decompose_padding(self.state, block.name, loop.var))

    def can_decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> bool:
        """Whether :meth:`decompose_padding` would not be refused."""
        name = block if isinstance(block, str) else block.name
        return padding.can_decompose_padding(self.state, name, loop.var)

    @primitive
    def reorder_block_iter_var(self, block: BlockRV, new_order: Sequence[int]) -> None:
        """List the iteration variables of a block in another order."""
        iteration.reorder_block_iter_var(self.state, block.name, new_order)

    @primitive
    def transform_block_layout(self, block: BlockRV, index_map: Callable[..., Any] | IndexMap) -> None:
        """Run a block over the image of its iteration space, in new loops of that shape."""
        iteration.transform_block_layout(self.state, block.name, index_map)  # type: ignore[arg-type]

    @primitive
    def transform_layout(
        self,
        block: BlockRV,
        buffer: BufferName,
        index_map: Callable[..., Sequence[Any]] | IndexMap,
        pad_value: Any = None,
        assume_injective_transform: bool = False,
    ) -> None:
        """Store a buffer of a block in another order; where it grows it holds `pad_value`, if one is given."""
        layout.transform_layout(self.state, block.name, buffer, index_map, pad_value, assume_injective_transform)

    @primitive
    def unsafe_hide_buffer_access(self, block: BlockRV, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Leave buffers out of what a block says it reads or writes; what depends on it is no longer seen."""
        cache.hide_accesses(self.state, block.name, buf_type, buf_index_array)

    @primitive
    def annotate_buffer_access(
        self, block: BlockRV, buffer_index: int, buf_type: str, gen_new_ranges: Callable[..., Any] | IndexMap
    ) -> None:
        """State which region a block touches: ``gen_new_ranges(*block_vars)`` gives points or (begin, end) pairs."""
        cache.state_access(self.state, block.name, buffer_index, buf_type, gen_new_ranges)  # type: ignore[arg-type]

    @primitive
    def rolling_buffer(self, block: BlockRV, write_buffer_index: int) -> None:
        """Keep of what a block writes one tile, as a ring, and make in each tile only what the one before has not."""
        rolling_buffer.rolling_buffer(self.state, block.name, write_buffer_index)

    @primitive
    def storage_align(self, block: BlockRV, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Ask for a stride of ``factor * n + offset``."""
        layout.storage_align(self.state, block.name, buffer_index, axis, factor, offset)

    # --- sampling ---

    @primitive
    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> int:
        """Draw one of `candidates`; `decision` is the index to take instead."""
        self._drawn = sampling.categorical(self._random, candidates, probs, decision)
        return ExprRV(candidates[self._drawn])

    @primitive
    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int | None] | None = None
    ) -> list[int | None]:
        """Draw `n` factors whose product is the extent of a loop; of one that is not known the first is None."""
        self._drawn = sampling.perfect_tile(self._random, self.state.loop(loop.var), n, max_innermost_factor, decision)
        return [None if f is None else ExprRV(f) for f in self._drawn]

    @primitive
    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int | None] | None = None,
    ) -> list[int | None]:
        """Draw `n` factors of a loop; those from `partition_pos` on multiply to a multiple of `innerpart_factor`."""
        found = self.state.loop(loop.var)
        self._drawn = sampling.partitioned_tile(self._random, found, n, partition_pos, innerpart_factor, decision)
        return [None if f is None else ExprRV(f) for f in self._drawn]

    @primitive
    def sample_compute_location(self, block: BlockRV, decision: int | None = None) -> LoopRV:
        """Draw a loop for :meth:`compute_at`, or a handle that there means to inline the block or to leave it.

        The decision is the place of the loop among those around the first consumer, -1 to leave the block, or -2 to
        inline it.
        """
        state, name = self.state, block.name
        loops_ = sampling.compute_locations(state, name, lambda v: compute_at.compute_at(state, name, v))
        before = state.func
        try:
            blocks.compute_inline(state, name)
            inline = True
        except error.ScheduleError:
            inline = False
        finally:
            state.func = before
        self._drawn = sampling.location(self._random, loops_, inline, decision)
        return LoopRV({-1: sampling.ROOT, -2: sampling.INLINE, **loops_}[self._drawn])
