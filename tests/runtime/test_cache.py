import fcntl
import os
import stat
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest

from tests.threads import at_once
from weft.runtime import cache
from weft.runtime.cache import Cache


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "c")


def files(store):
    return [p for p in store.path.rglob("*") if p.is_file() and p.name != "size"]


def test_put_get(store):
    assert store.get("k") is None
    assert store.put("k", b"value")
    assert store.get("k") == b"value"
    assert store.get(b"k") == b"value"
    assert store.put("k", b"other")
    assert store.get("k") == b"other"
    assert store.put("empty", b"")
    assert store.get("empty") == b""
    s = store.statistics()
    assert (s.entries, s.hits, s.misses, s.writes, s.damaged) == (2, 4, 1, 3, 0)


def flip(data):
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d + b"x", flip, lambda d: b"\0" + d[1:]])
def test_damaged_entry_is_deleted_and_missed(store, damage):
    store.put("k", bytes(range(100)))
    (file,) = files(store)
    file.write_bytes(damage(file.read_bytes()))
    assert store.get("k") is None
    assert files(store) == []
    assert store.statistics().damaged == 1
    store.put("k", b"again")
    assert store.get("k") == b"again"


def test_directory_that_cannot_be_written_warns_once(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    store = Cache(blocker / "c")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("k", b"v") is False
    with warnings.catch_warnings(action="error"):
        assert store.put("k", b"v") is False
    assert store.get("k") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_read_only_directory(tmp_path):
    store = Cache(tmp_path / "c")
    store.put("k", b"v")
    for p in [store.path, *store.path.rglob("*")]:
        p.chmod(p.stat().st_mode & ~stat.S_IWUSR)
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("other", b"v") is False
    assert store.get("k") == b"v"


def test_full_disk(store, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert store.put("k", b"v") is False


@pytest.mark.parametrize("ago", [1000, 5000, -400 * 86400])
def test_least_recently_used_goes_first(tmp_path, ago):
    """Also where entries are of a clock that was ahead of today's."""
    store = Cache(tmp_path, limit=10_000)
    for i in range(8):
        store.put(f"k{i}", bytes(1000))
    old = time.time() - ago
    for f in files(store):
        os.utime(f, (old, old))
    assert store.get("k3") is not None
    store.put("new", bytes(3000))
    assert store.statistics().bytes <= 10_000
    assert store.get("k3") is not None
    assert store.get("new") is not None
    assert sum(store.get(f"k{i}") is not None for i in range(8)) < 8


def test_the_bound_holds_for_all_processes_together(tmp_path):
    """None of which looks at what the others have written."""
    stores = [Cache(tmp_path, limit=10_000) for _ in range(4)]
    for i in range(40):
        assert stores[i % 4].put(f"k{i}", bytes(500))
        assert stores[0].statistics().bytes <= 10_000


def test_a_process_does_not_look_at_what_is_there_already(store, monkeypatch):
    for i in range(20):
        store.put(f"k{i}", bytes(i))
    monkeypatch.setattr(Cache, "_scan", lambda _: pytest.fail("each entry is looked at"))
    assert Cache(store.path).put("new", b"v")


def test_writers_at_once_are_all_counted(store):
    store.put("first", b"")
    at_once(lambda i: [Cache(store.path).put(f"{i}, {j}", bytes(j)) for j in range(50)], 4)
    assert int((store.path / "size").read_text()) == sum(f.stat().st_size for f in files(store))


def test_a_process_that_is_stopped_holds_up_no_other(store):
    store.put("first", b"")
    with (store.path / "size").open("rb") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        other = threading.Thread(target=store.put, args=("second", b"v"), daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive()
    assert store.get("second") == b"v"


@pytest.mark.parametrize("said", [b"", b"12", b"-0000000000000000001", b"9" * 5000, bytes(20), None])
def test_a_damaged_count_is_made_anew(store, said):
    store.put("k", bytes(1000))
    if said is None:
        (store.path / "size").unlink()
    else:
        (store.path / "size").write_bytes(said)
    assert store.put("other", bytes(1000))
    assert int((store.path / "size").read_text()) == sum(f.stat().st_size for f in files(store))


def test_a_count_that_is_a_link_is_not_written(store, tmp_path):
    store.put("k", b"v")
    (store.path / "size").unlink()
    (tmp_path / "mine").write_text("precious")
    (store.path / "size").symlink_to(tmp_path / "mine")
    with pytest.warns(UserWarning, match="cannot be written"):
        store.put("other", b"v")
    assert (tmp_path / "mine").read_text() == "precious"


def test_value_above_the_bound_is_not_kept(tmp_path):
    store = Cache(tmp_path, limit=1000)
    assert store.put("k", bytes(2000)) is False
    assert store.statistics().entries == 0


def test_concurrent_writers(store):
    values = [bytes([i]) * 50_000 for i in range(4)]
    bad = []

    def work(i):
        for _ in range(30):
            store.put("k", values[i])
            if store.get("k") not in values:
                bad.append(i)

    at_once(work, 4)
    assert bad == []
    assert store.damaged == 0


def test_clear(store):
    for i in range(5):
        store.put(str(i), b"v")
    assert store.clear() == 5
    assert store.get("0") is None
    assert store.statistics().entries == 0


def test_default_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "a"))
    assert cache.put("k", b"v")
    assert cache.get("k") == b"v"
    assert cache.statistics().directory == str(tmp_path / "a")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "b"))
    assert cache.get("k") is None
    monkeypatch.delenv("WEFT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache.directory() == tmp_path / "x" / "weft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)  # as in a container whose user nobody has declared
    assert cache.directory() == Path(tempfile.gettempdir(), f"weft-{os.geteuid()}")


def refused(store, match):
    store._warned = False
    with pytest.warns(UserWarning, match=match):
        assert store.get("k") is None
    store._warned = False
    with pytest.warns(UserWarning, match=match):
        assert store.put("k", b"other") is False


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_what_others_may_write_is_not_used(store, mode):
    store.put("k", b"v")
    (file,) = files(store)
    for path in (store.path, file.parent):
        path.chmod(mode)
        refused(store, f"others may write {path} .*chmod")
        path.chmod(0o700)
    file.chmod(0o666)
    with pytest.warns(UserWarning, match="others may write"):
        assert Cache(store.path).get("k") is None
    file.chmod(0o600)
    assert store.get("k") == b"v"


def test_what_belongs_to_another_user_is_not_used(store, monkeypatch):
    store.put("k", b"v")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    refused(store, "belongs to user .* runs as user 12345.*WEFT_CACHE_DIR")


def test_everything_is_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        store = Cache(tmp_path / "new")
        store.put("k", b"v")
    finally:
        os.umask(before)
    for path in (store.path, *store.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_links_are_not_followed(store, tmp_path):
    store.put("k", b"v")
    (file,) = files(store)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert store.get("k") is None and not file.is_symlink() and elsewhere.exists()
    store.put("k", b"v")
    folder = tmp_path / "folder"
    file.parent.rename(folder)
    file.parent.symlink_to(folder)
    assert store.get("k") is None and Cache(tmp_path / ("x" * 300)).get("k") is None
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("k", b"other") is False
    assert store.clear() == 0 and (folder / file.name).exists()


def test_an_entry_under_another_name_is_no_hit(store):
    store.put("a", b"of a")
    (of_a,) = files(store)
    store.put("b", b"of b")
    of_b = store._file("b")
    of_b.write_bytes(of_a.read_bytes())
    assert store.get("b") is None and not of_b.exists()
    assert store.get("a") == b"of a" and store.damaged == 1


@pytest.mark.parametrize("put_there", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_a_miss(store, put_there):
    store.put("k", b"v")
    (file,) = files(store)
    file.unlink()
    put_there(file)
    assert store.get("k") is None


def test_only_entries_are_cleared(store):
    store.put("k", b"v")
    for name in ("ab/notes.txt", "abc/0123", "xy/" + "0" * 38):
        (store.path / name).parent.mkdir(exist_ok=True)
        (store.path / name).write_text("mine")
    assert store.clear() == 1
    assert len(files(store)) == 3
