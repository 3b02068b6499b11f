"""What every rule works with: the schedule, the machine, and small recipes of primitives that rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.arith import Analyzer
from weft.ir import DataType, IntImm, IterVar, PrimExpr, Var, as_int, is_const_int, structural_equal
from weft.machine import TargetLike, machine_of
from weft.tir.analysis.dependence import is_data_parallel, reduce_vars
from weft.tir.analysis.pattern import element_cost
from weft.tir.analysis.structure import child_realizes, used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.knobs import Knobs
from weft.tir.schedule.rules.record import ScheduleRecord
from weft.tir.schedule.schedule import Schedule
from weft.tir.stmt import Block, For

_TASK_SCALES = (0.25, 1, 4, 0)
"""Sizes of tasks to try, in multiples of the machine's ``task_work``; 0 keeps everything on one thread."""

_LIGHT_PIECES = 4
"""Pieces that a light task is cut into, so that who begins earlier ends no earlier."""

_LARGE = 32
"""Tasks whose work is always worth more than one thread."""


_FEWEST = 4
"""Elements of a row of unknown length that are a vector still where vectors have no masks."""


class RuleContext:
    """A schedule on its way, and the machine it is for."""

    def __init__(
        self, sch: Schedule, target: TargetLike | None, knobs: Knobs | None = None, record: ScheduleRecord | None = None
    ) -> None:
        self.sch = sch
        self.knobs = knobs if knobs is not None else Knobs()
        self.record = record if record is not None else ScheduleRecord("main")
        self.scope = ""
        self.machine = machine_of(target)
        self.whole_steps: dict[str, PrimExpr] = {}

    # --- the machine ---

    def lanes(self, dtype: str) -> int:
        """How many elements of a type one vector register holds."""
        return self.machine.lanes(DataType(dtype).element.bits)

    # --- what is left open ---

    def choose(self, name: str, candidates: Sequence[Any], default: Any) -> Any:
        """Return what is decided for a choice of the rule that is being applied, which is `default` untuned.

        Candidates, among them the default, are numbers, strings, or tuples of them; any of them is correct.
        """
        return self.knobs.choose(f"{self.scope}.{name}" if self.scope else name, candidates, default)

    def prefetch_distance(self) -> int:
        """Choose how many bytes ahead a stream of weights is asked for."""
        n = self.machine.prefetch_distance_bytes
        return self.choose("prefetch_bytes", (n // 4, n // 2, 2 * n), n)

    # --- the function ---

    def blocks(self) -> list[Block]:
        """List the blocks of the root, in order."""
        return [r.block for r in child_realizes(self.sch.state.root)]

    def block(self, rv: BlockRV) -> Block:
        """Return the block behind a handle."""
        return self.sch.state.realize(rv.name).block

    def loops(self, rv: BlockRV) -> list[For]:
        """Return the loops around a block."""
        return self.sch.state.loops_of(rv.name)

    def extent(self, loop: LoopRV) -> PrimExpr:
        """Return the extent of a loop."""
        return self.sch.state.loop(loop.var).extent

    def constant(self, loop: LoopRV) -> int | None:
        """Return the extent of a loop where it is constant."""
        return as_int(self.extent(loop))

    def most(self, extent: PrimExpr) -> int | None:
        """Return what an extent is at most, as the schedule expects it; None where it does not say."""
        expected = self.record.few_elements if self.record.expects_few else []
        return as_int(extent) or next((n for e, n in expected if structural_equal(e, extent)), None)

    def is_output(self, block: Block) -> bool:
        """Whether a block writes a parameter of the function."""
        return any(self.sch.state.is_argument(w.buffer) for w in block.writes)

    def analyzer(self, rv: BlockRV) -> Analyzer:
        """Return what is known at a block."""
        return self.sch.state.analyzer_at(self.sch.state.path_to_block(rv.name))

    # --- recipes ---

    def below(self, rv: BlockRV, place: LoopRV) -> list[LoopRV]:
        """List the loops around a block that are inside of another one."""
        loops = self.sch.get_loops(rv)
        return loops[next(i for i, x in enumerate(loops) if x.var is place.var) + 1 :]

    def owners(self, rv: BlockRV, loops: list[LoopRV]) -> dict[Var, IterVar]:
        """Return for the variable of each loop that of the block to which it gives values."""
        realize = self.sch.state.realize(rv.name)
        pairs = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
        return {x.var: iv for x in loops for iv, v in pairs if x.var in used_vars(v)}

    def drop_unit_loops(self, loops: list[LoopRV]) -> list[LoopRV]:
        """Leave out loops of one iteration."""
        return [x for x in loops if not is_const_int(self.extent(x), 1)]

    def fuse(self, loops: list[LoopRV]) -> LoopRV | None:
        """Fuse adjacent loops; None for an empty list."""
        if not loops:
            return None
        return self.sch.fuse(*loops) if len(loops) > 1 else loops[0]

    def parallel(self, loop: LoopRV, work: int | None, light: int | None = None) -> None:
        """Run a loop on the pool in tasks of at least ``task_work``; not at all where everything is one task.

        Parameters
        ----------
        work : int or None
            The cost of one iteration; None where it is symbolic (taken as large).
        light : int, optional
            The least task of a loop that is too little for that, to be shared with threads that are awake.
        """
        n, least = self.constant(loop), self.machine.task_work
        if self.machine.cores < 2 or (n is not None and n < 2):
            return
        scale = self.choose(
            "tasks", _TASK_SCALES if n is None or work is None or n * work < _LARGE * least else _TASK_SCALES[:3], 1
        )
        if scale == 0:
            return
        if n is not None and work is not None and n * work < 2 * least * scale:
            if light is not None and n * work >= 2 * light:
                self.sch.parallel(loop)
                self.sch.annotate(loop, "pragma_grain", -max(1, light // (_LIGHT_PIECES * work)))
            return
        self.sch.parallel(loop)
        grain = 1 if work is None else max(1, int(least * scale) // max(work, 1))
        if grain > 1:
            self.sch.annotate(loop, "pragma_grain", grain)

    def stream(self, loop: LoopRV, rv: BlockRV) -> None:
        """Let the stores of a block in a loop bypass the caches, where its output is too large to stay there.

        Or where it leaves them in any case, as the function's attribute says.
        """
        if self.sch.func.attrs.get("tir.stream_outputs") and self.is_output(self.block(rv)):
            self.sch.annotate(loop, "pragma_stream", 0)
            return
        for w in self.block(rv).writes:
            size, least = DataType(w.buffer.dtype).itemsize, self.machine.streamed_output_bytes
            for d in w.buffer.shape:
                size *= as_int(d) or 0
            if size >= least and self.is_output(self.block(rv)):
                self.sch.annotate(loop, "pragma_stream", least)

    def vectorize_loop(self, loop: LoopRV, lanes: int, unroll: int = 1, masks: bool = True) -> LoopRV:
        """Vectorize a whole loop: full vectors first, what is left in one masked or in narrower vectors.

        Returns the loop over full vectors, or the vector itself.

        Parameters
        ----------
        unroll : int
            Vectors of one iteration, at most, where their number is constant.
        masks : bool
            Whether a vector may be masked.
        """
        sch = self.sch
        n = self.constant(loop)
        if n is not None and n <= lanes:
            if n > 1:
                sch.vectorize(loop)
            return loop
        free = masks and self.machine.masks_freely
        if n is None and not (masks and (free or lanes <= self.lanes("float32"))):  # other masks are branches
            return self._halves(loop, lanes)
        count = 1 if n is None else n // lanes
        if count > 2 * unroll and count % unroll:  # an iteration of fewer vectors has less to do at once
            cut = count - count % unroll
            main, loop = sch.loop_partition(loop, [cut * lanes, None])
            self.vectorize_loop(loop, lanes)
            return self._vectors(main, cut, lanes, unroll)
        whole = n is not None and n % lanes == 0
        main, *rests = [loop] if whole else sch.loop_partition(loop, [self.extent(loop) // lanes * lanes, None])
        for rest in rests:  # none behind a symbolic extent that is provably a multiple
            if n is None or (free and n % lanes > 1):
                rest = sch.split(rest, [None, lanes])[1]
            if n is None or n % lanes > 1:
                sch.vectorize(rest)
        return self._vectors(main, count, lanes, unroll)

    def _halves(self, loop: LoopRV, lanes: int) -> LoopRV:
        """Make vectors half as long of what is left behind whole ones, and so on; the last elements are single."""
        whole, *rests = self.sch.loop_partition(loop, [self.extent(loop) // lanes * lanes, None])
        for rest in rests:
            if lanes // 2 >= _FEWEST:
                self._halves(rest, lanes // 2)
        return self._vectors(whole, 1, lanes, 1)

    def _vectors(self, loop: LoopRV, count: int, lanes: int, unroll: int) -> LoopRV:
        """Split a loop into whole vectors, some of which make an iteration; return the loop over iterations."""
        together = next(u for u in (unroll, 4, 2, 1) if u <= unroll and count % u == 0)
        outer, *middle, inner = self.sch.split(loop, [None, together, lanes] if together > 1 else [None, lanes])
        self.sch.vectorize(inner)
        for x in middle:
            self.sch.unroll(x)
        return outer

    def static_work(self, rv: BlockRV, from_loop: int = 0) -> int | None:
        """Estimate the work of one iteration of the loop before position `from_loop` of a block.

        None where symbolic.
        """
        work = element_cost(self.block(rv).body)
        for f in self.loops(rv)[from_loop:]:
            if not isinstance(f.extent, IntImm):
                return None
            work *= f.extent.value
        return work


def is_reduction_block(block: Block) -> bool:
    """Whether a block has an init or reduction variables."""
    return block.init is not None or bool(reduce_vars(block)) or not is_data_parallel(block)
