"""Search: sketches of a computation's loops, filled with numbers at random, the best of which are measured and bred."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.auto_scheduler.cost_model import CostModel, RandomModel, XGBModel
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.measure import LocalBuilder, LocalRunner, MeasureInput, ProgramMeasurer
from weft.auto_scheduler.measure_record import RecordReader
from weft.auto_scheduler.sketch import fill, sketches_of
from weft.error import InvalidArgument, WeftError

__all__ = [
    "EmptyPolicy",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "SearchCallback",
    "SearchPolicy",
    "SketchPolicy",
    "auto_search",
    "policy_named",
]


class SearchCallback:
    """Something to do before a search."""

    def __call__(self, policy: Any) -> None:
        """Do it."""


class PreloadMeasuredStates(SearchCallback):
    """Takes up what a log has measured, so that it is not measured again.

    Parameters
    ----------
    filename : str
        It need not be there.
    """

    def __init__(self, filename: str) -> None:
        self.filename = filename

    def __call__(self, policy: Any) -> None:
        """Read the log."""
        try:
            records = list(RecordReader(self.filename))
        except InvalidArgument:
            return
        for inp, res in records:
            if inp.task.workload_key == policy.search_task.workload_key:
                policy.take(MeasureInput(policy.search_task, inp.state), res)


class PreloadCustomSketchRule(SearchCallback):
    """Adds a rule of the user's for sketches.

    Parameters
    ----------
    meet_condition_func : callable
        ``(policy, state, stage)`` returns one of the numbers below.
    apply_func : callable
        ``(policy, state, stage)`` returns pairs of a state and the number of the next stage, -1 where it is complete.
    rule_name : str
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self,
        meet_condition_func: Callable[..., int],
        apply_func: Callable[..., Any],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func, self.rule_name = meet_condition_func, apply_func, rule_name

    def __call__(self, policy: Any) -> None:
        """Enter the rule."""
        policy.custom_rules.append(self)


class SearchPolicy:
    """Searches states of a task.

    Parameters
    ----------
    task : SearchTask
    init_search_callbacks : sequence of SearchCallback, optional
    """

    def __init__(self, task: Any, init_search_callbacks: Sequence[SearchCallback] | None = None) -> None:
        self.search_task, self.verbose = task, 1
        self.custom_rules: list[PreloadCustomSketchRule] = []
        self.measured: dict[State, float] = {}
        for callback in init_search_callbacks or ():
            callback(self)

    def set_verbose(self, verbose: int) -> None:
        """Set how much is told; 0 is nothing."""
        self.verbose = verbose

    def take(self, inp: MeasureInput, res: Any) -> None:
        """Take up a measurement."""
        self.measured[State(self.search_task.compute_dag, inp.state.transform_steps)] = res.mean

    def propose(self, count: int) -> list[State]:
        """Return up to `count` states that were not measured."""
        raise NotImplementedError

    def continue_search_one_round(self, num_measure: int, measurer: ProgramMeasurer) -> tuple[list[Any], list[Any]]:
        """Measure up to `num_measure` states, and return the inputs and results."""
        inputs = [MeasureInput(self.search_task, s) for s in self.propose(num_measure)]
        if not inputs:
            return [], []
        results = measurer.measure(self.search_task, self, inputs)
        for inp, res in zip(inputs, results, strict=True):
            self.take(inp, res)
        self.learn(inputs, results)
        return inputs, results

    def learn(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements."""

    def search(
        self, num_measure_trials: int, early_stopping: int, num_measures_per_round: int, measurer: ProgramMeasurer
    ) -> State:
        """Measure up to `num_measure_trials` states; returns the best."""
        done = since = 0
        best = min(self.measured.values(), default=float("inf"))
        while done < num_measure_trials:
            inputs, results = self.continue_search_one_round(
                min(num_measures_per_round, num_measure_trials - done), measurer
            )
            if not inputs:
                break
            done += len(inputs)
            now = min(r.mean for r in results)
            since = 0 if now < best else since + len(inputs)
            best = min(best, now)
            if 0 < early_stopping <= since:
                break
        if self.measured:
            return min(self.measured, key=lambda s: self.measured[s])
        return (self.propose(1) or [self.search_task.compute_dag.init_state])[0]


class EmptyPolicy(SearchPolicy):
    """Measures the loops as they are, without any step."""

    def propose(self, count: int) -> list[State]:
        """Return the one state there is."""
        return [self.search_task.compute_dag.init_state] * count


class SketchPolicy(SearchPolicy):
    """Sketches, random numbers, and an evolutionary search that a cost model guides.

    Parameters
    ----------
    task : SearchTask
    program_cost_model : CostModel, optional
        By default scores are random.
    params : dict, optional
        Such as ``eps_greedy``, ``evolutionary_search_population``, ``evolutionary_search_num_iters``,
        ``sample_init_min_population``.
    seed : int, optional
    verbose : int
    init_search_callbacks : sequence of SearchCallback, optional
    """

    DEFAULT_PARAMS: ClassVar[dict[str, Any]] = {
        "eps_greedy": 0.05,
        "retry_search_one_round_on_empty": 1,
        "sample_init_min_population": 50,
        "sample_init_use_measured_ratio": 0.2,
        "evolutionary_search_population": 64,
        "evolutionary_search_num_iters": 2,
        "evolutionary_search_mutation_prob": 0.85,
        "cpu_multi_level_tiling_structure": "SSRSRS",
        "max_innermost_split_factor": 64,
        "max_vectorize_size": 16,
    }

    def __init__(
        self,
        task: Any,
        program_cost_model: CostModel | None = None,
        params: dict[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[SearchCallback] | None = None,
    ) -> None:
        super().__init__(task, init_search_callbacks)
        self.program_cost_model = program_cost_model if program_cost_model is not None else RandomModel()
        self.params, self.verbose = {**self.DEFAULT_PARAMS, **(params or {})}, verbose
        self.random = random.Random(seed)
        self._sketches: list[State] | None = None

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """Return the loops' structures, in which lengths of tiles are 1."""
        if self._sketches is None:
            self._sketches = sketches_of(self)
        if print_for_debug:
            for s in self._sketches:
                print(s)
        return self._sketches

    def sample_initial_population(self) -> list[State]:
        """Return states, sketches that are filled at random."""
        found: dict[State, None] = {}
        wanted = self.params["sample_init_min_population"]
        sketches = self.generate_sketches()
        for _ in range(4 * wanted):
            if len(found) >= wanted:
                break
            state = self._filled(self.random.choice(sketches))
            if state is not None:
                found[state] = None
        return list(found)

    def _filled(self, sketch: State) -> State | None:
        try:
            return fill(sketch, self.search_task, self.params, self.random)
        except WeftError:  # numbers that do not fit together
            return None

    def evolutionary_search(self, init_populations: Sequence[State], out_size: int) -> list[State]:
        """Breed states: the best of each generation are filled anew in part; returns the best that were met."""
        population, met = list(init_populations), {}
        for _ in range(self.params["evolutionary_search_num_iters"]):
            met.update(zip(population, self._scores(population), strict=True))
            parents = sorted(met, key=lambda s: -met[s])[: max(2, len(population) // 4)]
            children = [self._mutated(self.random.choice(parents)) for _ in population]
            population = [c for c in children if c is not None and c not in met]
        met.update(zip(population, self._scores(population), strict=True))
        return sorted(met, key=lambda s: -met[s])[:out_size]

    def _scores(self, states: Sequence[State]) -> np.ndarray:
        return self.program_cost_model.predict(self.search_task, states)

    def _mutated(self, state: State) -> State | None:
        """Move a factor of a loop from one part of a split to another."""
        steps = [list(s) for s in state.transform_steps]
        splits = [s for s in steps if s[0] == "SP" and len(s[4]) > 1]
        if not splits:
            return None
        step = self.random.choice(splits)
        lengths = list(step[4])
        a, b = self.random.sample(range(len(lengths)), 2)
        factors = [f for f in range(2, lengths[a] + 1) if lengths[a] % f == 0]
        if not factors:
            return None
        factor = self.random.choice(factors)
        lengths[a], lengths[b] = lengths[a] // factor, lengths[b] * factor
        step[4] = lengths
        try:
            return State(self.search_task.compute_dag, steps)
        except WeftError:
            return None

    def propose(self, count: int) -> list[State]:
        """Return the loops as they are, if nobody measured them, what the model likes best, and some at random."""
        population = self.sample_initial_population()
        measured = sorted(self.measured, key=lambda s: self.measured[s])[:8]
        ranked = self.evolutionary_search([*measured, *population], 4 * count + len(self.measured))
        chosen = [s for s in ranked if s not in self.measured][:count]
        for i in range(len(chosen)):
            if self.random.random() < self.params["eps_greedy"]:
                drawn = self.random.choice(population)
                if drawn not in chosen and drawn not in self.measured:
                    chosen[i] = drawn
        default = self.search_task.compute_dag.init_state  # so that a search never ends with less
        if default not in self.measured:
            chosen = [default, *(s for s in chosen if s != default)][:count]
        return chosen

    def learn(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Teach the model."""
        self.program_cost_model.update(inputs, results)


def policy_named(
    search_policy: SearchPolicy | str | None, task: Any, verbose: int, adaptive_training: bool = False
) -> SearchPolicy:
    """Return a policy for what users give: one, ``"sketch.xgb"``, ``"sketch.random"``, ``"empty"`` or None."""
    if isinstance(search_policy, SearchPolicy):
        return search_policy
    name = search_policy or ("sketch.random" if task is None else "default")
    if name in ("default", "sketch.xgb"):
        return SketchPolicy(task, XGBModel(num_warmup_sample=16, adaptive_training=adaptive_training), verbose=verbose)
    if name == "sketch.random":
        return SketchPolicy(task, RandomModel(), verbose=verbose)
    if name == "empty":
        return EmptyPolicy(task)
    raise InvalidArgument(
        f"unknown search policy '{name}'", expected="'default', 'sketch.xgb', 'sketch.random', 'empty'"
    )


def measurer_of(options: Any) -> ProgramMeasurer:
    """Make what measures, as options say."""
    builder = LocalBuilder() if options.builder == "local" else options.builder
    runner = LocalRunner() if options.runner == "local" else options.runner
    return ProgramMeasurer(builder, runner, options.measure_callbacks, options.verbose)


def auto_search(
    task: Any, options: Any, search_policy: SearchPolicy | str | None = None, adaptive_training: bool = False
) -> State:
    """Search a task as options say; returns the best state."""
    policy = policy_named(search_policy, task, options.verbose, adaptive_training)
    policy.set_verbose(options.verbose)
    per_round = options.num_measures_per_round
    return policy.search(options.num_measure_trials, options.early_stopping, per_round, measurer_of(options))
