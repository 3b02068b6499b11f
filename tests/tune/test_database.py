"""Tuning databases: what is written is read, what is damaged is left out and told, nothing is lost."""

import errno
import json
import os
import subprocess
import sys
import warnings

import pytest

from tests import clock
from tests.refusals import refuses
from weft.error import InvalidArgument
from weft.tune import Database, DatabaseError, Hardware, JSONDatabase, Trial, TuningRecord, open_database

HERE = Hardware("llvm -mattr=+avx2,+fma", 2, "0.1.0")
THERE = Hardware("llvm -mattr=+neon", 4, "0.0.9")


def record(workload="a", hardware=HERE, ratio=0.5, **decisions):
    trials = [Trial(decisions or {"b.tile": [6, 4]}, ratio, "confirmed"), Trial({"b.steps": 8}, 1.5, "measured")]
    return TuningRecord(workload, hardware, "matmul", "s", 12.5, trials)


def saved(path, *records):
    database = JSONDatabase(path)
    for r in records:
        database.commit(r)
    database.save()
    return database


def test_what_is_saved_is_read(tmp_path):
    saved(tmp_path / "t.json", record("a"), record("b"), record("a", THERE))
    again = JSONDatabase(tmp_path / "t.json")
    assert again.records == {r.key: r for r in (record("a"), record("b"), record("a", THERE))}
    assert again.query("a", HERE).best.decisions == {"b.tile": [6, 4]}
    assert again.query("a", HERE).gain == 2.0
    assert again.query("c", HERE) is None
    assert os.listdir(tmp_path) == ["t.json"]  # nothing is left beside it


def test_a_record_stays_the_same_object_when_it_is_saved(tmp_path):
    database = saved(tmp_path / "t.json", record("a"))
    mine = database.query("a", HERE)
    database.save()
    mine.add(Trial({"late": 1}, 2.0, "measured"))
    database.save()
    assert JSONDatabase(tmp_path / "t.json").query("a", HERE).trials == mine.trials


def test_only_confirmed_trials_are_best():
    r = TuningRecord("a", HERE, trials=[Trial({"x": 1}, 0.4, "measured"), Trial({"x": 2}, None, "hung")])
    assert r.best is None and r.gain == 1.0
    r.add(Trial({"x": 2}, 0.9, "confirmed"))
    assert r.best == Trial({"x": 2}, 0.9, "confirmed") and len(r.trials) == 2


def test_a_file_that_is_cut_off_gives_its_whole_lines(tmp_path):
    path = tmp_path / "t.json"
    saved(path, record("a"), record("b"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(RuntimeWarning, match=r"damaged: left out 1 records \(line 3\)"):
        found = JSONDatabase(path)
    assert set(found.records) == {record("a").key}


def test_every_altered_byte_is_found(tmp_path):
    path = tmp_path / "t.json"
    saved(path, record("a"))
    content = path.read_bytes()
    start = content.index(b"\n") + 1
    for at in range(start, len(content) - 1, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert JSONDatabase(path).records in ({}, {record("a").key: record("a")}), at
            assert told or JSONDatabase(path).records


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x7fELF\x02\x01\x01\x00 not text \xff\xfe", "not the header"),
        (b'{"some": "json"}\n', "not the header"),
        (b'{"format": "weft-tune", "version": 99}\n{}\n', "version 99, this Weft reads version 1"),
    ],
)
def test_a_foreign_file_is_told_and_never_overwritten(tmp_path, content, why):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=why):
        database = JSONDatabase(path)
    assert len(database) == 0
    database.commit(record("a"))
    refuses(DatabaseError, "left as it is", database.save)
    assert path.read_bytes() == content


def test_another_machines_records_are_told_once_and_kept(tmp_path):
    path = tmp_path / "t.json"
    saved(path, record("a", THERE))
    database = JSONDatabase(path)
    with pytest.warns(RuntimeWarning, match=r"(?s)nothing for this machine.*4 threads, here 2.*0\.0\.9.*with \+neon"):
        assert not database.check_hardware(HERE)
    with warnings.catch_warnings(action="error"):
        assert not database.check_hardware(HERE)
        assert database.check_hardware(THERE)
    database.commit(record("a", HERE))
    database.save()
    assert set(JSONDatabase(path).records) == {record("a", THERE).key, record("a", HERE).key}


def test_two_tuners_of_one_file_keep_each_others_records(tmp_path):
    path = tmp_path / "t.json"
    one, two = JSONDatabase(path), JSONDatabase(path)
    one.commit(record("a"))
    two.commit(record("a", ratio=0.25, other=1))
    two.commit(record("b"))
    one.save()
    two.save()
    found = JSONDatabase(path)
    assert set(found.records) == {record("a").key, record("b").key}
    assert found.query("a", HERE).best.ratio == 0.25
    assert {json.dumps(t.decisions) for t in found.query("a", HERE).trials} >= {'{"b.tile": [6, 4]}', '{"other": 1}'}


WRITER = """
import sys
from tests.tune.test_database import JSONDatabase, record
for i in range(8):
    database = JSONDatabase(sys.argv[1])
    database.commit(record(f"{sys.argv[2]}{i}"))
    database.save()
"""


def test_processes_that_save_at_the_same_time_lose_nothing(tmp_path):
    path = str(tmp_path / "t.json")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name]) for name in "xyz"]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    assert {w for w, _ in JSONDatabase(path).records} == {f"{n}{i}" for n in "xyz" for i in range(8)}


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    saved(path, record("a"))
    before = path.read_bytes()
    database = JSONDatabase(path)
    database.commit(record("b"))

    def full(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in str(refuses(DatabaseError, "the file is as it was", database.save))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["t.json"]


SHORT = """
import resource, sys
from tests.tune.test_database import DatabaseError, JSONDatabase, record
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
database = JSONDatabase(sys.argv[1])
for i in range(9):
    database.commit(record(str(i)))
try:
    database.save()
except DatabaseError as e:
    print(e)
"""


def test_a_write_that_stops_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "t.json"
    saved(path, record("a"))
    before = path.read_bytes()
    told = clock.run([sys.executable, "-c", SHORT, path])
    assert "the file is as it was" in told.stdout, told
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["t.json"]


def test_a_folder_that_is_not_there(tmp_path):
    refuses(DatabaseError, "cannot write", saved, tmp_path / "no" / "t.json", record("a"))


def test_databases_by_what_users_give(tmp_path):
    database = Database()
    assert open_database(database) is database and open_database(None) is None
    refuses(InvalidArgument, "no such tuning database", open_database, tmp_path / "no.json")
    refuses(InvalidArgument, "not a tuning database", open_database, 3)
    with database:
        assert Database.current() is database
    assert Database.current() is None
