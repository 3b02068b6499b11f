"""The loops of a computation after some steps of scheduling; every step is kept, and is what log files have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from weft import error, ir, te
from weft.auto_scheduler.transform_step import ANNOTATIONS, apply_step, followed_lengths, fused_length, python_lines
from weft.te.schedule import InferBound

__all__ = ["Iterator", "Stage", "State"]

ROOT, INLINED, ITER = 0, 1, 2


@dataclass(frozen=True)
class Iterator:
    """A loop: its range, None where bounds have to be inferred, and its annotation, a number of ``ANNOTATIONS``."""

    name: str
    range: ir.Range | None
    is_reduce: bool
    annotation: int = 0

    @property
    def extent(self) -> int | None:
        """The number of iterations, where it is a constant that is known."""
        return self.range.extent.value if self.range is not None and isinstance(self.range.extent, ir.IntImm) else None


LoopKey = Iterator | int
"""A loop of a stage, or its place."""

StageKey = te.Tensor | te.Operation | int
"""A stage: what it computes, or its number."""


class Stage:
    """An operation with its loops, and where it is computed: 0 by itself, 1 inlined, 2 at a loop of another."""

    def __init__(self, te_stage: te.Stage) -> None:
        self.te_stage = te_stage
        self.compute_at = ROOT
        self.attached: tuple[te.Stage, str] | None = None
        self.iters: list[Iterator] = []
        self.vars: list[Any] = []
        self.pragmas: dict[str, str] = {}
        self.reset()

    def reset(self) -> None:
        """Take up the loops as the operation has them."""
        stage, reduce = self.te_stage, set(self.te_stage.reduce_axis)
        self.vars = [] if isinstance(stage.origin_op, te.PlaceholderOp) else [*stage.axis, *stage.reduce_axis]
        self.iters = [Iterator(v.var.name, v.dom, v in reduce) for v in self.vars]

    @property
    def op(self) -> te.Operation:
        """The operation."""
        return self.te_stage.origin_op

    @property
    def op_type(self) -> str:
        """``"placeholder"`` or ``"compute"``."""
        return "placeholder" if isinstance(self.op, te.PlaceholderOp) else "compute"

    def position(self, it: LoopKey) -> int:
        """Return the place of a loop, given by itself or its place."""
        if isinstance(it, int):
            return range(len(self.iters))[it]
        found = [i for i, known in enumerate(self.iters) if known.name == it.name]
        if not found:
            raise error.InvalidArgument(
                f"'{it.name}' is no loop of '{self.op.name}'", expected=", ".join(map(str, self.iters))
            )
        return found[0]


class State:
    """A computation's loops, scheduled so far.

    Every primitive is a step; steps alone say what a state is. Loops are given as :class:`Iterator`, stages as tensors,
    operations or numbers.

    Parameters
    ----------
    dag : ComputeDAG
    steps : sequence of step, optional
        To begin with.
    """

    ANNOTATION_TRANS_TABLE: ClassVar[dict[str, int]] = {name: number for number, name in enumerate(ANNOTATIONS)}

    def __init__(self, dag: Any, steps: Any = ()) -> None:
        steps = steps.transform_steps if isinstance(steps, State) else steps
        if isinstance(dag, State):  # State(state, dag): a view of the same steps
            dag, steps = steps_dag(steps, dag), dag.transform_steps
        self.compute_dag = dag
        self.transform_steps: list[list[Any]] = []
        self.schedule = dag.fresh_schedule()
        self.stages = [Stage(s) for s in self.schedule.stages]
        self._here: dict[Any, Any] = {}  # operations of states that this one is a copy of, and what they are here
        for step in steps:
            self.do(list(step))

    @property
    def state_object(self) -> State:
        """The state itself."""
        return self

    @property
    def concrete(self) -> bool:
        """Whether no step waits for a number."""
        return all(s[0] != "SP" or all(n is not None for n in s[4]) for s in self.transform_steps)

    @property
    def stage_ops(self) -> list[te.Operation]:
        """The operations of the stages, producers first."""
        return [s.op for s in self.stages]

    def copy(self) -> State:
        """Return an independent state."""
        new = State(self.compute_dag, self.transform_steps)
        pairs = {old.op: stage.op for old, stage in zip(self.stages, new.stages, strict=True)}
        new._here = {**{op: pairs[here] for op, here in self._here.items()}, **pairs}
        return new

    def __getitem__(self, key: StageKey) -> Stage:
        return self.stages[self.stage_id(key)]

    def stage_id(self, key: StageKey) -> int:
        """Return the number of a stage."""
        if isinstance(key, int):
            return range(len(self.stages))[key]
        op = key.op if isinstance(key, te.Tensor) else key
        op = self._here.get(op, op)
        found = [i for i, s in enumerate(self.stages) if s.op is op]
        if not found:
            raise error.InvalidArgument(f"there is no stage of '{getattr(op, 'name', op)}'")
        return found[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.transform_steps == other.transform_steps

    def __hash__(self) -> int:
        return hash(str(self.transform_steps))

    # --- primitives ---

    def do(self, step: list[Any]) -> Any:
        """Apply a step and keep it; returns the loops, loop or stage that it made."""
        made = apply_step(self, step)
        self.transform_steps.append(step)
        return made

    def _at(self, stage: StageKey, it: LoopKey) -> tuple[int, int]:
        number = self.stage_id(stage)
        return number, self.stages[number].position(it)

    def _annotate(self, stage: StageKey, it: LoopKey, annotation: str) -> Iterator:
        return self.do(["AN", *self._at(stage, it), ANNOTATIONS.index(annotation)])

    def bind(self, stage: StageKey, iterator: LoopKey, thread_name: str) -> Iterator:
        """Bind a loop to a thread: ``blockIdx.x``, ``threadIdx.y``, ``vthread`` ..."""
        if thread_name not in ANNOTATIONS[4:11]:
            raise error.InvalidArgument(f"'{thread_name}' is no thread", expected=", ".join(ANNOTATIONS[4:11]))
        return self._annotate(stage, iterator, thread_name)

    def parallel(self, stage: StageKey, iterator: LoopKey) -> Iterator:
        """Share a loop among threads."""
        return self._annotate(stage, iterator, "parallel")

    def unroll(self, stage: StageKey, iterator: LoopKey, max_unroll: int | None = None) -> Iterator:
        """Unroll a loop, unless it is longer than `max_unroll`."""
        loop = self[stage].iters[self[stage].position(iterator)]
        if max_unroll is not None and loop.extent is not None and loop.extent > max_unroll:
            return loop
        return self._annotate(stage, iterator, "unroll")

    def vectorize(self, stage: StageKey, iterator: LoopKey) -> Iterator:
        """Make a loop one vector operation."""
        return self._annotate(stage, iterator, "vectorize")

    def tensorize(self, stage: StageKey, iterator: LoopKey, ti_func: Any) -> Iterator:
        """Put an intrinsic in the place of a loop."""
        return self.do(["TS", *self._at(stage, iterator), ti_func])

    def fuse(self, stage: StageKey, iters: Sequence[LoopKey]) -> Iterator:
        """Make loops one inside another one loop."""
        number = self.stage_id(stage)
        return self.do(["FU", number, [self.stages[number].position(i) for i in iters]])

    def pragma(self, stage: StageKey, iterator: LoopKey, pragma: str) -> None:
        """Add a pragma, such as ``"auto_unroll_max_step$64"``."""
        self.do(["PR", *self._at(stage, iterator), pragma])

    def reorder(self, stage: StageKey, order: Sequence[LoopKey]) -> None:
        """Put all loops of a stage in another order."""
        number = self.stage_id(stage)
        self.do(["RE", number, [self.stages[number].position(i) for i in order]])

    def split(
        self, stage: StageKey, iterator: LoopKey, lengths: Sequence[int | None], inner_to_outer: bool = True
    ) -> list[Iterator]:
        """Split a loop: `lengths` are those of the inner parts, or, not `inner_to_outer`, of the outer ones."""
        number, at = self._at(stage, iterator)
        extent = self.stages[number].iters[at].extent
        return self.do(["SP", number, at, extent, list(lengths), int(inner_to_outer)])

    def follow_split(self, stage: StageKey, iterator: LoopKey, src_step_id: int, n_split: int) -> list[Iterator]:
        """Split a loop as an earlier step split another, into ``n_split + 1`` parts."""
        return self.do(["FSP", *self._at(stage, iterator), src_step_id, n_split])

    def follow_fused_split(
        self, stage: StageKey, iterator: LoopKey, src_step_ids: Sequence[int], level: int, factor_or_nparts: bool
    ) -> list[Iterator]:
        """Split a loop by the length that earlier splits have together at a level."""
        return self.do(["FFSP", *self._at(stage, iterator), list(src_step_ids), level, int(factor_or_nparts)])

    def storage_align(self, stage: StageKey, iterator: LoopKey, factor: int, offset: int) -> None:
        """Align the rows of what a stage stores."""
        self.do(["SA", *self._at(stage, iterator), factor, offset])

    def compute_at(self, stage: StageKey, target_stage: StageKey, target_iter: LoopKey) -> None:
        """Compute a stage at a loop of another."""
        self.do(["CA", self.stage_id(stage), *self._at(target_stage, target_iter)])

    def compute_inline(self, stage: StageKey) -> None:
        """Compute a stage where it is read."""
        self.do(["CI", self.stage_id(stage)])

    def compute_root(self, stage: StageKey) -> None:
        """Compute a stage by itself."""
        self.do(["CR", self.stage_id(stage)])

    def cache_read(self, stage: StageKey, scope_name: str, reader_stages: Sequence[StageKey]) -> te.Operation:
        """Copy what a stage computes to `scope_name` for its readers; returns the operation of the copy."""
        readers = [self.stage_id(r) for r in reader_stages]
        return self.do(["CHR", self.stage_id(stage), scope_name, readers])

    def cache_write(self, stage: StageKey, scope_name: str) -> te.Operation:
        """Compute a stage in `scope_name` first; returns the operation that does."""
        return self.do(["CHW", self.stage_id(stage), scope_name])

    def rfactor(self, stage: StageKey, iterator: LoopKey, factor_iter_id: int) -> te.Operation:
        """Reduce in parts, one a value of a loop; returns the operation of the parts."""
        return self.do(["RF", *self._at(stage, iterator), factor_iter_id])

    # --- what follows from the steps ---

    def with_bounds(self) -> State:
        """Return the state with the ranges of all loops."""
        new = self.copy()
        ranges = InferBound(new.schedule.normalize())
        for stage in new.stages:
            found = [ranges.get(v, i.range) for v, i in zip(stage.vars, stage.iters, strict=True)]
            stage.iters = [replace(i, range=r) for i, r in zip(stage.iters, found, strict=True)]
        return new

    def lengths_of(self, step: list[Any]) -> list[Any]:
        """Return the lengths of the parts of a split or a following split."""
        if step[0] == "FSP":
            return followed_lengths(self.transform_steps, step)
        return [fused_length(self.transform_steps, step)] if step[0] == "FFSP" else step[4]

    def as_python(self) -> str:
        """Return the steps as statements on a ``te.Schedule`` named ``s``."""
        fresh, lines = State(self.compute_dag), []
        for step in self.transform_steps:
            before = fresh.copy()
            fresh.do(list(step))
            lines += python_lines(before, fresh, step)
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        names = [s.op.name for s in self.stages if s.op_type == "placeholder"]
        lines = [f"Placeholder: {', '.join(names)}"]
        for stage in self.stages:
            if stage.op_type != "placeholder" and stage.compute_at == ROOT:
                lines += self._loops(stage, 0)
        return "\n".join(lines) + "\n"

    def _loops(self, stage: Stage, depth: int) -> list[str]:
        lines = [" " * depth + f"{k}: {v}" for k, v in stage.pragmas.items()]
        for it in stage.iters:
            word = ANNOTATIONS[it.annotation] if it.annotation else "for"
            extent = "None" if it.range is None else f"{it.range.min},{it.range.extent}"
            lines.append(" " * depth + f"{word} {it.name} ({extent})")
            depth += 2
            for other in self.stages:
                if other.attached == (stage.te_stage, it.name):
                    lines += self._loops(other, depth)
        return [*lines, " " * depth + f"{stage.op.name} = ..."]


def steps_dag(given: Any, state: State) -> Any:
    """Return the computation of ``State(state, dag)``."""
    return given if hasattr(given, "outputs") else state.compute_dag
