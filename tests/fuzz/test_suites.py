"""A slice of each suite of random checks; ``make fuzz-SUITE SECONDS=...`` runs more of it."""

import os
import subprocess
import sys
import time

import pytest

from weft import environment

SLICES = {
    "calls": (12, 40),
    "kernels": (20, 10),
    "nodes": (15, 2),
    "onnx": (8, 50),
    "answers": (40, 25),
    "graphs": (3, 1),
    "files": (29, 40),
    "programs": (10, 1),
}
"""Subjects and seeds of each, of a sweep thrice as many: the same in every run, so that a verdict is of the code."""


@pytest.mark.parametrize("suite", SLICES)
def test_suite(suite: str) -> None:
    """Nothing is found; ``make fuzz`` draws other seeds, for so many seconds."""
    seconds, command = os.environ.get("FUZZ_SECONDS"), [sys.executable, "-m", "tests.fuzz.run", suite]
    if seconds is None:
        subjects, seeds = SLICES[suite]
        times = 3 if environment.SWEEP.read() else 1
        command += ["--most", str(subjects * times), "--count", str(seeds * times)]
    else:
        command += ["--seconds", seconds, "--seed", str(int(time.time())), "--slice", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    assert int(done.stdout.split()[0]) > 0
