"""What a tuner may do with each batch of measurements."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from weft.autotvm.database import Database
from weft.autotvm.record import encode
from weft.autotvm.units import format_si_prefix
from weft.tune import log

__all__ = ["Monitor", "log_to_database", "log_to_file", "progress_bar"]

Callback = Callable[[Any, Sequence[Any], Sequence[Any]], None]


def log_to_file(file_out: str | os.PathLike[str] | TextIO, protocol: str = "json") -> Callback:
    """Append the records to a file, given by its path or open; configurations without decisions are left out."""

    def callback(_: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        pairs = zip(inputs, results, strict=True)
        lines = "".join(f"{encode(i, r, protocol)}\n" for i, r in pairs if list(i.config))
        if isinstance(file_out, (str, os.PathLike)):
            with log.appending(file_out) as write:
                write(lines)
        else:
            file_out.write(lines)

    return callback


def log_to_database(db: Database) -> Callback:
    """Save the records in a database."""

    def callback(_: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            db.save(inp, res)

    return callback


class Monitor:
    """Remembers operations a second, and when they were measured."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Take a batch."""
        for inp, res in zip(inputs, results, strict=True):
            self.scores.append(inp.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0)
            self.timestamps.append(res.timestamp)

    def reset(self) -> None:
        """Forget."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> np.ndarray:
        """The operations a second of each trial."""
        return np.array(self.scores)

    def trial_timestamps(self) -> np.ndarray:
        """The times of each trial."""
        return np.array(self.timestamps)


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Tell on a line how far tuning is, and how fast the last and the best trial were."""
    start, done, best = time.time(), 0, 0.0

    def callback(tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        nonlocal done, best
        flops = 0.0
        for inp, res in zip(inputs, results, strict=True):
            flops = inp.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0
            best = max(best, flops)
        done += len(inputs)
        now, most = (format_si_prefix(v, si_prefix) for v in (flops, best))
        seconds = time.time() - start
        end = "\n" if done >= total else ""
        speed = f"{now:7.2f}/{most:7.2f} {si_prefix}FLOPS"
        sys.stdout.write(f"\r{prefix} Current/Best: {speed} | Progress: ({done}/{total}) | {seconds:.2f} s{end}")
        sys.stdout.flush()

    return callback
