"""Design spaces: which schedules of a module there are to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error, ir
from weft.meta_schedule.arg_info import entry_of
from weft.meta_schedule.part import Part, made
from weft.meta_schedule.schedule_rule import ApplyCustomRule, ScheduleRule
from weft.tir.analysis import child_realizes
from weft.tir.schedule import BlockRV, Schedule, schedule_choices


class SpaceGenerator(Part):
    """Makes design spaces.

    Parameters
    ----------
    sch_rules : "from-target" or sequence of ScheduleRule
        ``"from-target"``: the rules that schedule kernels of this target.
    postprocs : "from-target" or sequence of postprocessors
        Applied behind; each says whether the schedule is good.
    mutator_probs : "from-target" or mapping of mutators to numbers
    """

    def __init__(
        self, sch_rules: Any = "from-target", postprocs: Any = "from-target", mutator_probs: Any = "from-target"
    ) -> None:
        self.sch_rules = None if sch_rules == "from-target" else list(sch_rules or ())
        self.postprocs = [] if postprocs in ("from-target", None) else list(postprocs)
        self.mutator_probs: Mapping[Any, float] = {} if mutator_probs in ("from-target", None) else dict(mutator_probs)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""
        super()._initialize_with_tune_context(context)
        for part in (*(self.sch_rules or ()), *self.postprocs, *self.mutator_probs):
            part._initialize_with_tune_context(context)

    def generate_design_space(self, mod: ir.IRModule) -> list[Schedule]:
        """Return the schedules to begin with; what they draw is drawn anew for each candidate."""
        raise NotImplementedError

    @staticmethod
    def create(kind: Any = "post-order-apply", *args: Any, **kwargs: Any) -> SpaceGenerator:
        """Make a generator: ``"post-order-apply"``, ``"union"``, or of a function that schedules."""
        if callable(kind):
            return ScheduleFn(kind, *args, **kwargs)
        kinds = {"post-order-apply": PostOrderApply, "union": SpaceGeneratorUnion}
        return made("space generator", kinds, kind, *args, **kwargs)


class PySpaceGenerator(SpaceGenerator):
    """A generator written in Python, which defines how it hears of the task and what it generates."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        raise NotImplementedError


class ScheduleFn(SpaceGenerator):
    """The schedules of a function of the user's.

    Parameters
    ----------
    sch_fn : callable
        ``sch_fn(sch)`` schedules in place, or returns a schedule or several.
    """

    def __init__(self, sch_fn: Callable[[Schedule], Any], sch_rules: Any = (), *args: Any, **kwargs: Any) -> None:
        super().__init__(sch_rules, *args, **kwargs)
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: ir.IRModule) -> list[Schedule]:
        """Call the function."""
        sch = Schedule(mod)
        made = self.sch_fn(sch)
        if made is None:
            return [sch]
        found = [made] if isinstance(made, Schedule) else list(made)
        if not all(isinstance(s, Schedule) for s in found):
            raise error.InvalidArgument("a schedule function returns schedules, or nothing", found=repr(made))
        return found


class PostOrderApply(SpaceGenerator):
    """The schedules of rules, block after block; by default of the rules that compilation uses, with all their choices.

    Parameters
    ----------
    f_block_filter : callable, optional
        Says of a block whether rules of the user's are applied to it.
    """

    def __init__(self, f_block_filter: Callable[[Any], bool] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: ir.IRModule) -> list[Schedule]:
        """Apply the rules; the first schedule is the one that compilation would choose."""
        if self.sch_rules is None:
            target = self._context.target if self._context is not None else None
            return [_replayed(mod, s) for s in schedule_choices(entry_of(mod), target)]
        first = Schedule(mod)
        blocks = [first.get_block(n) for n in _inner_first(first.state.body) if self._wants(first, n)]
        spaces = [first]
        for rule in self.sch_rules:
            for block in reversed(blocks):
                spaces = [new for sch in spaces for new in self._applied(rule, sch, block)]
        return spaces

    def _wants(self, sch: Schedule, name: str) -> bool:
        return self.f_block_filter is None or self.f_block_filter(sch.state.realize(name).block)

    def _applied(self, rule: ScheduleRule, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if block.name not in sch.state.block_names():  # it was inlined
            return [sch]
        named = "schedule_rule" in sch.get(block).annotations
        return [sch] if named and not isinstance(rule, ApplyCustomRule) else list(rule.apply(sch, block))


def _inner_first(stmt: Any) -> list[str]:
    """List the names of blocks, those inside a block before it."""
    return [n for r in child_realizes(stmt) for n in (*_inner_first(r.block.body), r.block.name_hint)]


def _replayed(mod: ir.IRModule, sch: Schedule) -> Schedule:
    """Make a function's schedule one of its module."""
    new = Schedule(mod)
    sch.trace.apply_to_schedule(new)
    return new


class SpaceGeneratorUnion(SpaceGenerator):
    """The schedules of several generators together."""

    def __init__(self, space_generators: Sequence[SpaceGenerator], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.space_generators = list(space_generators)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""
        super()._initialize_with_tune_context(context)
        for g in self.space_generators:
            g._initialize_with_tune_context(context)

    def generate_design_space(self, mod: ir.IRModule) -> list[Schedule]:
        """Ask each."""
        return [s for g in self.space_generators for s in g.generate_design_space(mod)]


create = SpaceGenerator.create
