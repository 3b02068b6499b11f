"""Log files: a line a measurement, with its task, configuration and times.

A line of the protocol ``json`` is ``{"input": [target, task, args, kwargs], "config": {"index", "code_hash",
"entity"}, "result": [costs, error_no, all_cost, timestamp], "version": 0.2, "tvm_version"}``; one of ``pickle`` has the
same behind base64, separated by tabs, and only trusted files are to be read so.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.autotvm.measure.measure import MeasureInput, MeasureResult
from weft.autotvm.task.space import ConfigEntity
from weft.autotvm.task.task import Task
from weft.error import InvalidArgument, reading
from weft.runtime import write_file
from weft.spelling import also_called
from weft.target import Target
from weft.tune import log
from weft.tune.front_end import deserialize_args

AUTOTVM_LOG_VERSION = 0.2


def __getattr__(name: str) -> Any:
    """Find what applies records, which stands above."""
    if name == "ApplyHistoryBest":
        return weft.autotvm.task.ApplyHistoryBest
    raise AttributeError(f"module 'weft.autotvm.record' has no attribute '{name}'")


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """Name what was measured."""
    parts = [inp.target, inp.task.name, inp.task.args, inp.task.kwargs, *([inp.config] if include_config else [])]
    return "".join(str(p) for p in parts)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """Write a measurement as a line, in the protocol ``"json"`` or ``"pickle"``."""
    task = inp.task
    costs = result.costs if result.error_no == 0 else (1e9,)
    if protocol == "json":
        line = {
            "input": [str(inp.target), task.name, task.args, task.kwargs],
            "config": inp.config.to_json_dict(),
            "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
            "version": AUTOTVM_LOG_VERSION,
            "tvm_version": weft.__version__,
        }
        return json.dumps(line, default=str)
    if protocol != "pickle":
        raise InvalidArgument("unknown protocol of a log", expected="'json' or 'pickle'", found=repr(protocol))
    packed = [[task.name, task.args, task.kwargs], inp.config.to_json_dict(), (costs, *result[1:])]
    texts = [base64.b64encode(pickle.dumps(p)).decode() for p in packed]
    return "\t".join([str(inp.target), *texts, str(AUTOTVM_LOG_VERSION), weft.__version__])


class _Plain(pickle.Unpickler):
    """Reads numbers, strings and containers: a log may come from anybody, and whatever else runs code."""

    def find_class(self, module: str, name: str) -> Any:
        raise InvalidArgument(
            "a pickled log holds more than numbers, strings and lists",
            found=f"{module}.{name}",
            help="write it again with protocol='json'",
        )


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """Read a line that :func:`encode` wrote; None where it is of the first version."""
    if protocol not in ("json", "pickle"):
        raise InvalidArgument("unknown protocol of a log", expected="'json' or 'pickle'", found=repr(protocol))
    with reading("a record of another form", also=(pickle.UnpicklingError,), expected="what encode() wrote"):
        if protocol == "json":
            line = json.loads(row)
            if "input" not in line:
                return None
            (target, name, args, _), config, values = (line[part] for part in ("input", "config", "result"))
            target, args = str(target).replace("-target", "-mtriple"), _tuples(args)
        else:
            target, *parts = row.split("\t")
            if len(parts) == 3:
                return None
            (name, args, _), config, values = (_Plain(io.BytesIO(base64.b64decode(p))).load() for p in parts[:3])
        costs, error_no, all_cost, timestamp = values
        result = MeasureResult(log.seconds(costs), int(error_no), float(all_cost), float(timestamp))
        entity = ConfigEntity.from_json_dict(config)
        entity.cost = float(np.mean(result.costs))
        task = Task(name, args)
        hash((task.workload, tuple(deserialize_args(args))))
        return MeasureInput(Target(target), task, entity), result


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def load_from_buffer(file: io.TextIOBase) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Read the records of an open log; those that are damaged are left out, with a warning."""
    rows = (row for row in file if row.strip() and not row.startswith("#"))
    name = getattr(file, "name", "the log")
    yield from (found for found in log.records(rows, decode, name) if found is not None)


@also_called(filename="filepath")
def load_from_file(filepath: str | bytes | os.PathLike[Any]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Read the records of a log file."""
    with Path(os.fsdecode(filepath)).open(errors="replace") as f:
        yield from load_from_buffer(f)


def split_workload(in_file: str, clean: bool = True) -> None:
    """Write the records of each workload to a file of its own, ``<log>.<number>.wkl``; `clean` keeps one of equals."""
    groups: dict[Any, list[tuple[MeasureInput, MeasureResult]]] = {}
    for inp, res in load_from_file(in_file):
        groups.setdefault(inp.task.workload, []).append((inp, res))
    for number, records in enumerate(groups.values()):
        lines = [encode(*r) for r in records]
        write_file(f"{in_file}.{number:03d}.wkl", "\n".join(dict.fromkeys(lines) if clean else lines) + "\n")


def fastest(records: Iterable[tuple[MeasureInput, MeasureResult]]) -> list[tuple[MeasureInput, MeasureResult]]:
    """List the fastest record of each target and workload."""
    best: dict[Any, tuple[MeasureInput, MeasureResult]] = {}
    for inp, res in records:
        key = str(inp.target), inp.task.workload
        if res.error_no == 0 and (key not in best or np.mean(res.costs) < np.mean(best[key][1].costs)):
            best[key] = inp, res
    return list(best.values())


def pick_best(in_file: str, out_file: str) -> None:
    """Write the fastest record of each target and workload to another file."""
    write_file(out_file, "".join(f"{encode(*r)}\n" for r in fastest(load_from_file(in_file))) or "\n")
