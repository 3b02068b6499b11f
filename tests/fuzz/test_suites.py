"""A slice of each suite of random checks; ``make fuzz-SUITE SECONDS=...`` runs more of it."""

import os
import subprocess
import sys
import time

import pytest

from weft import environment

SLICES = {
    "calls": (6, 40),
    "kernels": (10, 10),
    "nodes": (8, 2),
    "onnx": (4, 50),
    "answers": (20, 25),
    "graphs": (2, 1),
    "files": (15, 40),
    "programs": (5, 1),
}
"""Subjects and seeds of each (of a sweep six times and thrice as many): the same in each run, which judges the code."""


@pytest.mark.parametrize("suite", SLICES)
def test_suite(suite: str) -> None:
    """Nothing is found; ``make fuzz`` draws other seeds, for so many seconds."""
    seconds, command = os.environ.get("FUZZ_SECONDS"), [sys.executable, "-m", "tests.fuzz.run", suite]
    if seconds is None:
        subjects, seeds = SLICES[suite]
        more = (6, 3) if environment.SWEEP.read() else (1, 1)
        command += ["--most", str(subjects * more[0]), "--count", str(seeds * more[1])]
    else:
        command += ["--seconds", seconds, "--seed", str(int(time.time())), "--slice", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    assert int(done.stdout.split()[0]) > 0
