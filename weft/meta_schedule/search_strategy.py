"""Search strategies: which schedules of a design space are measured next."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from weft.error import InvalidArgument, WeftError
from weft.meta_schedule.arg_info import ArgInfo
from weft.meta_schedule.database import MeasureCandidate, workload_hash
from weft.meta_schedule.part import Named, made
from weft.tir.schedule import Schedule

__all__ = [
    "EvolutionarySearch",
    "MeasureCandidate",
    "PySearchStrategy",
    "ReplayFunc",
    "ReplayTrace",
    "SearchStrategy",
    "create",
]


class SearchStrategy(Named):
    """Proposes schedules, a batch after another, between :meth:`pre_tuning` and :meth:`post_tuning`."""

    def __init__(self) -> None:
        if type(self) is SearchStrategy:
            raise TypeError("SearchStrategy is abstract; use a strategy, or derive from PySearchStrategy")
        self.context: Any = None
        self._reset()

    def _reset(self) -> None:
        self.max_trials = self.per_iteration = self.done = 0
        self.spaces: list[Schedule] = []
        self.database: Any = None
        self.cost_model: Any = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""
        self.context = context

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Begin: take up the design space."""
        if self.spaces:
            raise InvalidArgument("the search has begun already", help="call post_tuning first")
        if not design_spaces:
            raise InvalidArgument("the design space is empty")
        self._reset()
        self.max_trials, self.per_iteration = max_trials, num_trials_per_iter
        self.spaces, self.database, self.cost_model = list(design_spaces), database, cost_model
        self.random = random.Random(getattr(self.context, "rand_state", None))

    def post_tuning(self) -> None:
        """End."""
        if not self.spaces:
            raise InvalidArgument("the search has not begun", help="call pre_tuning first")
        self._reset()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """Return the next batch; None where there are no more."""
        if not self.spaces:
            raise InvalidArgument("the search has not begun", help="call pre_tuning first")
        count = min(self.per_iteration, self.max_trials - self.done)
        if count <= 0:
            return None
        schedules = self.propose(count)
        if not schedules and self.has_ended():
            return None
        self.done += len(schedules)
        return [MeasureCandidate(s, ArgInfo.from_entry_func(s.mod)) for s in schedules]

    def has_ended(self) -> bool:
        """Whether a batch without schedules ends the search."""
        return True

    def propose(self, count: int) -> list[Schedule]:
        """Return up to `count` schedules."""
        raise NotImplementedError

    def notify_runner_results(self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[Any]) -> None:
        """Hear of the times of a batch."""
        if not self.spaces:
            raise InvalidArgument("the search has not begun", help="call pre_tuning first")

    def clone(self) -> Any:
        """Return a copy that has not begun."""
        new = copy.copy(self)
        new._reset()
        return new

    def redraw(self) -> Schedule | None:
        """Generate the design space anew, with other draws, and take a schedule of it; None where that is refused.

        Numbers that were drawn are constants in what follows them, so that a trace alone cannot be drawn anew.
        """
        drawn = self.random.choice(self.context.space_generator.generate_design_space(self.context.mod))
        return drawn if self._postprocessed(drawn) else None

    def replay(self, space: Schedule) -> Schedule | None:
        """Apply a schedule's trace to the module, and postprocess it; None where that is refused."""
        sch = Schedule(self.context.mod)
        try:
            space.trace.without_postproc().apply_to_schedule(sch)
        except WeftError:
            return None
        return sch if self._postprocessed(sch) else None

    def _postprocessed(self, sch: Schedule) -> bool:
        generator = getattr(self.context, "space_generator", None)
        posts = generator.postprocs if generator is not None else ()
        if not posts:
            return True
        sch.enter_postproc()
        return all(p.apply(sch) for p in posts)

    @staticmethod
    def create(kind: str = "evolutionary", *args: Any, **kwargs: Any) -> SearchStrategy:
        """Make a strategy: ``"evolutionary"``, ``"replay-trace"`` or ``"replay-func"``."""
        kinds = {"evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc}
        return made("search strategy", kinds, kind, *args, **kwargs)


class PySearchStrategy(SearchStrategy):
    """A strategy written in Python."""


class ReplayTrace(SearchStrategy):
    """Draws schedules of the design space again and again.

    Parameters
    ----------
    max_fail_count : int
        How often a batch may fail to be drawn.
    """

    def __init__(self, max_fail_count: int = 100) -> None:
        super().__init__()
        self.max_fail_count = max_fail_count

    def propose(self, count: int) -> list[Schedule]:
        """Draw schedules."""
        found: list[Schedule] = []
        for _ in range(count + self.max_fail_count):
            if len(found) == count:
                break
            sch = self.redraw()
            if sch is not None:
                found.append(sch)
        return found


class ReplayFunc(ReplayTrace):
    """Generates the design space again for each candidate."""


class EvolutionarySearch(SearchStrategy):
    """Draws many schedules, mutates them, and proposes those that a cost model likes best, none of them twice.

    Parameters
    ----------
    population_size : int
        Schedules that are bred at a time.
    init_measured_ratio : float
        The share of them that the best records make up.
    init_min_unmeasured : int
        How many new ones there are at least.
    max_fail_count : int
    genetic_num_iters : int
        Generations.
    genetic_mutate_prob : float
    genetic_max_fail_count : int
    eps_greedy : float
        The share of a batch that is drawn at random.
    num_empty_iters_before_early_stop : int
        After so many batches without a new schedule the search ends.
    """

    def __init__(
        self,
        *,
        population_size: int = 128,
        init_measured_ratio: float = 0.2,
        init_min_unmeasured: int = 50,
        max_fail_count: int = 5,
        genetic_num_iters: int = 2,
        genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10,
        eps_greedy: float = 0.05,
        num_empty_iters_before_early_stop: int = 5,
    ) -> None:
        super().__init__()
        self.population_size, self.init_measured_ratio = population_size, init_measured_ratio
        self.init_min_unmeasured, self.max_fail_count = init_min_unmeasured, max_fail_count
        self.genetic_num_iters, self.genetic_mutate_prob = genetic_num_iters, genetic_mutate_prob
        self.genetic_max_fail_count, self.eps_greedy = genetic_max_fail_count, eps_greedy
        self.num_empty_iters_before_early_stop = num_empty_iters_before_early_stop

    def _reset(self) -> None:
        super()._reset()
        self.seen: set[str] = set()
        self._given = self._empty = 0
        self._workload: Any = None

    def propose(self, count: int) -> list[Schedule]:
        """Return the design space first, as it is; then what is bred."""
        found: list[Schedule] = []
        while self._given < len(self.spaces) and len(found) < count:
            sch = self.replay(self.spaces[self._given])
            self._given += 1
            if sch is not None and self._is_new(sch):
                found.append(sch)
        if len(found) < count:
            found += self._bred(count - len(found))
        return found

    def has_ended(self) -> bool:
        """Whether there were so many batches without schedules that the search ends."""
        self._empty += 1
        return self._empty >= self.num_empty_iters_before_early_stop

    def _is_new(self, sch: Schedule) -> bool:
        key = workload_hash(sch.func)
        known = key in self.seen
        self.seen.add(key)
        return not known

    def _measured(self) -> list[Schedule]:
        """The best schedules that the database knows."""
        if self.database is None or self.context is None:
            return []
        if self._workload is None:
            self._workload = self.database.commit_workload(self.context.mod)
        count = int(self.population_size * self.init_measured_ratio)
        found = []
        for record in (r for r in self.database.get_top_k(self._workload, count) if r.is_valid()):
            try:
                found.append(record.as_measure_candidate().sch)
            except WeftError:  # of another form of the module
                continue
        return found

    def _bred(self, count: int) -> list[Schedule]:
        if not any(s.trace.decisions for s in self.spaces) and not self._mutators():
            return []
        population = self._measured()
        for _ in range(self.max_fail_count * self.population_size):
            if len(population) >= self.population_size:
                break
            sch = self.redraw()
            if sch is not None:
                population.append(sch)
        if not population:  # nothing is left to search in
            self._empty = self.num_empty_iters_before_early_stop
        for _ in range(self.genetic_num_iters):
            if population:
                children = [self._mutated(self.random.choice(population)) for _ in population]
                population = self._best(population + [c for c in children if c is not None], self.population_size)
        ranked = self._best(population, len(population))
        at_random = [s for s in ranked if self.random.random() < self.eps_greedy]
        self.random.shuffle(at_random)
        found: list[Schedule] = []
        for sch in [*at_random[: max(1, int(count * self.eps_greedy))], *ranked]:
            if len(found) < count and self._is_new(sch):
                found.append(sch)
        return found

    def _mutators(self) -> dict[Any, float]:
        generator = getattr(self.context, "space_generator", None)
        return dict(generator.mutator_probs) if generator is not None else {}

    def _mutated(self, sch: Schedule) -> Schedule | None:
        """Let a mutator of the user's change a schedule, or draw another."""
        if self.random.random() > self.genetic_mutate_prob:
            return None
        mutators = self._mutators()
        if not mutators:
            return self.redraw()
        chosen = self.random.choices(list(mutators), list(mutators.values()))[0]
        changed = chosen.apply(sch.trace.without_postproc(), self.random.randrange(1 << 30))
        if changed is None:
            return None
        new = Schedule(self.context.mod)
        try:
            changed.apply_to_schedule(new)
        except WeftError:
            return None
        return new if self._postprocessed(new) else None

    def _best(self, schedules: Sequence[Schedule], count: int) -> list[Schedule]:
        if self.cost_model is None or not schedules:
            return list(schedules)[:count]
        scores = self.cost_model.predict(self.context, [MeasureCandidate(s, []) for s in schedules])
        ranked = sorted(zip(scores, range(len(schedules)), strict=True), reverse=True)
        return [schedules[i] for _, i in ranked[:count]]


create = SearchStrategy.create
