"""A slice of each suite of random checks; ``make fuzz-SUITE SECONDS=...`` runs more of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

SECONDS = {"calls": 5, "onnx": 5, "graphs": 5, "files": 5, "programs": 5}


@pytest.mark.parametrize("suite", SECONDS)
def test_suite(suite: str) -> None:
    """Nothing is found in a few seconds; which subjects have their turn goes by the seed, which ``make fuzz`` draws."""
    seconds = os.environ.get("FUZZ_SECONDS")
    seed = 0 if seconds is None else int(time.time())
    command = [sys.executable, "-m", "tests.fuzz.run", suite, "--seconds", seconds or str(SECONDS[suite])]
    command += ["--seed", str(seed), "--slice", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    assert int(done.stdout.split()[0]) > 0
