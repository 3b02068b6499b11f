"""Tuners of whole graphs: which record of each kernel is the best where they work together.

Layouts of a program are decided before its tasks exist, and all configurations of a task have its layouts. So no
records of two kernels want a transformation between them, and the best of a graph are the best of each kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from weft import ir
from weft.autotvm.measure import MeasureInput, MeasureResult
from weft.autotvm.record import encode, fastest, load_from_file
from weft.error import InvalidArgument
from weft.runtime import write_file
from weft.target import Target, TargetLike

Record = tuple[MeasureInput, MeasureResult]


class BaseGraphTuner:
    """Chooses one record for each workload that was measured for a target.

    Parameters
    ----------
    graph : IRModule or Function
        The program that the tasks were extracted from.
    input_shapes : mapping of str to tuple of int
        Shapes of the program's inputs.
    records : path or sequence of (MeasureInput, MeasureResult)
        What was measured.
    target_ops : sequence of Op
        The operators that were tuned.
    target : Target or str
        Records of other targets do not count.
    max_sch_num, dtype, verbose, log_file, log_level, name
        Accepted; nothing is searched.

    Raises
    ------
    InvalidArgument
        When no record of the target was measured without an error.
    """

    def __init__(
        self,
        graph: ir.IRModule | ir.BaseFunc,
        input_shapes: Mapping[str, Sequence[int]],
        records: str | os.PathLike[str] | Iterable[Record],
        target_ops: Sequence[ir.Op],
        target: TargetLike,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str = "graph_tuner.log",
        log_level: int = 10,
        name: str = "graph_tuner",
    ) -> None:
        wanted = str(Target.of(target))
        path = isinstance(records, (str, os.PathLike))
        measured = [r for r in (load_from_file(records) if path else records) if r[1].error_no == 0]  # type: ignore[arg-type]
        self._optimal = fastest(r for r in measured if str(r[0].target) == wanted)
        if not self._optimal:
            found = sorted({str(r[0].target) for r in measured})
            raise InvalidArgument("no records to choose from", expected=wanted, found=", ".join(found) or "none")

    def benchmark_layout_transform(self, **options: object) -> None:
        """Measure what transformations between records cost; as none is needed, nothing is run."""

    def run(self, **options: object) -> None:
        """Search; the fastest record of each workload, which is known already, is the best of the graph."""

    def get_optimal_records(self) -> list[Record]:
        """List the records that were chosen."""
        return self._optimal

    def write_opt_sch2record_file(self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log") -> None:
        """Write the records that were chosen, for ``autotvm.apply_graph_best``."""
        write_file(record_file, "".join(f"{encode(*r)}\n" for r in self.get_optimal_records()))


class DPTuner(BaseGraphTuner):
    """The tuner that TVM computes by dynamic programming."""


class PBQPTuner(BaseGraphTuner):
    """The tuner that TVM computes as a partitioned Boolean quadratic problem."""
