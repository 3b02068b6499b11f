"""Mutated executables neither crash nor hang the process that loads and calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.fuzz import budget, relay_executables
from tests.fuzz.binary import mutate_fields
from tests.fuzz.executables import fields
from tests.fuzz.programs import bases
from tests.runtime.programs import add_twice

CHUNK = 2000


@pytest.mark.parametrize("place", range(len(bases())))
def test_programs_run_unchanged(place):
    base = bases()[place]
    executable = weft.runtime.VMExecutable.from_bytes(base.data, base.imports)
    assert weft.relax.VirtualMachine(executable, weft.cpu())["main"](*base.args) is not None


@pytest.mark.parametrize("module", ["executables", "relay_executables"])
def test_mutated_files(module):
    for chunk in budget.seeds(0.5):
        command = [sys.executable, "-m", f"tests.fuzz.{module}", str(CHUNK), str(chunk * CHUNK)]
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


def test_fields_cover_the_files():
    """The table of fields ends where the file ends, and each group that the format has is in one of them."""
    groups = set()
    for base in bases():
        table = list(fields(base.data))
        _, at, form = table[-1]
        assert (at + 8, form) == (len(base.data), "q")
        groups |= {g for g, _, _ in table}
    assert groups == {
        "header", "count", "function", "scope", "tag", "constant", "tensor", "shape", "offset", "word"
    }  # fmt: skip


def test_mutations_change_the_file():
    data = add_twice(1).bytes
    table = list(fields(data))
    changed = [mutate_fields(data, table, np.random.default_rng(seed)) for seed in range(20)]
    assert all(len(c) == len(data) for c in changed)
    assert len(set(changed) - {data}) > 15


def test_fields_cover_a_relay_file():
    data = bytes(relay_executables.program().save()[0])
    table = list(relay_executables.fields(data))
    _, at, form = table[-1]
    assert (at + 8, form) == (len(data), "q")
    assert {g for g, _, _ in table} == {"header", "count", "device", "tag", "tensor", "registers", "word"}
