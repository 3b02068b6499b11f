"""Schedule: the primitives as methods, with handles of blocks and loops and a trace of what was done."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.error import InvalidArgument, ScheduleError
from weft.ir import IRModule, PrimExpr
from weft.tir.analysis.dependence import consumers_of, producers_of
from weft.tir.analysis.structure import child_realizes, used_vars
from weft.tir.function import PrimFunc
from weft.tir.schedule import (
    annotate,
    blockize,
    blocks,
    cache,
    compute_at,
    guards,
    layout,
    loops,
    pad_einsum,
    reduction,
    reindex,
    sampling,
    tensorize,
)
from weft.tir.schedule.block_buffers import BufferName, buffer_at
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState
from weft.tir.schedule.trace import BlockRV, Instruction, LoopRV, Trace
from weft.tir.stmt import Block, For

__all__ = ["Schedule"]

F = TypeVar("F", bound=Callable[..., Any])
Factor = int | PrimExpr | None


def _primitive(fn: F) -> F:
    """Record the call in the trace; primitives that it calls itself are not recorded."""

    @functools.wraps(fn)
    def wrapper(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        return self.record(fn, args, kwargs)

    return wrapper  # type: ignore[return-value]


class Schedule:
    """A function with the transformations applied to it so far.

    Each primitive keeps what the function computes, or is refused.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        What to schedule; of a module, the function ``main`` or the only one, unless :meth:`work_on` says another.
    seed : int, optional
        The start of the random numbers of the ``sample_*`` primitives.
    """

    def __init__(self, mod: IRModule | PrimFunc, seed: int | None = None, **_: Any) -> None:
        self._mod = IRModule.from_expr(mod)
        functions = [v.name_hint for v, f in self._mod.items() if isinstance(f, PrimFunc)]
        if not functions:
            raise InvalidArgument("the module has no TIR function to schedule")
        self._name = "main" if "main" in functions else functions[0]
        self.state = ScheduleState(self._mod[self._name])  # type: ignore[arg-type]
        self.trace = Trace()
        self._depth = 0
        self._drawn: Any = None
        self._handles: dict[Any, BlockRV | LoopRV] = {}
        self._random = random.Random(seed)

    @property
    def func(self) -> PrimFunc:
        """The function as it is now."""
        return self.state.func

    @property
    def mod(self) -> IRModule:
        """The module with the function as it is now."""
        return self._mod.with_functions(
            {v: self.state.func if v.name_hint == self._name else f for v, f in self._mod.items()}
        )

    def work_on(self, func_name: str) -> None:
        """Turn to another function of the module."""
        self._mod = self.mod
        self.state = ScheduleState(self._mod[func_name])  # type: ignore[arg-type]
        self._name = func_name

    def copy(self) -> Schedule:
        """Return an independent schedule in the same state; handles of blocks and loops are good for both."""
        new = Schedule(self.mod)
        new._name, new.state.func = self._name, self.state.func
        new.trace = Trace(self.trace.insts)
        return new

    def checkpoint(self) -> tuple[Any, ...]:
        """Remember the state, for :meth:`rollback`."""
        return self.state.func, len(self.trace.insts), dict(self._handles)

    def rollback(self, saved: tuple[Any, ...]) -> None:
        """Return to a state remembered by :meth:`checkpoint`."""
        self.state.func, length, self._handles = saved[0], saved[1], dict(saved[2])
        del self.trace.insts[length:]

    def show(self) -> None:
        """Print the function and the trace."""
        print(self.func)
        print(self.trace)

    # --- handles in the trace ---

    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive and add it to the trace; a refused one leaves the function as it was."""
        if self._depth == 0:
            args, kwargs = self._plain(fn, args, kwargs)
            args = tuple(self._known(a) for a in args)
            kwargs = {k: self._known(v) for k, v in kwargs.items()}
        self._depth += 1
        before = self.state.func
        try:
            result = fn(self, *args, **kwargs)
        except Exception as error:
            self.state.func = before
            if isinstance(error, ScheduleError) and self._depth == 1:
                _say_where(error, fn.__name__, [*args, *kwargs.values()])
            raise
        finally:
            self._depth -= 1
        if self._depth == 0:
            decision, self._drawn = self._drawn, None
            kwargs.pop("decision", None)
            self._note(Instruction(fn.__name__, args, kwargs, result, decision))
        return result

    def _plain(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find blocks that are given by name, and make functions of indices what can be printed and saved."""
        names = [n for n in fn.__code__.co_varnames[1 : fn.__code__.co_argcount]]
        given = dict(zip(names, args, strict=False)) | kwargs
        kinds = {n: fn.__annotations__.get(n) for n in given}
        rest = fn.__annotations__.get("loops_")  # the primitives that take any number of loops
        for n, kind in [*kinds.items(), *[(i, rest) for i in range(len(names), len(args))]]:
            value = given[n] if n in given else args[n]  # type: ignore[index]
            if isinstance(n, str) and isinstance(value, str) and kind in ("BlockRV", "BlockRV | LoopRV"):
                given[n] = value = self.get_block(value)
            if kind in _HANDLES and not isinstance(value, _HANDLES[kind][0]):
                raise ScheduleError(
                    f"{fn.__name__}: an argument is no {_HANDLES[kind][1]}",
                    expected=_HANDLES[kind][2],
                    found=repr(value),
                )
        index_map = given.get("index_map")
        if index_map is not None and not isinstance(index_map, IndexMap):
            block = self.state.realize(given["block"].name).block
            ndim = len(buffer_at(block, given["buffer"], fn.__name__).shape)
            given["index_map"] = IndexMap.from_func(index_map, ndim)
        return tuple(given[n] for n in names[: len(args)]) + args[len(names) :], {k: given[k] for k in kwargs}

    def _note(self, inst: Instruction) -> None:
        """Add an instruction to the trace and remember which handles it returned."""
        self.trace.insts.append(inst)
        for h in inst.handles:
            self._handles[_handle_key(h)] = h

    def _known(self, value: Any) -> Any:
        """Replace handles by those that the trace returned for the same block or loop.

        Look up in the trace what it never named.
        """
        if isinstance(value, (list, tuple)):
            return type(value)(self._known(v) for v in value)
        if isinstance(value, PrimExpr):
            for v in sorted(used_vars(value), key=lambda v: v.name):
                if v not in self._handles and any(f.loop_var is v for f in self.state.all_loops()):
                    self._known(LoopRV(v))
        if not isinstance(value, (BlockRV, LoopRV)):
            return value
        known = self._handles.get(_handle_key(value))
        if known is not None:
            return known
        if isinstance(value, BlockRV):
            if value.name in self.state.block_names():
                self._note(Instruction("get_block", (value.name,), {}, value))
            return value
        inside = child_realizes(self.state.loop(value.var).body)
        block = self._known(BlockRV(inside[0].block.name_hint))
        loops_ = [LoopRV(f.loop_var) for f in self.state.loops_of(block.name)]
        self._note(Instruction("get_loops", (block,), {}, loops_))
        return self._handles[_handle_key(value)]

    # --- finding ---

    def get(self, rv: BlockRV | LoopRV) -> Block | For:
        """Return the node behind a handle."""
        return self.state.realize(rv.name).block if isinstance(rv, BlockRV) else self.state.loop(rv.var)

    @_primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """Find a block by name."""
        if func_name is not None and func_name != self._name:
            self.work_on(func_name)
        self.state.path_to_block(name)
        return BlockRV(name)

    get_sblock = get_block

    @_primitive
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """List the loops around a block, outermost first."""
        return [LoopRV(f.loop_var) for f in self.state.loops_of(block.name)]

    @_primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """List the blocks directly inside a block or loop."""
        node: Any = self.get(block_or_loop)
        return [BlockRV(r.block.name_hint) for r in child_realizes(node if isinstance(node, Block) else node.body)]

    @_primitive
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """List the blocks whose output a block reads."""
        scope = self.state.scope_of_block(block.name)
        return [BlockRV(r.block.name_hint) for r in producers_of(self.state.realize(block.name).block, scope)]

    @_primitive
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """List the blocks that read the output of a block."""
        scope = self.state.scope_of_block(block.name)
        return [BlockRV(r.block.name_hint) for r in consumers_of(self.state.realize(block.name).block, scope)]

    def get_output_blocks(self, scope_block: BlockRV | str = "root") -> list[BlockRV]:
        """List the blocks that write parameters of the function."""
        name = scope_block if isinstance(scope_block, str) else scope_block.name
        return [
            BlockRV(r.block.name_hint)
            for r in child_realizes(self.state.realize(name).block)
            if any(self.state.is_argument(w.buffer) for w in r.block.writes)
        ]

    # --- loops ---

    @_primitive
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Split a loop by `factors`, outermost first.

        One may be None. Where the product is too large, blocks get a predicate.
        """
        return [LoopRV(v) for v in loops.split(self.state, loop.var, factors, preserve_unit_iters)]

    @_primitive
    def fuse(self, *loops_: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Fuse directly nested loops, outermost first."""
        return LoopRV(loops.fuse(self.state, [rv.var for rv in loops_], preserve_unit_iters))

    @_primitive
    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Give loops of one nest the order listed."""
        loops.reorder(self.state, [rv.var for rv in ordered_loops])

    @_primitive
    def loop_partition(self, loop: LoopRV, factors: Sequence[Factor], preserve_unit_iters: bool = True) -> list[LoopRV]:
        """Cut a loop into consecutive loops of the given lengths; a missing last length is added."""
        return [LoopRV(v) for v in loops.loop_partition(self.state, loop.var, factors, preserve_unit_iters)]

    @_primitive
    def specialize(self, loop: LoopRV, condition: PrimExpr) -> list[BlockRV]:
        """Copy a loop nest: the original runs where `condition` holds, the copy elsewhere.

        Returns the blocks of the copy.
        """
        return [BlockRV(n) for n in loops.specialize(self.state, loop.var, condition)[0]]

    @_primitive
    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of one iteration around a block or loop."""
        return LoopRV(
            loops.add_unit_loop(
                self.state, block_or_loop.name if isinstance(block_or_loop, BlockRV) else block_or_loop.var
            )
        )

    # --- how loops run ---

    @_primitive
    def parallel(self, loop: LoopRV) -> None:
        """Run a loop on the thread pool."""
        annotate.parallel(self.state, loop.var)

    @_primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Run a loop of constant extent as vector lanes."""
        annotate.vectorize(self.state, loop.var)

    @_primitive
    def unroll(self, loop: LoopRV) -> None:
        """Write a loop out."""
        annotate.unroll(self.state, loop.var)

    @_primitive
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to a GPU thread axis."""
        annotate.bind(self.state, loop.var, thread_axis)

    @_primitive
    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Note something on a block or loop."""
        annotate.annotate(
            self.state,
            block_or_loop.name if isinstance(block_or_loop, BlockRV) else block_or_loop.var,
            ann_key,
            ann_val,
        )

    @_primitive
    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Remove a note."""
        annotate.unannotate(
            self.state, block_or_loop.name if isinstance(block_or_loop, BlockRV) else block_or_loop.var, ann_key
        )

    # --- where blocks run ---

    @_primitive
    def compute_inline(self, block: BlockRV) -> None:
        """Compute an element-wise block where it is read."""
        blocks.compute_inline(self.state, block.name)

    @_primitive
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Compute an element-wise block where its producer stores."""
        blocks.reverse_compute_inline(self.state, block.name)

    @_primitive
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Compute in each iteration of `loop` what the consumers of `block` need there."""
        compute_at.compute_at(self.state, block.name, loop.var, preserve_unit_loops, index)

    @_primitive
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Run in each iteration of `loop` the part of `block` that uses what was made there."""
        compute_at.reverse_compute_at(self.state, block.name, loop.var, preserve_unit_loops, index)

    @_primitive
    def split_consumers(self, block: BlockRV, consumers: Sequence[BlockRV]) -> list[BlockRV]:
        """Give each consumer its own copy of a block, so that each can be computed where its consumer is."""
        return [BlockRV(n) for n in blocks.split_consumers(self.state, block.name, [c.name for c in consumers])]

    # --- reductions ---

    @_primitive
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Put the init of a reduction before `loop`; returns the init block, and `block` becomes the update."""
        init, update = reduction.decompose_reduction(
            self.state, self.state.realize(block.name).block.name_hint, loop.var
        )
        self.state.renamed[block.name] = update
        return BlockRV(init)

    @_primitive
    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Make a reduction loop spatial; returns the block of partial results."""
        return BlockRV(reduction.rfactor(self.state, loop.var, factor_axis))

    @_primitive
    def skip_zeros(self, block: BlockRV) -> None:
        """Turn ``C += if_then_else(c, x, 0) * w`` into ``if c: C += x * w``, so that the test can leave inner loops."""
        guards.skip_zeros(self.state, self.state.realize(block.name).block.name_hint)

    # --- blocks of blocks ---

    @_primitive
    def blockize(self, target: LoopRV, preserve_unit_iters: bool = True) -> BlockRV:
        """Make one block of a loop and all inside it."""
        return BlockRV(blockize.blockize(self.state, target.var))

    @_primitive
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
            else blockize.blockize(self.state, block_or_loop.var)
        )
        tensorize.tensorize(self.state, name, tensor_intrin)

    # --- buffers ---

    @_primitive
    def reindex(self, block: BlockRV, buffer: BufferName) -> BlockRV:
        """Let a block address a buffer by its own iteration variables; returns the block that copies."""
        return BlockRV(reindex.reindex(self.state, block.name, buffer))

    @_primitive
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> None:
        """Round the extents of a contraction's iteration variables up to multiples of `padding`."""
        pad_einsum.pad_einsum(self.state, block.name, padding)

    @_primitive
    def cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str, consumer_blocks: Sequence[BlockRV] = ()
    ) -> BlockRV:
        """Copy what a block reads to a new buffer first."""
        return BlockRV(
            cache.cache_read(
                self.state, block.name, read_buffer_index, storage_scope, [b.name for b in consumer_blocks]
            )
        )

    @_primitive
    def cache_write(self, block: BlockRV, write_buffer_index: int, storage_scope: str) -> BlockRV:
        """Let a block write a new buffer that is copied afterwards."""
        return BlockRV(cache.cache_write(self.state, block.name, write_buffer_index, storage_scope))

    @_primitive
    def set_scope(self, block: BlockRV, buffer_index: int, storage_scope: str) -> None:
        """Choose where the buffer that a block writes lives."""
        cache.set_scope(self.state, block.name, buffer_index, storage_scope)

    @_primitive
    def transform_layout(
        self, block: BlockRV, buffer: BufferName, index_map: Callable[..., Sequence[Any]] | IndexMap
    ) -> None:
        """Store a buffer of a block in another order."""
        layout.transform_layout(self.state, block.name, buffer, index_map)

    @_primitive
    def storage_align(self, block: BlockRV, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Ask for a stride of ``factor * n + offset``."""
        layout.storage_align(self.state, block.name, buffer_index, axis, factor, offset)

    # --- sampling ---

    @_primitive
    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> int:
        """Draw one of `candidates`; `decision` is the index to take instead."""
        self._drawn = sampling.categorical(self._random, candidates, probs, decision)
        return candidates[self._drawn]

    @_primitive
    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[int]:
        """Draw `n` factors whose product is the extent of a loop."""
        self._drawn = sampling.perfect_tile(self._random, self.state.loop(loop.var), n, max_innermost_factor, decision)
        return list(self._drawn)

    # --- used by rules ---

    def outer_loop(self, block: BlockRV) -> LoopRV:
        """Return the outermost loop of a block."""
        return LoopRV(self.state.loops_of(block.name)[0].loop_var)


_HANDLES: dict[Any, Any] = {
    "BlockRV": (BlockRV, "block", "the name of a block or what get_block returned"),
    "LoopRV": (LoopRV, "loop", "a loop that get_loops, split or fuse returned"),
    "BlockRV | LoopRV": ((BlockRV, LoopRV), "block or loop", "what get_block or get_loops returned"),
}


def _say_where(error: ScheduleError, primitive: str, args: list[Any]) -> None:
    """Add to an error the primitive that was refused, its block and its loops, where it does not name them."""
    if not error.what.startswith(f"{primitive}: "):
        error.what = f"{primitive}: {error.what}"
    handles = [h for a in args for h in (a if isinstance(a, (list, tuple)) else [a])]
    blocks_ = [h.name for h in handles if isinstance(h, BlockRV)]
    loops_ = [h.var.name for h in handles if isinstance(h, LoopRV)]
    if error.where is None and blocks_:
        error.where = f"block '{blocks_[0]}'"
    if error.found is None and loops_:
        error.found = f"loops {', '.join(loops_)}"


def _handle_key(handle: BlockRV | LoopRV) -> Any:
    """Return what two handles of one block or loop share."""
    return handle.name if isinstance(handle, BlockRV) else handle.var
