"""Log files: a line a measurement, ``{"i": [task, [[], steps]], "r": [costs, error_no, all_cost, timestamp], "v"}``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import weft
from weft import error
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.measure import MeasureInput, MeasureResult
from weft.target import Target
from weft.tune import log

_VERSION = "v0.6"


class _RecordedState:
    """The steps of a record whose computation is not there."""

    def __init__(self, steps: list[Any]) -> None:
        self.transform_steps = steps


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """Write a measurement as a line."""
    result = [[c.value for c in res.costs], res.error_no, res.all_cost, int(res.timestamp)]
    entry = {"i": [inp.task.serialize(), [[], inp.state.transform_steps]], "r": result, "v": _VERSION}
    return json.dumps(entry)


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """Read a line."""
    with error.reading("a record of another form", expected="what dump_record_to_string() wrote"):
        entry = json.loads(record)
        data, (_, steps) = entry["i"]
        task = weft.auto_scheduler.SearchTask.deserialize(data)
        costs, error_no, all_cost, timestamp = entry["r"]
        log.seconds((all_cost, timestamp))
        result = MeasureResult(log.seconds(costs), error_no, "", all_cost, timestamp)
        state = State(task.compute_dag, steps) if task.compute_dag.tensors else _RecordedState(steps)
        return MeasureInput(task, state), result


class RecordToFile:
    """A callback that appends what was measured to a log.

    Parameters
    ----------
    filename : str
        Its folder is made where it is not there.
    """

    def __init__(self, filename: str) -> None:
        self.filename = filename

    def __call__(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Append a batch."""
        save_records(self.filename, inputs, results)


class RecordReader:
    """Reads a log; records that are damaged are left out, with a warning.

    Parameters
    ----------
    filename : str
    """

    def __init__(self, filename: str) -> None:
        log.lines_of(filename)
        self.filename = filename

    def check_workload_key(self, inputs: Sequence[MeasureInput]) -> None:
        """Refuse records without the key of their workload."""
        if any(not i.task.workload_key for i in inputs):
            raise weft.error.InvalidArgument("a record has no workload")

    def read_lines(self, max_lines: int | None = None, skip_lines: int = 0) -> tuple[list[Any], list[Any]]:
        """Return the inputs and the results of some lines."""
        end = None if max_lines is None or max_lines < 0 else skip_lines + max_lines
        pairs = list(self)[skip_lines:end]
        self.check_workload_key([i for i, _ in pairs])
        return [i for i, _ in pairs], [r for _, r in pairs]

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        lines = [line for line in log.lines_of(self.filename) if not line.startswith("#")]
        yield from filter(None, log.records(lines, load_record_from_string, self.filename))


def load_records(filename: str) -> list[tuple[MeasureInput, MeasureResult]]:
    """Return the records of a log."""
    return list(RecordReader(filename))


def save_records(filename: str, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records to a log."""
    with log.appending(filename) as write:
        write("".join(f"{dump_record_to_string(i, r)}\n" for i, r in zip(inputs, results, strict=True)))


def load_best_record(
    filename: str, workload_key: str | None = None, target: Target | None = None, include_compatible: bool = False
) -> tuple[Any, Any]:
    """Return the fastest record of a log, of one workload or target where that is said; two Nones where there is none.

    With `include_compatible` the records of the same function with other arguments count.
    """
    best: tuple[Any, Any] = (None, None)
    for inp, res in RecordReader(filename):
        if res.error_no or (workload_key is not None and not _fits(inp, workload_key, include_compatible)):
            continue
        if target is not None and inp.task.target.kind != target.kind:
            continue
        if best[1] is None or res.mean < best[1].mean:
            best = (inp, res)
    return best


def _fits(inp: MeasureInput, key: str, include_compatible: bool) -> bool:
    own = inp.task.workload_key
    return own == key or (include_compatible and own.startswith("[") and json.loads(own)[0] == json.loads(key)[0])
