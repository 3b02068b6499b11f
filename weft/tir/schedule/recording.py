"""What all schedules have: the function as it is now, handles of blocks and loops, and the trace of what was done."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from typing import Any, Self, TypeVar

from weft.error import IndexOutOfRange, InvalidArgument, ScheduleError, UnknownHandle
from weft.ir import GlobalVar, IRModule, PrimExpr, StringImm
from weft.ir.spec import verify
from weft.tir.analysis.structure import child_realizes, used_vars
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.schedule.block_buffers import buffer_at, place_of
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.instruction import BlockRV, ExprRV, Instruction, InstructionKind, LoopRV
from weft.tir.schedule.state import ScheduleState
from weft.tir.schedule.stmt_refs import StmtSRef
from weft.tir.schedule.trace import Trace
from weft.tir.spec import SCHEDULED
from weft.tir.stmt import Block, For

F = TypeVar("F", bound=Callable[..., Any])


def primitive(fn: F) -> F:
    """Record the call in the trace; primitives that it calls itself are not recorded."""
    kind = InstructionKind(fn)

    @functools.wraps(fn)
    def wrapper(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        return self.record(kind, fn, args, kwargs)

    return wrapper  # type: ignore[return-value]


class Recorder:
    """A function with the transformations applied to it so far, the handles given out, and the trace.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        What to schedule; of a module, the function ``main`` or the only one, unless :meth:`work_on` says another.
        Of several without ``main``, ``get_block`` has to be told which.
    seed : int, optional
        The start of the random numbers of the ``sample_*`` primitives.
    debug_mask : str or int
        ``"all"`` checks the form of the function after each primitive, ``"none"`` (0) does not.
    error_render_level : str
        ``"detail"`` shows in errors what was found and what helps, ``"fast"`` the first line, ``"none"`` a word.
    enable_check : bool
        Accepted for programs that turn checks of preconditions off; they are always on.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        seed: int | None = None,
        *,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if debug_mask not in ("all", "none") and not isinstance(debug_mask, int):
            raise InvalidArgument("unknown debug_mask", expected="'all', 'none' or a number", found=repr(debug_mask))
        if error_render_level not in ("detail", "fast", "none"):
            raise InvalidArgument(
                "unknown error_render_level", expected="'detail', 'fast' or 'none'", found=repr(error_render_level)
            )
        self._mod = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        functions = [v.name_hint for v, f in self._mod.items() if isinstance(f, PrimFunc)]
        if not functions:
            raise InvalidArgument("the module has no TIR function to schedule")
        self._name = "main" if "main" in functions else functions[0]
        self._undecided = len(functions) > 1 and "main" not in functions
        self.state = ScheduleState(self._mod[self._name])  # type: ignore[arg-type]
        self.trace = Trace()
        self._depth = 0
        self._drawn: Any = None
        self._handles: dict[Any, BlockRV | LoopRV] = {}
        self._removed: frozenset[BlockRV | LoopRV] = frozenset()
        self._random = random.Random(seed)
        self._verify, self._render = debug_mask not in ("none", 0), error_render_level

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

    @property
    def func_working_on(self) -> GlobalVar:
        """The name of the function that blocks are looked up in."""
        return next(v for v in self._mod if v.name_hint == self._name)

    def work_on(self, func_name: str) -> None:
        """Turn to another function of the module."""
        mod = self.mod
        self.state = ScheduleState(mod[func_name])  # type: ignore[arg-type]
        self._mod, self._name, self._undecided = mod, func_name, False

    def copy(self) -> Self:
        """Return an independent schedule in the same state; handles of blocks and loops are good for both."""
        new = type(self)(self.mod, self.fork_seed())
        new._name, new._verify, new._render = self._name, self._verify, self._render
        new._undecided = self._undecided
        new.state.func, new.state.renamed = self.state.func, dict(self.state.renamed)
        new.trace, new._handles = self.trace.copy(), dict(self._handles)
        new._removed = self._removed
        return new

    def seed(self, seed: int) -> None:
        """Start the random numbers anew; -1 takes a number from the system."""
        self._random = random.Random(None if seed == -1 else seed)

    def fork_seed(self) -> int:
        """Draw a seed for another schedule that is to draw other numbers."""
        return self._random.randrange(1, 1 << 31)

    def checkpoint(self) -> tuple[Any, ...]:
        """Remember the state, for :meth:`rollback`."""
        return self.state.func, len(self.trace.insts), dict(self._handles)

    def rollback(self, saved: tuple[Any, ...]) -> None:
        """Return to a state remembered by :meth:`checkpoint`."""
        self.state.func, length, self._handles = saved[0], saved[1], dict(saved[2])
        while len(self.trace) > length:
            self.trace.pop()

    def show(self) -> None:
        """Print the function and the trace."""
        print(self.func)
        print(self.trace)

    # --- handles in the trace ---

    def record(
        self, kind: InstructionKind, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a primitive and add it to the trace; a refused one leaves the function as it was."""
        if self._depth == 0:
            args, kwargs = self._plain(fn, args, kwargs)
            args = tuple(self._known(a) for a in args)
            kwargs = {k: self._known(v) for k, v in kwargs.items()}
        self._depth += 1
        before = self.state.func
        try:
            result = fn(self, *_numbers(args), **{k: _numbers(v) for k, v in kwargs.items()})
        except Exception as error:
            self.state.func = before
            if isinstance(error, ScheduleError):
                _say_where(error, fn.__name__, [*args, *kwargs.values()])
                if self._render != "detail" and self._depth == 1:
                    what = error.what if self._render == "fast" else f"{fn.__name__}: refused"
                    raise type(error)(what) from None
            raise
        finally:
            self._depth -= 1
        if self._depth == 0:
            decision, self._drawn = self._drawn, None
            kwargs.pop("decision", None)
            if self._verify:
                verify(self.mod, SCHEDULED, after=fn.__name__)
            self._note(Instruction.of_call(kind, args, kwargs, result), decision)
        return result

    def _block_named(self, name: str) -> Any:
        return self.get_block(name)  # type: ignore[attr-defined]

    def _plain(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find blocks that are given by name, and make functions of indices what can be printed and saved."""
        fn = inspect.unwrap(fn)  # of other names of parameters
        names = [n for n in fn.__code__.co_varnames[1 : fn.__code__.co_argcount]]
        given = dict(zip(names, args, strict=False)) | kwargs
        kinds = {n: fn.__annotations__.get(n) for n in given}
        rest = fn.__annotations__.get("loops_")  # the primitives that take any number of loops
        for n, kind in [*kinds.items(), *[(i, rest) for i in range(len(names), len(args))]]:
            value = given[n] if n in given else args[n]  # type: ignore[index]
            if isinstance(n, str) and isinstance(value, str) and kind in ("BlockRV", "BlockRV | LoopRV"):
                given[n] = value = self._block_named(value)
            several = kind == "LoopRV | Sequence[BlockRV]" and isinstance(value, (list, tuple))
            if several or (kind == "Sequence[BlockRV]" and not isinstance(value, str)):
                names_ = [self._block_named(v) if isinstance(v, str) else v for v in value or ()]
                given[str(n)] = value = names_
            if isinstance(value, Buffer) and "block" in given:  # which another function has at the same place
                given[str(n)] = self._place(given["block"], value, str(n))
            if kind in _HANDLES and not isinstance(value, _HANDLES[kind][0]):
                raise UnknownHandle(
                    f"{fn.__name__}: an argument is no {_HANDLES[kind][1]}",
                    expected=_HANDLES[kind][2],
                    found=repr(value),
                )
        index_map = given.get("index_map")
        if index_map is not None and not isinstance(index_map, IndexMap):
            block = self.state.realize(given["block"].name).block
            ndim = len(block.iter_vars)
            if "buffer" in given:
                try:
                    ndim = len(buffer_at(block, given["buffer"]).shape)
                except ScheduleError as error:
                    _say_where(error, fn.__name__, [given["block"]])
                    raise
            dtype = str(block.iter_vars[0].var.dtype) if block.iter_vars else "int64"
            given["index_map"] = IndexMap.from_func(index_map, ndim, index_dtype=dtype)
        padding = given.get("pad_value")
        if callable(padding) and not isinstance(padding, IndexMap):  # of the indices in the new buffer
            rank = sum(not isinstance(e, StringImm) for e in given["index_map"].final_indices)
            given["pad_value"] = IndexMap.from_func(padding, rank)
        ranges = given.get("gen_new_ranges")
        if ranges is not None and not isinstance(ranges, IndexMap):
            block = self.state.realize(given["block"].name).block
            regions = block.writes if given["buf_type"] == "write" else block.reads
            rank = len(regions[given["buffer_index"]].region) if 0 <= given["buffer_index"] < len(regions) else 0
            given["gen_new_ranges"] = IndexMap.from_ranges(ranges, len(block.iter_vars), rank)
        return tuple(given[n] for n in names[: len(args)]) + args[len(names) :], {k: given[k] for k in kwargs}

    def _place(self, block: BlockRV, buffer: Buffer, parameter: str) -> Any:
        """Return a buffer as its place in a block, or itself where the primitive will refuse it."""
        try:
            kind, index = place_of(self.state.realize(block.name).block, buffer)
        except ScheduleError:
            return buffer
        if not parameter.endswith("index"):
            return kind, index
        return index if kind == ("read" if parameter.startswith("read") else "write") else buffer

    def get(self, rand_var_or_sref: Any) -> Any:
        """Return the node behind a handle or a reference; a number that was drawn is itself.

        Raises
        ------
        IndexOutOfRange
            For a handle that :meth:`remove_rv` was given.
        """
        rv = rand_var_or_sref
        if isinstance(rv, (BlockRV, LoopRV)) and rv in self._removed:
            raise IndexOutOfRange(f"the schedule has forgotten {rv}", help="look it up anew, as by get_block")
        if isinstance(rv, StmtSRef):
            return rv.stmt
        if isinstance(rv, BlockRV):
            return self.state.realize(rv.name).block
        return self.state.loop(rv.var) if isinstance(rv, LoopRV) else _numbers(rv)

    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For) -> StmtSRef | None:
        """Return a reference to a block or loop that also knows what is around it; None where it is gone."""
        found = rand_var_or_stmt
        if isinstance(found, (BlockRV, LoopRV)):
            found = self.get(found)
        return self.state.get_sref(found)

    def remove_rv(self, rand_var: Any) -> None:
        """Forget a handle; primitives look up anew what it stands for, :meth:`get` refuses it."""
        if isinstance(rand_var, (BlockRV, LoopRV)):
            self._handles.pop(handle_key(rand_var), None)
            self._removed = self._removed | {rand_var}

    @primitive
    def enter_postproc(self) -> None:
        """Mark in the trace that what follows is postprocessing, which a replay can leave out."""

    def _note(self, inst: Instruction, decision: Any = None) -> None:
        """Add an instruction to the trace and remember which handles it returned."""
        if inst.kind.name == "GetSBlock":
            inst.arguments["func_name"] = self._name
        self.trace.append(inst, decision)
        for h in inst.outputs:
            if isinstance(h, (BlockRV, LoopRV)):
                self._handles[handle_key(h)] = h

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
        known = self._handles.get(handle_key(value))
        if known is not None:
            return known
        if isinstance(value, BlockRV):
            if value.name in self.state.block_names():
                self._note(Instruction.of_call(InstructionKind.get("GetSBlock"), (value.name,), {}, value))
            return value
        inside = child_realizes(self.state.loop(value.var).body)
        block = self._known(BlockRV(inside[0].block.name_hint))
        loops_ = [LoopRV(f.loop_var) for f in self.state.loops_of(block.name)]
        self._note(Instruction.of_call(InstructionKind.get("GetLoops"), (block,), {}, loops_))
        return self._handles[handle_key(value)]


_HANDLES: dict[Any, Any] = {
    "BlockRV": (BlockRV, "block", "the name of a block or what get_block returned"),
    "LoopRV": (LoopRV, "loop", "a loop that get_loops, split or fuse returned"),
    "LoopRV | Sequence[BlockRV]": (
        (LoopRV, list, tuple),
        "loop",
        "a loop that get_loops, split or fuse returned, or a list of blocks",
    ),
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


def _numbers(value: Any) -> Any:
    """Make ordinary numbers of those that were drawn, which only the trace tells apart."""
    if isinstance(value, (list, tuple)):
        return type(value)(_numbers(v) for v in value)
    return int(value) if isinstance(value, ExprRV) else value


def handle_key(handle: BlockRV | LoopRV) -> Any:
    """Return what two handles of one block or loop share."""
    return handle.name if isinstance(handle, BlockRV) else handle.var
