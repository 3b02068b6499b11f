"""Where the time of a call goes: one row a call of a kernel or builtin, as a table, CSV, JSON, or a trace."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from typing import Any, NamedTuple

from weft import error
from weft.runtime.jit import HotShape
from weft.runtime.regular_file import write_file as _write_file
from weft.runtime.tensor import Tensor
from weft.spelling import also_called


class ProfileCall(NamedTuple):
    """One call: what was called, when (from the start of the profile), how long, on what, how deep."""

    name: str
    start_us: float
    duration_us: float
    shapes: str
    depth: int


class Report:
    """The calls of a profile, in the order in which they began.

    Attributes
    ----------
    calls : list of ProfileCall
    total_us : float
        The whole, with what is not in any call.
    hot_shapes : list of HotShape
        Kernels of symbolic shapes and what was compiled for their shapes (Relay's machine only).
    """

    def __init__(self, calls: list[ProfileCall], total_us: float) -> None:
        self.calls, self.total_us = calls, total_us
        self.hot_shapes: list[HotShape] = []

    def rows(self, aggregate: bool = True, sort: bool = True) -> list[dict[str, Any]]:
        """Return rows of name, duration, percent, count and shapes.

        Parameters
        ----------
        aggregate : bool
            Whether calls of one name with the same shapes are one row.
        sort : bool
            Whether the longest come first.
        """
        groups: dict[Any, list[ProfileCall]] = {}
        for i, c in enumerate(self.calls):
            groups.setdefault((c.name, c.shapes) if aggregate else i, []).append(c)
        rows = []
        for calls in groups.values():
            duration = sum(c.duration_us for c in calls)
            rows.append(
                {
                    "Name": calls[0].name,
                    "Duration (us)": duration,
                    "Percent": 100 * duration / self.total_us if self.total_us else 0.0,
                    "Count": len(calls),
                    "Argument Shapes": calls[0].shapes,
                }
            )
        return sorted(rows, key=lambda r: -r["Duration (us)"]) if sort else rows

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Return the rows as text, and below the sum of the calls and the whole."""
        head = ["Name", "Duration (us)", "Percent", "Count", "Argument Shapes"]
        lines = [
            [r["Name"], f"{r['Duration (us)']:,.2f}", f"{r['Percent']:.2f}", str(r["Count"]), r["Argument Shapes"]]
            for r in self.rows(aggregate, sort)
        ]
        if col_sums:
            inside = sum(c.duration_us for c in self.calls if c.depth == 0)
            lines.append(["----------", "", "", "", ""])
            share = 100 * inside / self.total_us if self.total_us else 0.0
            lines.append(["Sum", f"{inside:,.2f}", f"{share:.2f}", str(len(self.calls)), ""])
            lines.append(["Total", f"{self.total_us:,.2f}", "", "1", ""])
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        text = []
        for line in [head, *lines]:
            numbers = [cell.rjust(w) for cell, w in zip(line[1:4], widths[1:4], strict=True)]
            text.append("  ".join([line[0].ljust(widths[0]), *numbers, line[4]]).rstrip())
        special = [h for h in self.hot_shapes if h.state == "specialised"]
        for h in special:
            text.append(f"{h.name}{list(h.shape)}: a kernel of its own, {h.specialised_calls:,} of {h.calls:,} calls")
        return "\n".join(text)

    __str__ = table

    def csv(self) -> str:
        """Return one line a call."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["Name", "Start (us)", "Duration (us)", "Argument Shapes", "Depth"])
        writer.writerows(self.calls)
        return out.getvalue()

    def json(self) -> str:
        """Return the calls and the whole as JSON."""
        return json.dumps({"calls": [c._asdict() for c in self.calls], "total_us": self.total_us})

    @staticmethod
    @also_called(s="text")
    def from_json(text: str) -> Report:
        """Read what :meth:`json` wrote."""
        with error.reading("not a report", expected="what Report.json() wrote"):
            found = json.loads(text)
            calls = [ProfileCall(**call) for call in found["calls"]]
            if any(type(v) not in (int, float) for c in calls for v in (c.start_us, c.duration_us, c.depth)):
                raise TypeError("a time is no number")
            return Report(calls, float(found["total_us"]))

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that Perfetto and Chrome's tracing page open."""
        events = [
            {
                "name": c.name,
                "ph": "X",
                "ts": c.start_us,
                "dur": c.duration_us,
                "pid": 0,
                "tid": 0,
                "args": {"shapes": c.shapes},
            }
            for c in self.calls
        ]
        _write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


class Profiler:
    """An instrument of a virtual machine that notes when each call begins and ends."""

    def __init__(self) -> None:
        self._open: list[tuple[str, int, str, int]] = []
        self._calls: list[ProfileCall | None] = []
        self._begin = time.perf_counter_ns()

    def __call__(self, func: Any, name: str, before_run: bool, ret_value: Any, *args: Any) -> int:
        """Note one end of a call."""
        if before_run:
            shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in args if isinstance(a, Tensor))
            self._calls.append(None)
            self._open.append((name, len(self._calls) - 1, shapes, time.perf_counter_ns()))
            return 0
        now = time.perf_counter_ns()
        opened, place, shapes, start = self._open.pop()
        self._calls[place] = ProfileCall(
            opened, (start - self._begin) / 1e3, (now - start) / 1e3, shapes, len(self._open)
        )
        return 0

    def report(self) -> Report:
        """Return what was noted since the profiler was made."""
        total = (time.perf_counter_ns() - self._begin) / 1e3
        return Report([c for c in self._calls if c is not None], total)
