"""Damaged entries of the cache and tuning files: a miss or a warning, never another value, never a crash."""

import json
import warnings
import zlib

import numpy as np
import pytest

from tests.fuzz import budget
from tests.fuzz.binary import damage
from tests.runtime.test_stored_model import CONSTANTS, executable, values
from weft import error, target
from weft.runtime.cache import Cache
from weft.runtime.stored_model import read_model, write_model
from weft.tune import Hardware, JSONDatabase, Trial, TuningRecord

SHARE = 1.2  # of the suite's budget, each


def worse(data: bytes, others: list[bytes], seed: int) -> bytes:
    """What a disk or a hand does: small damage, pages that change places or are lost, a tail or a head of another."""
    rng = np.random.default_rng(seed)
    out, kind = bytearray(data), seed % 5
    page = int(rng.choice([8, 64, 512, 4096]))
    a, b = (int(rng.integers(max(1, len(out) // page))) * page for _ in range(2))
    if kind == 0:
        out[a : a + page], out[b : b + page] = data[b : b + page], data[a : a + page]
    elif kind == 1:
        out[a : a + page] = bytes(len(out[a : a + page]))
    elif kind == 2:
        out = out[: int(rng.integers(len(out) + 1))]
    elif kind == 3:
        other = others[int(rng.integers(len(others)))]
        out = out[:a] + bytearray(other[a:])
    else:
        return damage(data, np.random.default_rng(seed))
    return bytes(out)


def test_entries_of_kernels(tmp_path):
    store = Cache(tmp_path / "c")
    payloads = {f"k{i}": np.random.default_rng(i).bytes(100 + 3000 * i) for i in range(4)}
    for k, value in payloads.items():
        store.put(k, value)
    good = {k: store._file(k).read_bytes() for k in payloads}
    for seed in budget.seeds(SHARE):
        k = f"k{seed % 4}"
        bad = worse(good[k], list(good.values()), seed // 4)
        store._file(k).write_bytes(bad)
        assert store.get(k) == (payloads[k] if bad == good[k] else None), f"seed {seed}"
        store.put(k, payloads[k])


def test_stored_models(tmp_path):
    path = tmp_path / "m"
    some = [CONSTANTS[i] for i in (0, 2, 4, 5, 6, 7, 10)]
    good = []
    for i in (1, 2):
        write_model(path, executable(some * i), {"files": {}}, f"k{i}")
        good.append(path.read_bytes())
    for seed in budget.seeds(SHARE):
        bad = worse(good[seed % 2], good, seed // 2)
        path.write_bytes(bad)
        try:
            found = read_model(path, key=f"k{seed % 2 + 1}")
        except error.ExecutableError:
            assert bad != good[seed % 2]
            continue
        assert bad == good[seed % 2], f"seed {seed}: damage was not found"
        assert len(values(found.executable, len(some))) == len(some)


@pytest.mark.filterwarnings("ignore")
def test_tuning_files(tmp_path):
    path = tmp_path / "t.json"
    here = Hardware.of(target.Target("llvm"))
    database = JSONDatabase(path)
    for i in range(5):
        trials = [Trial({"tile": [i, 4]}, 0.5, "confirmed", "m"), Trial({"tile": [1, i]}, None, "crashed")]
        database.commit(TuningRecord(f"w{i}", here, f"n{i}", "s", 10.0 + i, trials))
    database.save()
    good, known = path.read_bytes(), {r.workload: r for r in database.get_all_tuning_records()}
    for seed in budget.seeds(SHARE):
        path.write_bytes(worse(good, [good], seed))
        for record in JSONDatabase(path).get_all_tuning_records():
            assert record.trials == [Trial(dict(t[0]), *t[1:]) for t in known[record.workload].trials], f"seed {seed}"
            assert record.best is not None


def test_tuning_files_of_wrong_content(tmp_path):
    """JSON that is right, and its sum too, but no record of ours."""
    path = tmp_path / "t.json"
    head = json.dumps({"format": "weft-tune", "version": 1})
    wrong = {"workload": "w", "name": [], "signature": 3, "default_us": "x"}
    wrong |= {"hardware": {"target": 1, "threads": "a", "weft": None}, "trials": [[[], "r", 3, 4]]}
    for entry in ({}, {"trials": 5}, {"workload": 1, "hardware": [], "trials": [[]]}, wrong):
        text = json.dumps(entry, sort_keys=True)
        line = json.dumps({**entry, "check": zlib.crc32(text.encode())}, sort_keys=True)
        for body in (line, "[" * 3000, "5", "null", '{"check": NaN}', "\x00"):
            path.write_text(f"{head}\n{body}\n" if body != "5" else body)
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                found = JSONDatabase(path)
            for r in found.get_all_tuning_records():
                assert r.best is None or r.best.ratio > 0, body
