"""Which state a workload gets: contexts that hold the best of log files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te, tir
from weft.auto_scheduler.compute_dag import ComputeDAG
from weft.auto_scheduler.cost_model import XGBModel
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.measure_record import RecordReader
from weft.auto_scheduler.search_policy import SketchPolicy, auto_search
from weft.auto_scheduler.search_task import SearchTask, TuningOptions
from weft.tune.front_end import Dispatcher


class DispatchContext(Dispatcher, kind="auto_scheduler.DispatchContext"):
    """What is asked for the state of a workload inside ``with context:``."""

    def query(self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str) -> State | None:
        """Return the state of a workload; what a context does not know, the one around it is asked."""
        found = self._query_inside(target, workload_key, func_name)
        if found is not None:
            return State(dag, found.transform_steps)
        return self._old_ctx.query(target, workload_key, has_complex_op, dag, func_name) if self._old_ctx else None

    def kernel(self, target: Any, args: Sequence[Any], name: str) -> tir.PrimFunc | None:
        """Make a kernel of its parameters as the state of its workload says; None where nothing is known of it."""
        dag = ComputeDAG.of_kernel(args)
        state = None if dag is None else self.query(target, dag.workload_key(), dag.reduces, dag, name)
        if dag is None or state is None:
            return None
        return te.schedule_to_prim_func(*dag.apply_steps_from_state(state), name)

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Any:
        return None

    def update(self, target: Any, workload_key: str, state: Any) -> None:
        """Set the state of a workload."""


class ApplyHistoryBest(DispatchContext):
    """The best states of log files.

    Parameters
    ----------
    records : str, (input, result) pairs, or a sequence of these
    n_lines : int, optional
        How many lines of a log count.
    include_compatible : bool
        Accepted; a workload's own records count.
    """

    def __init__(self, records: Any, n_lines: int | None = None, include_compatible: bool = False) -> None:
        super().__init__()
        self.best_by_targetkey: dict[Any, Any] = {}
        self._best_user_defined: dict[Any, Any] = {}
        self.load(records, n_lines)

    def load(self, records: Any, n_lines: int | None = None) -> None:
        """Take in records; of each workload the fastest is kept."""
        if records is None:
            return
        pairs = zip(*RecordReader(records).read_lines(n_lines), strict=True) if isinstance(records, str) else records
        for entry in pairs:
            if isinstance(entry, str):
                self.load(entry, n_lines)
                continue
            inp, res = entry
            for key in ((k, inp.task.workload_key) for k in inp.task.target.kind.keys):
                known = self.best_by_targetkey.get(key)
                if res.error_no == 0 and (known is None or res.mean < known[1].mean):
                    self.best_by_targetkey[key] = (inp, res)

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Any:
        for key in ((k, workload_key) for k in target.kind.keys):
            if key in self._best_user_defined:
                return self._best_user_defined[key]
            if key in self.best_by_targetkey:
                return self.best_by_targetkey[key][0].state
        return None

    def update(self, target: Any, workload_key: str, state: Any) -> None:
        """Set the state of a workload in place of what is recorded."""
        for k in target.kind.keys:
            self._best_user_defined[k, workload_key] = state


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """The best states of log files; of what they do not have, some are tried when it is asked for.

    Parameters
    ----------
    records : str, (input, result) pairs, a sequence of these, or None
    sample_simple_workloads : bool
        Whether computations without a reduction are tried, too.
    cost_model_file : str, optional
        A cost model that was saved, which guesses where nothing is measured.
    num_measure : int
        How many are measured; with less than 1 the one that the cost model takes for the best is made.
    """

    def __init__(
        self,
        records: Any,
        sample_simple_workloads: bool = False,
        cost_model_file: str | None = None,
        num_measure: int = -1,
    ) -> None:
        super().__init__(records)
        self.sample_simple_workloads, self.cost_model_file = sample_simple_workloads, cost_model_file
        self.num_measure = num_measure

    def query(self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str) -> State | None:
        """Return the state of a workload, which is searched for where none is known."""
        found = super().query(target, workload_key, has_complex_op, dag, func_name)
        if found is not None or not (has_complex_op or self.sample_simple_workloads):
            return found
        model = XGBModel()
        if self.cost_model_file is not None:
            model.load(self.cost_model_file)
        task = SearchTask(workload_key=workload_key, compute_dag=dag, target=target, desc=func_name)
        options = TuningOptions(max(0, self.num_measure), verbose=0)
        found = auto_search(task, options, SketchPolicy(task, model, verbose=0))
        self.update(target, workload_key, found)
        return State(dag, found.transform_steps)


class FallbackContext(DispatchContext):
    """The outermost context: nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[Any, Any] = {}

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Any:
        return self.memory.get((str(target), workload_key))

    def update(self, target: Any, workload_key: str, state: Any) -> None:
        """Set the state of a workload."""
        self.memory[str(target), workload_key] = state


DispatchContext.set_outermost(FallbackContext())
