"""A task: a computation on a machine, and how it is to be tuned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from weft.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from weft.auto_scheduler.measure_record import load_best_record
from weft.auto_scheduler.search_policy import auto_search
from weft.auto_scheduler.task_inputs import TASK_INPUT_BUFFER_TABLE, register_inputs
from weft.auto_scheduler.workload_registry import WORKLOAD_FUNC_REGISTRY, make_workload_key, register_workload_tensors
from weft.error import InvalidArgument
from weft.target import Target

__all__ = ["TASK_INPUT_BUFFER_TABLE", "HardwareParams", "SearchTask", "TuningOptions"]


@dataclass
class HardwareParams:
    """Sizes of a machine, in the order of log files; those of devices are 0 for processors."""

    num_cores: int = 0
    vector_unit_bytes: int = 0
    cache_line_bytes: int = 0
    max_shared_memory_per_block: int = 0
    max_local_memory_per_block: int = 0
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    @staticmethod
    def of(target: Target) -> HardwareParams:
        """Describe a target."""
        if "cpu" in target.kind.keys:
            return HardwareParams(target.num_cores, target.vector_bits // 8, 64)
        return HardwareParams(-1, 16, 64, 49152, 1 << 30, 1024, 8, 32)

    def __str__(self) -> str:
        return "\n".join(["HardwareParams:", *(f"  {k}: {v}" for k, v in asdict(self).items())])


class TuningOptions:
    """How a task is tuned.

    Parameters
    ----------
    num_measure_trials : int
        States to measure; 0 makes the best guess.
    early_stopping : int, optional
        End after so many without a better one.
    num_measures_per_round : int
        States of a batch.
    verbose : int
        0 is silent.
    builder, runner : "local", ProgramBuilder, ProgramRunner
    measure_callbacks : sequence of callable, optional
        Called with each batch, such as :class:`RecordToFile`.
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: Any = "local",
        runner: Any = "local",
        measure_callbacks: Sequence[Any] | None = None,
    ) -> None:
        for what, given in (("builder", builder), ("runner", runner)):
            if isinstance(given, str) and given != "local":
                raise InvalidArgument(f"unknown {what} '{given}'", expected="'local' or an object")
        self.num_measure_trials, self.early_stopping = num_measure_trials, early_stopping or -1
        self.num_measures_per_round, self.verbose = num_measures_per_round, verbose
        self.builder, self.runner = builder, runner
        self.measure_callbacks = list(measure_callbacks or [])


class SearchTask:
    """A computation on a target.

    Parameters
    ----------
    func : callable or str, optional
        A registered workload's function, with `args`.
    args : sequence, optional
    compute_dag : ComputeDAG, optional
        In place of a function.
    workload_key : str, optional
        In place of both; or the name of `compute_dag`.
    target : Target or str
    target_host : Target or str, optional
    hardware_params : HardwareParams, optional
    layout_rewrite_option : LayoutRewriteOption, optional
    task_inputs : mapping of str to Tensor, or sequence of str, optional
        Values of inputs that random numbers do not suit, by name.
    task_inputs_overwrite : bool
        Put them in the place of those that are known.
    task_inputs_save_to_file : bool
        Save them beside the logs, as ``<name>.npy``.
    desc : str
    """

    def __init__(
        self,
        func: Any = None,
        args: Sequence[Any] = (),
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: Any = None,
        target_host: Any = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: Any = None,
        task_inputs: Any = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        if workload_key is None:
            if func is None:
                raise InvalidArgument("a task needs a function with arguments, or the key of a workload")
            workload_key = make_workload_key(func, args)
        self.workload_key = workload_key
        self.compute_dag = compute_dag if compute_dag is not None else ComputeDAG(self.workload_key)
        if target is None:
            raise InvalidArgument("a task needs a target")
        self.target = Target(target, host=target_host)
        self.hardware_params = hardware_params or HardwareParams.of(self.target)
        default = LayoutRewriteOption.get_target_default(self.target)
        self.layout_rewrite_option = default if layout_rewrite_option is None else layout_rewrite_option
        self.desc = desc
        self.task_input_names = register_inputs(
            self.workload_key, task_inputs, task_inputs_overwrite, task_inputs_save_to_file
        )

    def tune(self, tuning_options: TuningOptions, search_policy: Any = None, adaptive_training: bool = False) -> None:
        """Search, and tell the callbacks of the options what was measured."""
        auto_search(self, tuning_options, search_policy, adaptive_training)

    def apply_best(
        self, log_file: str, include_compatible: bool = False, layout_rewrite_option: Any = None
    ) -> tuple[Any, Any]:
        """Return the schedule and the tensors of the best record of a log.

        Raises
        ------
        InvalidArgument
            When the log has none of this task.
        """
        return self.compute_dag.apply_steps_from_state(self._best(log_file, include_compatible))

    def print_best(self, log_file: str, print_mode: str = "schedule", include_compatible: bool = False) -> str:
        """Return the best record of a log as Python (``"schedule"``), or as the source that it makes."""
        state = self._best(log_file, include_compatible)
        if print_mode != "schedule":
            raise InvalidArgument(f"unknown print_mode '{print_mode}'", expected="'schedule'")
        return self.compute_dag.print_python_code_from_state(state)

    def _best(self, log_file: str, include_compatible: bool) -> Any:
        inp, _ = load_best_record(log_file, self.workload_key, include_compatible=include_compatible)
        if inp is None:
            raise InvalidArgument(f"'{log_file}' has no record of this task", found=self.workload_key)
        return inp.state

    def serialize(self) -> list[Any]:
        """Return the task as log files have it."""
        host = str(self.target.host) if self.target.host is not None else ""
        option, sizes = int(self.layout_rewrite_option), list(astuple(self.hardware_params))
        return [self.workload_key, self.target.identity, sizes, host, option, list(self.task_input_names)]

    @staticmethod
    def deserialize(data: Sequence[Any]) -> SearchTask:
        """Read a task of a log file."""
        key, target, sizes, host, option, *names = data
        return SearchTask(
            workload_key=key,
            target=target,
            target_host=host or None,
            hardware_params=HardwareParams(*sizes),
            layout_rewrite_option=LayoutRewriteOption(option),
            task_inputs=names[0] if names else None,
            compute_dag=_known_dag(key),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.serialize(), "dag": self.compute_dag}

    def __setstate__(self, state: dict[str, Any]) -> None:
        register_workload_tensors(state["data"][0], state["dag"].tensors)
        self.__dict__.update(SearchTask.deserialize(state["data"]).__dict__)


def _known_dag(key: str) -> Any:
    """Make the computation of a key where its function is there; a record of another can be read all the same."""
    try:
        name = json.loads(key)[0]
    except ValueError:
        name = key
    return ComputeDAG(key) if key in WORKLOAD_FUNC_REGISTRY or name in WORKLOAD_FUNC_REGISTRY else ComputeDAG([])
