"""What log files say: contexts that give templates the best configurations that were measured."""

import io
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.autotvm.record import load_from_buffer, load_from_file
from weft.autotvm.task.dispatcher import DispatchContext
from weft.autotvm.task.space import FallbackConfigEntity
from weft.target import Target

Records = str | bytes | os.PathLike[str] | io.TextIOBase | Iterable[Any]


class ApplyHistoryBest(DispatchContext):
    """The best configurations of log files.

    Parameters
    ----------
    records : path, file, (input, result) pairs, or a sequence of these
    """

    def __init__(self, records: Records | None) -> None:
        super().__init__()
        self.best_by_targetkey: dict[Any, Any] = {}
        self.best_by_model: dict[Any, Any] = {}
        self._best_user_defined: dict[Any, Any] = {}
        if records:
            self.load(records)

    def load(self, records: Records) -> None:
        """Take in records; of each workload the fastest is kept."""
        if isinstance(records, (str, bytes, os.PathLike)):
            records = load_from_file(os.fsdecode(records))
        elif isinstance(records, io.TextIOBase):
            records = load_from_buffer(records)
        for entry in records:
            if isinstance(entry, tuple) and len(entry) == 2 and hasattr(entry[1], "error_no"):
                self._take(*entry)
            elif entry is not None:
                self.load(entry)

    def _take(self, inp: Any, result: Any) -> None:
        if result.error_no != 0:
            return
        workload, model = inp.task.workload, inp.target.attribute("model", "unknown")
        tables = [(self.best_by_targetkey, (k, workload)) for k in keys_of(inp.target)]
        if model != "unknown":
            tables.append((self.best_by_model, (model, workload)))
        for table, key in tables:
            if key not in table or np.mean(result.costs) < np.mean(table[key][1].costs):
                table[key] = (inp, result)

    def _query_inside(self, target: Any, workload: Any) -> Any:
        if target is None or workload is None:
            return None
        key = (target.attribute("model", "unknown"), workload)
        keys = [(k, workload) for k in keys_of(target)]
        for found in (self._best_user_defined.get(k) for k in (key, *keys)):
            if found is not None:
                return found
        if key in self.best_by_model:
            return self.best_by_model[key][0].config
        return next((self.best_by_targetkey[k][0].config for k in keys if k in self.best_by_targetkey), None)

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Set the configuration of a workload in place of what is recorded."""
        for k in (target.attribute("model", "unknown"), *keys_of(target)):
            self._best_user_defined[k, workload] = cfg
        cfg.cost = 0


class ApplyGraphBest(DispatchContext):
    """Configurations of a graph tuner; of several for one workload, each that asks gets the next.

    Parameters
    ----------
    records : path or (input, result) pairs
    """

    def __init__(self, records: Any) -> None:
        super().__init__()
        path = isinstance(records, (str, os.PathLike))
        self._records = list(load_from_file(records) if path else records)
        self._global_cfg_dict: dict[Any, Any] = {}

    def _query_inside(self, target: Any, workload: Any) -> Any:
        for at, (inp, _) in enumerate(self._records):
            if inp.task.workload == workload:
                del self._records[at]
                self.update(target, workload, inp.config)
                return inp.config
        return self._global_cfg_dict.setdefault((str(target), workload), FallbackConfigEntity())

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Set the configuration of a workload."""
        self._global_cfg_dict[str(target), workload] = cfg


def keys_of(target: Target) -> list[str]:
    """List the keys under which records of a target are good: those it was given, its kind's, and its device."""
    given = [str(k) for k in str(target.attrs.get("keys", "")).split(",") if k]
    device = [str(target.attrs["device"])] if "device" in target.attrs else []
    return list(dict.fromkeys([*device, *given, *target.kind.keys]))
