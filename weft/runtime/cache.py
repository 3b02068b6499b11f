"""A content-addressed cache on disk: bytes under the hash of a key, safe under concurrent writers.

An entry is one file ``<2 hex digits>/<hash>``: magic, BLAKE2b-256 of the key, BLAKE2b-256 of that and the payload,
payload. It is written beside and renamed, so a reader sees all of it or nothing. A damaged entry, or one under another
key's name, is deleted and is a miss. A directory that cannot be written, or a full disk, is one warning and never an
error. What is here is run: a directory or file of another user, or that others may write, is not used, and links are
not followed. The least recently read entries go when the bound is passed: a file ``size`` counts the bytes for all
processes, so that none has to look at each entry (33,000 of them take half a second).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from weft import environment

_MAGIC = b"WEFTC\x02\x00\x00"
_DIGEST = 32
_HEADER = len(_MAGIC) + 2 * _DIGEST
_LATELY = 3600.0
"""Seconds in which an entry is marked as read once: what is known of a file is known until its inode changes."""
_COUNT = 20
"""Digits of the file ``size``."""
_ENTRY = re.compile(r"[0-9a-f]{38}|\.tmp-.*")


class CacheStatistics(NamedTuple):
    """State of a cache: where, how much, and what this process did with it."""

    directory: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    writes: int
    damaged: int


def directory() -> Path:
    """``$WEFT_CACHE_DIR``, or ``weft`` under the user's cache directory; of a user without a home, a temporary one."""
    chosen, base = environment.CACHE_DIR.read(), os.environ.get("XDG_CACHE_HOME")
    if chosen is not None or base:
        return chosen or Path(str(base), "weft")
    with suppress(RuntimeError):  # no $HOME, and the system does not know the user: a container
        return Path("~/.cache/weft").expanduser()
    import tempfile  # as in `_written`

    return Path(tempfile.gettempdir(), f"weft-{os.geteuid()}")


class _NotOurs(PermissionError):
    """Others could have put there what this process would run."""


def _lock(descriptor: int) -> None:
    """Wait for other processes with a file, for a second: one that holds it may have been stopped."""
    import fcntl  # as in `_written`

    end = time.monotonic() + 1
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.002)
    return None


def _check_owner(descriptor: int, path: Path) -> None:
    """Refuse what belongs to another user or may be written by others, and files that are none."""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise _NotOurs(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}; "
            "name a directory of your own in WEFT_CACHE_DIR"
        )
    if status.st_mode & 0o022:
        raise _NotOurs(
            f"others may write {path} (mode {stat.S_IMODE(status.st_mode):04o}); delete it, or, if "
            f"nobody else did, say 'chmod -R go-w {path}'"
        )
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{path} is no file")


def key_digest(key: bytes | str) -> bytes:
    """Hash a key, as its entry carries it."""
    return hashlib.blake2b(key.encode() if isinstance(key, str) else key, digest_size=_DIGEST).digest()


def _header(key: bytes | str, value: bytes) -> bytes:
    start = key_digest(key)
    digest = hashlib.blake2b(start, digest_size=_DIGEST)
    digest.update(value)
    return _MAGIC + start + digest.digest()


class Cache:
    """A cache in one directory.

    Parameters
    ----------
    path : path, optional
        The directory; made at the first write. `directory` by default.
    limit : int, optional
        Bytes to keep at most; ``$WEFT_CACHE_LIMIT`` or 4 GiB by default.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: int | None = None) -> None:
        self.path = Path(path) if path is not None else directory()
        self.limit = environment.CACHE_LIMIT.read() if limit is None else limit
        self._lock = threading.Lock()
        self._warned = False
        self.hits = self.misses = self.writes = self.damaged = 0

    def _file(self, key: bytes | str) -> Path:
        name = key_digest(key).hex()
        return self.path / name[:2] / name[2:40]

    def get(self, key: bytes | str) -> bytes | None:
        """The value of a key, or None."""
        file = self.open(key)
        if file is None:
            return None
        try:
            with file:
                content = file.read()
        except OSError:
            content = b""
        if content[:_HEADER] != _header(key, content[_HEADER:]):
            self.hits -= 1
            self.misses += 1
            self.drop(key)
            return None
        return content[_HEADER:]

    def put(self, key: bytes | str, value: bytes) -> bool:
        """Store a value; False (after one warning in the process) when the directory cannot take it."""
        if _HEADER + len(value) > self.limit:
            return False
        try:
            with self._written(self._file(key)) as path, path.open("wb") as out:
                out.write(_header(key, value))
                out.write(value)
        except OSError as e:
            self._warn(e)
            return False
        return True

    def open(self, key: bytes | str) -> BinaryIO | None:
        """Open the file of an entry, or return None; whoever reads it checks what is in it."""
        path = self._file(key)
        opened: list[int] = []
        try:
            for name, flags in ((self.path, os.O_DIRECTORY), (path.parent.name, os.O_DIRECTORY), (path.name, 0)):
                links = os.O_NOFOLLOW if opened else 0  # where the cache is, the user says, by a link or not
                at = opened[-1] if opened else None
                opened.append(os.open(name, os.O_RDONLY | os.O_NONBLOCK | flags | links, dir_fd=at))
                _check_owner(opened[-1], Path(name) if at is None else path.parent if flags else path)
            with suppress(OSError):
                if abs(time.time() - os.fstat(opened[-1]).st_mtime) > _LATELY:
                    os.utime(opened[-1])
            self.hits += 1
            return os.fdopen(opened.pop(), "rb")
        except OSError as e:
            self.misses += 1
            if isinstance(e, _NotOurs):
                self._warn(e)
            elif e.errno == errno.ELOOP:  # a link
                self.drop(key)
            return None
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def drop(self, key: bytes | str) -> None:
        """Delete an entry that is damaged."""
        self.damaged += 1
        with suppress(OSError):
            self._file(key).unlink()

    @contextmanager
    def new_entry(self, key: bytes | str) -> Generator[Path | None]:
        """Give the name of a file to write, which becomes the entry at the end if it is there and not empty.

        None (after one warning in the process) where the directory cannot be written. Errors of writing are such a
        warning, too.
        """
        given = False
        try:
            with self._written(self._file(key)) as path:
                given = True
                yield path
        except OSError as e:
            self._warn(e)
        if not given:
            yield None

    @contextmanager
    def _written(self, file: Path) -> Generator[Path]:
        """Give a name beside an entry's file; what is there at the end becomes the entry, unless it is too large."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for folder, links in ((self.path, 0), (file.parent, os.O_NOFOLLOW)):
            folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | links)
            try:
                _check_owner(descriptor, folder)
            finally:
                os.close(descriptor)
        import tempfile  # 3 ms, and a model that is in the cache needs none

        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".tmp-", delete=False) as out:
            temporary = Path(out.name)
        try:
            yield temporary
            size = temporary.stat().st_size if temporary.exists() else 0
            if 0 < size <= self.limit:
                temporary.replace(file)
                self.writes += 1
                self._account(size)
        finally:
            temporary.unlink(missing_ok=True)

    def _warn(self, error: OSError) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            what, then = "cannot be written, compiled code is not kept", "; name another directory in WEFT_CACHE_DIR"
            what, then = ("is not used", "") if isinstance(error, _NotOurs) else (what, then)
            warnings.warn(f"the cache in {self.path} {what}: {error}{then}", stacklevel=4)

    def _account(self, size: int) -> None:
        def added(counted: int | None) -> int:
            return sum(s for _, s, _ in self._scan()) if counted is None else counted + size

        if self._count(added) > self.limit:
            self.evict()

    def _count(self, change: Callable[[int | None], int]) -> int:
        """Change the bytes that the file ``size`` says are here, which are None where it says nothing."""
        counter = os.open(self.path / "size", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            _check_owner(counter, self.path / "size")
            with suppress(OSError):  # a file system without locks: the count is off by what is written at once
                _lock(counter)
            said = os.pread(counter, _COUNT + 1, 0)
            counted = change(int(said) if len(said) == _COUNT and said.isdigit() else None)
            os.ftruncate(counter, _COUNT)
            os.pwrite(counter, b"%0*d" % (_COUNT, counted), 0)
        finally:
            os.close(counter)
        return counted

    def _scan(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, file) of each entry."""
        found: list[tuple[float, int, Path]] = []
        latest = time.time() + _LATELY
        try:
            named = [e for e in os.scandir(self.path) if re.fullmatch("[0-9a-f]{2}", e.name)]
            folders = [e.path for e in named if e.is_dir(follow_symlinks=False)]
        except OSError:
            return found
        for folder in folders:
            with suppress(OSError):
                for entry in os.scandir(folder):
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if _ENTRY.fullmatch(entry.name) and not stat.S_ISDIR(status.st_mode):
                            used = status.st_mtime if status.st_mtime < latest else 0.0  # clocks go back
                            found.append((used, status.st_size, Path(entry.path)))
        return found

    def evict(self) -> None:
        """Delete the least recently used entries until three quarters of the bound are used, and stale leftovers."""
        self._count(lambda _: self._evict())

    def _evict(self) -> int:
        entries = sorted(self._scan())
        total = sum(size for _, size, _ in entries)
        now = time.time()
        for used, size, file in entries:
            if now - used > _LATELY if file.name.startswith(".tmp-") else total > self.limit * 3 // 4:
                with suppress(OSError):
                    file.unlink()
                    total -= size
        return total

    def clear(self) -> int:
        """Delete all entries; returns how many."""
        count = 0
        for _, _, file in self._scan():
            with suppress(OSError):
                file.unlink()
                count += 1
        with suppress(OSError):
            (self.path / "size").unlink()
        return count

    def statistics(self) -> CacheStatistics:
        """State of the directory and counts of this process."""
        sizes = [size for _, size, file in self._scan() if not file.name.startswith(".tmp-")]
        counts = (self.limit, self.hits, self.misses, self.writes, self.damaged)
        return CacheStatistics(str(self.path), len(sizes), sum(sizes), *counts)


_default: dict[Path, Cache] = {}


def default_cache() -> Cache:
    """The cache in `directory`, one object as long as that does not change."""
    path = directory()
    return _default.get(path) or _default.setdefault(path, Cache(path))


def get(key: bytes | str) -> bytes | None:
    """The value of a key in the default cache, or None."""
    return default_cache().get(key)


def put(key: bytes | str, value: bytes) -> bool:
    """Store a value in the default cache."""
    return default_cache().put(key, value)


def clear() -> int:
    """Delete all entries of the default cache; returns how many."""
    return default_cache().clear()


def statistics() -> CacheStatistics:
    """State of the default cache."""
    return default_cache().statistics()
