"""Records by what was measured, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autotvm.record import decode, encode, measure_str_key


class Database:
    """Keeps measurements."""

    def load(self, inp: Any, get_all: bool = False) -> Any:
        """Return the last result of an input, or all of them; None where there is none."""
        raise NotImplementedError

    def save(self, inp: Any, res: Any, extend: bool = False) -> None:
        """Keep a result, besides earlier ones where `extend`."""
        raise NotImplementedError


class DummyDatabase(Database):
    """Keeps measurements in memory."""

    MAGIC_SPLIT = "$"

    def __init__(self) -> None:
        self.db: dict[str, list[str]] = {}

    def load(self, inp: Any, get_all: bool = False) -> Any:
        """Return the last result of an input, or all of them; None where there is none."""
        rows = self.db.get(measure_str_key(inp))
        if rows is None:
            return None
        results = [found[1] for found in map(decode, rows) if found is not None]
        return results if get_all else max(results, key=lambda r: r.timestamp)

    def save(self, inp: Any, res: Any, extend: bool = False) -> None:
        """Keep a result, besides earlier ones where `extend`."""
        key, row = measure_str_key(inp), encode(inp, res)
        self.db[key] = [*self.db.get(key, ()), row] if extend else [row]

    def filter(self, func: Callable[[Any, Any], bool]) -> list[Any]:
        """List the inputs with their results that a predicate accepts."""
        found = []
        for rows in self.db.values():
            records = [r for r in map(decode, rows) if r is not None]
            inp, results = records[0][0], [r[1] for r in records]
            if func(inp, results):
                found.append((inp, max(results, key=lambda r: r.timestamp)))
        return found

    def flush(self) -> None:
        """Forget all."""
        self.db = {}


def filter_inputs(db: Database, measure_inputs: Sequence[Any], retry: bool = False) -> list[Any]:
    """List the inputs that nothing is known of; those that failed too, where `retry`."""
    found = []
    for inp in measure_inputs:
        res = db.load(inp)
        if res is None or (retry and res.error_no != 0):
            found.append(inp)
    return found
