"""A builder that builds nothing, a runner with random times, a mutator that draws all anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from weft.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from weft.meta_schedule.mutator import PyMutator
from weft.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerFuture, RunnerInput, RunnerResult
from weft.tir.schedule import Trace


class DummyRunnerFuture(PyRunnerFuture):
    """A result of random times."""

    def done(self) -> bool:
        """It is there."""
        return True

    def result(self) -> RunnerResult:
        """Make up some times."""
        return RunnerResult([random.uniform(5, 30) for _ in range(random.randint(1, 10))], None)


class DummyBuilder(PyBuilder):
    """Names a file that is not there."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build nothing."""
        return [BuilderResult("test_path", None) for _ in build_inputs]


class DummyRunner(PyRunner):
    """Runs nothing."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Make up times."""
        return [DummyRunnerFuture() for _ in runner_inputs]


class DummyMutator(PyMutator):
    """Leaves all decisions open."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Hear of the task."""

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Return the trace without decisions."""
        return Trace(trace.insts)

    def clone(self) -> DummyMutator:
        """Return another."""
        return DummyMutator()
