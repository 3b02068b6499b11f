"""Which state a workload gets: contexts that hold the best of log files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.auto_scheduler.compute_dag import ComputeDAG
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.measure_record import RecordReader
from weft.te import schedule_to_prim_func
from weft.tir import PrimFunc
from weft.tune.front_end import Dispatcher

__all__ = ["ApplyHistoryBest", "DispatchContext", "FallbackContext"]


class DispatchContext(Dispatcher, kind="auto_scheduler.DispatchContext"):
    """What is asked for the state of a workload inside ``with context:``."""

    def query(self, target: Any, workload_key: str, has_complex_op: bool, dag: Any, func_name: str) -> State | None:
        """Return the state of a workload; what a context does not know, the one around it is asked."""
        found = self._query_inside(target, workload_key, func_name)
        if found is not None:
            return State(dag, found.transform_steps)
        return self._old_ctx.query(target, workload_key, has_complex_op, dag, func_name) if self._old_ctx else None

    def kernel(self, target: Any, args: Sequence[Any], name: str) -> PrimFunc | None:
        """Make a kernel of its parameters as the state of its workload says; None where nothing is known of it."""
        dag = ComputeDAG.of_kernel(args)
        state = None if dag is None else self.query(target, dag.workload_key(), dag.reduces, dag, name)
        if dag is None or state is None:
            return None
        return schedule_to_prim_func(*dag.apply_steps_from_state(state), name)

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
