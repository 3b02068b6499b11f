"""What becomes of each batch of measurements."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.meta_schedule.database import TuningRecord
from weft.meta_schedule.part import Named, made

_All = Sequence[Any]


class MeasureCallback(Named):
    """Hears of every batch."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: _All, builder_results: _All, runner_results: _All
    ) -> None:
        """Take a batch."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "default") -> Any:
        """Make the usual callbacks, or one of them, such as ``"add-to-database"``."""
        return create(kind)


class PyMeasureCallback(MeasureCallback):
    """A callback written in Python."""


class AddToDatabase(MeasureCallback):
    """Enters records; those that failed have a very long time."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: _All, builder_results: _All, runner_results: _All
    ) -> None:
        """Enter a batch."""
        database = task_scheduler.database_
        context = task_scheduler.tasks_[task_id].ctx
        workload = database.commit_workload(context.mod)
        for candidate, result in zip(measure_candidates, runner_results, strict=True):
            seconds = result.run_secs if result.error_msg is None and result.run_secs else [1e10]
            database.commit_tuning_record(
                TuningRecord(candidate.sch.trace, workload, seconds, context.target, candidate.args_info)
            )


class RemoveBuildArtifact(MeasureCallback):
    """Deletes the files that builders made."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: _All, builder_results: _All, runner_results: _All
    ) -> None:
        """Delete those of a batch."""
        for result in builder_results:
            if result.artifact_path:
                path = Path(result.artifact_path)
                with suppress(OSError):
                    path.unlink()
                    path.parent.rmdir()


class UpdateCostModel(MeasureCallback):
    """Teaches the cost model."""

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: _All, builder_results: _All, runner_results: _All
    ) -> None:
        """Teach a batch."""
        if task_scheduler.cost_model_ is not None:
            context = task_scheduler.tasks_[task_id].ctx
            task_scheduler.cost_model_.update(context, measure_candidates, runner_results)


def create(kind: str = "default") -> Any:
    """Make the usual callbacks, or one of them by name."""
    kinds = {
        "add-to-database": AddToDatabase,
        "update-cost-model": UpdateCostModel,
        "remove-build-artifact": RemoveBuildArtifact,
    }
    if kind == "default":
        return [made() for made in kinds.values()]
    return made("callback", kinds, kind)
