"""Costs of the virtual machine, beside Apache TVM's where ``WEFT_TVM_PYTHON`` names an interpreter that has it.

Each engine runs in a process of its own (`vm_lanes`), several times in turn; the least of the runs counts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import report, vm_load
from weft.environment import TVM_PYTHON

LANES = Path(__file__).with_name("vm_lanes.py")
# What, its key in a lane, the unit, nanoseconds in it, and the limit.
ROWS = (
    ("add of 4 floats, fusion off, bytecode", "add", "ns", 1.0, 30.0),
    ("the same with a symbolic shape", "add symbolic", "ns", 1.0, 90.0),
    ("the same compiled", "add compiled", "ns", 1.0, 5.0),
    ("a call of the compiled function besides", "call compiled", "us", 1e3, 0.4),
    ("call of a native function that does nothing", "native call", "ns", 1.0, 8.0),
    ("VM function calling another", "function call", "ns", 1.0, 40.0),
    ("Python call of a function of one operator", "python call", "us", 1e3, 0.5),
    ("Python instrument that does nothing, a callback", "instrument", "us", 1e3, 0.7),
)


def lane(python: str, name: str) -> dict[str, float]:
    """Run one engine."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" or name == "weft"}
    done = subprocess.run([python, str(LANES), name], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(run[key] for run in runs) for key in runs[0]} if runs else {}


def engine_rows(rounds: int) -> list[dict[str, Any]]:
    """The numbers that both engines have."""
    peer = TVM_PYTHON.read()
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for _ in range(rounds):
        ours.append(lane(sys.executable, "weft"))
        if peer:
            theirs.append(lane(str(peer), "tvm"))
    found, other = least(ours), least(theirs)
    return [
        {
            "what": what,
            "unit": unit,
            "weft": found[key] / scale,
            "limit": limit,
            "tvm": other[key] / scale if other else "",
        }
        for what, key, unit, scale, limit in ROWS
    ]


def load_rows() -> list[dict[str, Any]]:
    """Loading and threads, which Weft alone has."""
    load, read = vm_load.load_row()
    row = {"unit": "ms", "limit": "", "tvm": ""}
    return [
        {"what": f"load of {vm_load.MEGABYTES} MB", **row, "weft": load * 1e3, "limit": 1.3 * read * 1e3},
        {"what": "reading the file", **row, "weft": read * 1e3},
        {
            "what": f"load and verify {vm_load.INSTRUCTIONS} instructions",
            **row,
            "weft": vm_load.verify_row() * 1e3,
            "limit": 3.0,
        },
        {
            "what": "two threads against one, at least",
            **row,
            "unit": "times",
            "weft": vm_load.threads_row(),
            "limit": 1.8,
        },
    ]


def missed(row: dict[str, Any]) -> bool:
    """Whether a number is on the wrong side of its limit."""
    if row["limit"] == "":
        return False
    return row["weft"] < row["limit"] if row["unit"] == "times" else row["weft"] > row["limit"]


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    columns = ("what", "unit", "weft", "limit", "tvm")
    rows = [{k: row[k] for k in columns} for row in [*engine_rows(options.rounds), *load_rows()]]
    report.show("virtual machine", rows)
    report.save(options.json, "vm", rows)
    return int(any(missed(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
