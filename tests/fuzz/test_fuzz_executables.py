"""Mutated executables neither crash nor hang the process that loads and calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np

from tests.fuzz import budget
from tests.fuzz.executables import fields, mutate_fields
from tests.runtime.programs import add_twice

CHUNK = 2000


def test_mutated_files():
    for chunk in budget.seeds(0.5):
        command = [sys.executable, "-m", "tests.fuzz.executables", str(CHUNK), str(chunk * CHUNK)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired as e:
            raise AssertionError(f"hangs at seed {(e.stderr or b'').split()[-1:]}") from e
        ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
        assert done.returncode == 0, f"{ended}: {done.stderr[-2000:]}"
        counts = json.loads(done.stdout)
        assert sum(counts.values()) == CHUNK
        assert counts["rejected"] and counts["failed"] and counts["ran"], counts
        if "FUZZ_SECONDS" not in os.environ:
            return


def test_fields_cover_the_file():
    """The table of fields ends where the file ends, and each group that the format has is in it."""
    data = add_twice(1).bytes
    table = list(fields(data))
    _, at, form = table[-1]
    assert (at + 8, form) == (len(data), "q")
    assert {g for g, _, _ in table} == {"header", "count", "function", "tag", "constant", "offset", "word"}
    changed = [mutate_fields(data, table, np.random.default_rng(seed)) for seed in range(20)]
    assert all(len(c) == len(data) for c in changed)
    assert len(set(changed) - {data}) > 15
