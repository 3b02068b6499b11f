"""Compiled models in the disk cache: a model that was compiled before is read, and nothing of the compiler is loaded.

A model that was not is compiled in a process of its own, so that this one never holds the compiler, LLVM and the
weights twice. The key (`compile_key`) is everything that decides the result. What cannot be a key (a target object, an
open database, operators or converters of the user), or what another process cannot know (a pass context with settings
or instruments), is compiled in this process, and not kept. ``WEFT_MODEL_CACHE=0`` switches it off.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import json
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from weft import environment
from weft.compile_key import SETTLED_NS as _SETTLED_NS
from weft.compile_key import brings_models, compile_key, is_plain, is_watched
from weft.error import ExecutableError, InvalidArgument, ScheduleWarning, WeftError
from weft.runtime import Module, VMExecutable, cache, file_identity, num_threads, open_regular, placed_module
from weft.runtime.jit import Recompilable
from weft.runtime.regular_file import CHUNK, in_shares
from weft.runtime.stored_model import read_model, write_model
from weft.runtime.worker import Process, WorkerCrashed, WorkerError

if TYPE_CHECKING:
    from weft.baseline import BaselineProgram

_LARGE = 16 << 20
"""Bytes of a file from which on its hash is kept with its times and place, as long as these do not change."""
_COMPILER = "weft.relax.vm_build"
_PROGRAM = "weft.compile_worker"

Progress = Callable[[str, int, int], None]


class Content(NamedTuple):
    """What a file held when it was looked at."""

    digest: str
    identity: str
    """Of `weft.runtime.file_identity`, before the content was read."""
    settled: bool
    """Whether the last change was long enough ago for any later one to show in `identity`."""


class Request(NamedTuple):
    """A model file and how to compile it."""

    path: Path
    content: Content
    options: dict[str, Any]
    """``target``, ``shape_dict``, ``dtype_dict``, ``opset``, ``tuned``, ``precision``: what JSON can hold."""
    key: str


def request_of(model: Any, options: Mapping[str, Any]) -> Request | None:
    """Return the request that stands for a model and options; None where the cache is not for it.

    Parameters
    ----------
    model : object
        What a session was given; only files are kept.
    options : mapping
        The session's other arguments; what a ``fallback`` runs is the process's own.
    """
    if not environment.MODEL_CACHE.read() or not isinstance(model, (str, os.PathLike)) or options.get("fallback"):
        return None
    made = {k: v for k, v in options.items() if k != "fallback"}
    if made["tuned"] is not None and not isinstance(made["tuned"], (str, os.PathLike)):
        return None
    if made["shape_dict"] is not None:
        made["shape_dict"] = {
            k: [d if isinstance(d, str) else int(d) for d in v] for k, v in made["shape_dict"].items()
        }
    if not is_plain() or brings_models() or is_watched():
        return None
    try:
        path = Path(model).absolute()
        if made["tuned"] is not None:
            made["tuned"] = str(Path(made["tuned"]).absolute())
        answers = [_content(Path(made["tuned"])), str(num_threads())] if made["tuned"] else []
        content = _look(path)
        key = compile_key("model", [content.digest, json.dumps(made, sort_keys=True)], made["target"], answers)
    except (TypeError, ValueError, OSError):  # no JSON; and what is wrong with a file the importer says better
        return None
    return None if key is None else Request(path, content, made, key)


def look_at_weights(folder: Path, files: Mapping[str, str]) -> dict[str, Content]:
    """Look at the files with weights beside a model, which are open.

    Parameters
    ----------
    folder : Path
        Of the model's file.
    files : mapping of str to str
        Their names there, with what they were when they were opened.

    Raises
    ------
    InvalidArgument
        When one was changed since.
    """
    found = {name: _look(folder / name) for name in files}
    for name, content in found.items():
        if content.identity != files[name]:
            raise _changed(folder / name)
    return found


def demand_unchanged(request: Request, weights: Mapping[str, Content] | None = None) -> None:
    """See to it that what was read since the request was made is what its key, and the note on its weights, stand for.

    Raises
    ------
    InvalidArgument
        When a file was written in between, and may be another model by now.
    """
    beside = {request.path.parent / name: content for name, content in (weights or {}).items()}
    for path, content in {request.path: request.content, **beside}.items():
        if not _holds(path, content):
            raise _changed(path)


def _holds(path: Path, content: Content) -> bool:
    """Whether a file is still as it was looked at, and was so all the time."""
    with suppress(OSError):
        if file_identity(path) == content.identity:
            return content.settled or _content(path) == content.digest
    return False


def _changed(path: Path) -> InvalidArgument:
    return InvalidArgument(
        "the model's file was changed while it was compiled",
        where=str(path),
        help="make the session again, of a file that stays as it is",
    )


def _content(path: Path) -> str:
    return _look(path).digest


def _look(path: Path) -> Content:
    """Hash a file, on all cores; no more than some chunks of it are in memory."""
    open_regular(path).close()  # a pipe has no content to be known by
    known_as, before = file_identity(path), path.stat()
    settled = _is_settled(before)
    memo = f"content\n{path.resolve()}\n{known_as}" if before.st_size >= _LARGE else None
    known = cache.get(memo) if memo is not None else None
    if known is not None:
        return Content(known.decode(), known_as, settled)

    def digests(part: range) -> bytes:
        chunk = memoryview(bytearray(CHUNK))
        return b"".join(hashlib.sha256(chunk[: os.preadv(file.fileno(), [chunk], at)]).digest() for at in part)

    with open_regular(path) as file:
        parts = in_shares(before.st_size, digests)
    found = hashlib.blake2b(parts + str(before.st_size).encode(), digest_size=32).hexdigest()
    if memo is not None and settled and file_identity(path) == known_as:
        cache.put(memo, found.encode())
    return Content(found, known_as, settled)


# ---- entries ---------------------------------------------------------------------------------------------------------


def find(request: Request) -> VMExecutable | None:
    """Return the executable of a model that was compiled before, or None."""
    store = cache.default_cache()
    file = store.open(request.key)
    if file is None:
        return None
    memo = _memo_of_entry(file.fileno())
    known = memo is not None and store.get(memo) is not None
    found = _read(store.path, request, store, file, known)
    if found is not None and memo is not None and not known:
        store.put(memo, b"")
    return found


def _memo_of_entry(file: int) -> str | None:
    """Name a large entry that was found sound: as it is, and since the system started, which may have lost writes."""
    with suppress(OSError):
        if os.fstat(file).st_size >= _LARGE and _is_settled(os.fstat(file)):
            return f"sound\n{file_identity(file)}\n{Path('/proc/sys/kernel/random/boot_id').read_text()}"
    return None


def _is_settled(status: os.stat_result) -> bool:
    return time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS


def _read(
    path: Path, request: Request, store: cache.Cache | None, opened: BinaryIO | None = None, is_sound: bool = False
) -> VMExecutable | None:
    name = cache.key_digest(request.key).hex()
    try:
        found = read_model(path, partial(_is_current, request.path.parent), key=name, opened=opened, is_sound=is_sound)
    except (ExecutableError, KeyError, TypeError):
        if store is not None:
            store.drop(request.key)
        return None
    except OSError:
        return None
    if found is None:
        return None
    for message in found.note["slow"]:  # whoever compiled it may have been another process
        warnings.warn(message, ScheduleWarning, stacklevel=5)
    found.executable.slow_kernels = tuple(found.note["slow"])
    hot = found.note["hot"]
    if hot is not None:
        kernels = _HotKernels(hot["module"], request.options["target"])
        found.executable.recompilable = {
            name: Recompilable([tuple(p) for p in places], kernels.compiler_of(name))
            for name, places in hot["places"].items()
        }
    return found.executable


def _is_current(folder: Path, note: Mapping[str, Any]) -> bool:
    """Whether the weights in files beside the model are those that it was compiled with."""
    with suppress(OSError):
        return all(_content(folder / name) == digest for name, digest in note["files"].items())
    return False


def write(path: Path, request: Request, executable: VMExecutable, weights: Mapping[str, Content], hot: Any) -> bool:
    """Write a compiled model beside its description.

    Parameters
    ----------
    path : Path
        Of the entry.
    request : Request
        What it is the answer to.
    executable : VMExecutable
        The compiled model; what was warned of when it was compiled is, whenever it is taken from the cache.
    weights : mapping of str to Content
        The files beside the model's that it has weights in, as `look_at_weights` found them.
    hot : object
        Its kernels of symbolic shapes, as ``relax.kernels_to_json`` writes them, or None.

    Returns
    -------
    bool
        Whether it can be written.

    Raises
    ------
    InvalidArgument
        When a file was changed since it was looked at.
    """
    note = {
        "files": {name: content.digest for name, content in weights.items()},
        "hot": hot,
        "slow": list(executable.slow_kernels),
    }
    written = write_model(path, executable, note, cache.key_digest(request.key).hex())
    demand_unchanged(request, weights)
    return written


def keep(request: Request, executable: VMExecutable, weights: Mapping[str, Content], hot: Any) -> None:
    """Keep a model that was compiled here; arguments and errors as of :func:`write`."""
    with cache.default_cache().new_entry(request.key) as path:
        if path is not None and not write(path, request, executable, weights, hot):
            path.unlink()


# ---- first answers ---------------------------------------------------------------------------------------------------


def baseline_program(request: Request) -> BaselineProgram | None:
    """Return what answers while a model is compiled in another process; None where nothing does.

    It computes in float32, on this machine, what the file says. ``WEFT_FIRST_ANSWER=0`` switches it off.
    """
    changed = [k for k, v in request.options.items() if v is not None and (k, v) != ("precision", "float32")]
    if not environment.FIRST_ANSWER.read() or not _compiles_apart() or changed not in ([], ["tuned"]):
        return None
    baseline = importlib.import_module("weft.baseline")  # a model in the cache needs none of it
    try:
        return baseline.BaselineProgram(request.path)
    except baseline.NotInBaseline:
        return None


# ---- compiling in another process ------------------------------------------------------------------------------------


def _compiles_apart() -> bool:
    """Whether a process of its own compiles: not where the compiler is in this one already."""
    return _COMPILER not in sys.modules and bool(sys.executable)


def compile_apart(request: Request, progress: Progress | None = None) -> VMExecutable | None:
    """Compile a model in a process of its own, and read what that leaves in the cache.

    Returns
    -------
    VMExecutable or None
        None where it is better done here: the compiler is in this process already, or the other process failed, and
        then this one says why.
    """
    if not _compiles_apart():
        return None
    store = cache.default_cache()
    import tempfile  # 3 ms, and a model that is in the cache needs none

    with tempfile.TemporaryDirectory(prefix="weft-model-") as folder, store.new_entry(request.key) as entry:
        path = entry if entry is not None else Path(folder) / "model"
        question = {
            "do": "model",
            "path": str(request.path),
            "content": list(request.content),
            "options": request.options,
            "key": request.key,
            "out": str(path),
        }
        worker = Process(_PROGRAM)
        try:
            done = worker.ask(question, None, progress)["done"]
        except (WorkerError, OSError):
            done = False
        finally:
            worker.stop()
        if not done:
            path.unlink(missing_ok=True)  # what is half there is not kept
            return None
        if threading.main_thread().is_alive():
            return _read(path, request, None)
    raise WeftError("the process ends; the model is in the cache")  # only a thread that nobody waits for hears of it


class _HotKernels:
    """Kernels of symbolic shapes of a stored model, to be compiled for shapes that stay hot by another process.

    Nobody waits for it, so it is idle: it takes the time that no other process of the machine wants.
    """

    def __init__(self, module: str, target: Any) -> None:
        self._module, self._target = module, target
        self._lock = threading.Lock()
        self._worker = Process(_PROGRAM, idle=True)
        self._closed = False
        _hot.add(self)

    def close(self) -> None:
        """Compile no more, not even what is being compiled."""
        self._closed = True
        self._worker.kill()

    def compiler_of(self, name: str) -> Callable[[Sequence[int]], tuple[Module, str]]:
        """Return what compiles one kernel for a shape."""
        return lambda shape: self._compile(name, shape)

    def _compile(self, name: str, shape: Sequence[int]) -> tuple[Module, str]:
        question = {"do": "kernel", "name": name, "shape": [int(n) for n in shape], "target": self._target}
        answer = None
        with self._lock:
            for _ in range(2):  # it may have ended since it was looked at
                if self._closed or answer is not None:
                    break
                with suppress(WorkerCrashed, OSError):
                    if not self._worker.is_alive:
                        self._worker.stop()
                        self._worker.ask({"do": "kernels", "module": self._module}, None)
                    answer = self._worker.ask(question, None)
        if answer is None:
            raise WeftError(f"the kernel {name} was not compiled for {list(shape)}")
        module = placed_module(answer["objects"], answer["names"])
        if module is None:
            raise WeftError(f"the kernel {name} cannot be placed")
        return module, name


_hot: weakref.WeakSet[_HotKernels] = weakref.WeakSet()


@atexit.register
def _end_hot() -> None:
    """End what compiles hot kernels before the thread that waits for it is joined, which was registered earlier."""
    for kernels in list(_hot):
        kernels.close()
