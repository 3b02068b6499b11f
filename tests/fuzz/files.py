"""Damaged files of every kind that Weft reads: a WeftError or something that loads, at once.

Files are flipped, cut, spliced and, where their fields are known, changed field by field. A subject is a file:
``onnx:linear``, ``parameters``, ``cache``. Entries of caches must be read as they were written, or not at all.
"""

import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

import weft
from tests import onnx_models
from tests.fuzz import executables, relay_executables
from tests.fuzz.binary import EXPECTED, INTERESTING, damage, mutate_fields
from tests.fuzz.documents import DOCUMENTS, folder
from tests.fuzz.driver import Outcome
from tests.fuzz.graphs import Graph
from tests.fuzz.programs import bases
from tests.runtime.relay_programs import list_of
from weft import error, tune
from weft.runtime import cache, stored_model
from weft.runtime.relay_vm import Executable, VirtualMachine
from weft.target import Target

Change = Callable[[np.random.Generator], bytes]


class File(NamedTuple):
    """A file: its bytes, what reads it (and returns False where it takes damage for sound), and ways to change it."""

    data: bytes
    read: Callable[[bytes], Any]
    changes: tuple[Change, ...] = ()
    errors: tuple[type[BaseException], ...] = (error.WeftError,)


class Damaged:
    """One file."""

    complaints: tuple[Outcome, ...] = ()

    def __init__(self, file: File) -> None:
        self.file = file

    def draw(self, rng: np.random.Generator) -> bytes:
        """The file with some damage, by its fields as often as not."""
        data = self.file.data
        if self.file.changes and rng.random() < 0.6:
            return self.file.changes[int(rng.integers(len(self.file.changes)))](rng)
        if rng.random() < 0.1:  # the head of the file and a tail of it
            at, other = (int(x) for x in rng.integers(0, len(data), 2))
            return data[:at] + data[other:]
        return damage(data, rng)

    def check(self, data: bytes) -> Outcome:
        try:
            sound = self.file.read(data)
        except self.file.errors as e:
            if error.is_defect(e):
                return Outcome("foreign error", f"InternalError: {e}")
            return Outcome("rejected" if str(e) else "an error without words", type(e).__name__)
        except Exception as e:
            return Outcome("foreign error", f"{type(e).__name__}: {e}")
        return Outcome("damage taken for sound" if sound is False else "valid")

    def smaller(self, data: bytes) -> Iterator[bytes]:
        """Less damage: long stretches of the sound file put back."""
        sound = self.file.data
        if len(data) == len(sound):
            step = max(1, len(data) // 2)
            while step:
                for at in range(0, len(data), step):
                    if data[at : at + step] != sound[at : at + step]:
                        yield data[:at] + sound[at : at + step] + data[at + step :]
                step //= 2

    def show(self, data: bytes) -> str:
        sound = self.file.data
        if len(data) != len(sound):
            return f"{len(data)} bytes instead of {len(sound)}"
        changed = [i for i, (a, b) in enumerate(zip(data, sound, strict=True)) if a != b]
        return ", ".join(f"byte {i}: {sound[i]:02x} -> {data[i]:02x}" for i in changed[:8]) + " ..." * (
            len(changed) > 8
        )


# --- protobuf ---------------------------------------------------------------------------------------------------------


def messages(message: Message) -> Iterator[Message]:
    """A message and all inside it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner)


def mutate_message(message: Message, rng: np.random.Generator) -> None:
    """Change one field somewhere: drop it, repeat it, give it another's value or one of its own."""
    found = list(messages(message))
    target = found[int(rng.integers(len(found)))]
    if rng.random() < 0.15:
        fields = [f for f in target.DESCRIPTOR.fields if not f.is_repeated and f.type != FieldDescriptor.TYPE_MESSAGE]
    else:
        fields = [f for f, _ in target.ListFields()]
    if not fields:
        return
    field = fields[int(rng.integers(len(fields)))]
    name = field.name
    others = [m for m in found if m.DESCRIPTOR is target.DESCRIPTOR]
    other = others[int(rng.integers(len(others)))]
    kind = rng.random()
    if kind < 0.2:
        target.ClearField(name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        ours, theirs = getattr(target, name), getattr(other, name)
        if not field.is_repeated:
            ours.CopyFrom(type(theirs).FromString(theirs.SerializeToString()))
        elif len(ours):
            at = int(rng.integers(len(ours)))
            if kind < 0.5:
                del ours[at]
            else:
                ours.append(type(ours[at]).FromString(ours[at].SerializeToString()))
    elif field.is_repeated:
        values = list(getattr(other if kind < 0.5 else target, name))
        if values and kind > 0.5:
            at = int(rng.integers(len(values)))
            values[at] = scalar(field, values[at], rng)
            values += [values[at]] * int(rng.integers(0, 3))
        del getattr(target, name)[:]
        getattr(target, name).extend(values)
    else:
        setattr(target, name, getattr(other, name) if kind < 0.4 else scalar(field, getattr(target, name), rng))


def scalar(field: FieldDescriptor, old: Any, rng: np.random.Generator) -> Any:
    """Another value of a field that is no message."""
    if isinstance(old, str):
        return (old + "x", "", old[:-1], "é", "x" * 300)[int(rng.integers(5))]
    if isinstance(old, bytes):
        return damage(old, rng) if old else rng.bytes(4)
    if isinstance(old, float):
        return float((np.nan, np.inf, -1.0, 0.0, 1e30)[int(rng.integers(5))])
    if field.enum_type is not None:
        return int(rng.integers(0, 25))
    bits = 31 if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32) else 63
    new = old + int(rng.integers(-3, 4)) if rng.random() < 0.5 else INTERESTING[int(rng.integers(len(INTERESTING)))]
    return int(max(-(2**bits), min(new, 2**bits - 1)))


def onnx_file(model: onnx.ModelProto) -> File:
    """A model, which the importer reads."""
    data = model.SerializeToString()

    def by_field(rng: np.random.Generator) -> bytes:
        changed = onnx.load_from_string(data)
        for _ in range(int(rng.integers(1, 4))):
            try:
                mutate_message(changed, rng)
            except (ValueError, TypeError):  # a value that the format cannot hold
                continue
        return changed.SerializeToString()

    return File(data, weft.frontend.onnx.from_onnx, (by_field,))


class CallTooLong(BaseException):
    """A program went on without end, as many a mutated jump makes it, and an interrupt could stop it."""


def interrupted(call: Callable[[], object], seconds: float) -> None:
    """Run what may be a loop without end; that an interrupt stops it is all that is asked of it."""

    def stop(*_: object) -> None:
        raise CallTooLong

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    except CallTooLong:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# --- the other formats ------------------------------------------------------------------------------------------------


def executable_file(at: int) -> File:
    base = bases()[at]
    table = executables.fields(base.data)

    def read(data: bytes) -> None:
        loaded = weft.runtime.VMExecutable.from_bytes(data, base.imports)
        interrupted(lambda: weft.relax.VirtualMachine(loaded, weft.cpu())["main"](*base.args), 2.0)

    return File(base.data, read, (lambda rng: mutate_fields(base.data, table, rng),), EXPECTED)


def relay_file(make: Callable[[], Executable]) -> File:
    saved, lib = make().save()
    data, args = bytes(saved), (np.ones(5, np.float32), list_of([3, 4, 5]), np.int64(20))
    table = relay_executables.fields(data)
    words = [f for f in table if f[0] == "word"]  # most of what loads differs from the program in its words
    changes = tuple((lambda rng, of=of: mutate_fields(data, of, rng)) for of in (table, words))

    def read(bad: bytes) -> None:
        loaded = Executable.load_exec(bad, lib)
        assert loaded.bytecode
        interrupted(lambda: VirtualMachine(loaded, weft.cpu()).invoke("main", *args), 0.2)

    return File(data, read, changes, (*EXPECTED, ZeroDivisionError))


def parameters_file() -> File:
    arrays = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.zeros(0, np.int8), "s": np.array(2.5)}
    return File(bytes(weft.runtime.save_param_dict(arrays)), weft.runtime.load_param_dict)


def arrays_file(save: Callable[..., None]) -> File:
    path = folder() / "a.npz"
    save(path, x=np.arange(600.0).reshape(20, 30), names=np.array(["a", "bc"]))

    def read(data: bytes) -> None:
        path.write_bytes(data)
        weft.runtime.read_arrays(path)

    return File(path.read_bytes(), read)


def cache_file() -> File:
    """An entry of the cache on disk, which is given back as it was or not at all."""
    store, value = cache.Cache(folder()), np.random.default_rng(0).bytes(3000)
    store.put("key", value)
    (path,) = store.path.glob("??/*")

    def read(data: bytes) -> bool:
        path.write_bytes(data)
        return store.get("key") in (None, value)

    return File(path.read_bytes(), read)


def stored_file() -> File:
    """A compiled model in the cache."""
    path = folder() / "model"
    stored_model.write_model(path, weft.Session(onnx_models.linear()[0]).executable, {"a": 1})
    data = path.read_bytes()

    def read(bad: bytes) -> bool:
        path.write_bytes(bad)
        return stored_model.read_model(path) is None or bad == data

    return File(data, read)


def library_file(container: bool) -> File:
    """An exported library; what it loads is not run, for where its digest is lost its machine code may be anything."""
    path = folder() / "model.so"
    weft.Session(onnx_models.linear()[0]).executable.export_library(str(path), container=container)
    data = path.read_bytes()

    def read(bad: bytes) -> None:
        path.unlink()
        path.write_bytes(bad)
        weft.runtime.load_module(str(path))

    return File(data, read)


def tuning_file() -> File:
    """Records of the tuner: those that are read are as they were written."""
    path = folder() / "tuned.json"
    database = tune.JSONDatabase(path)
    for n in range(3):
        record = tune.TuningRecord(f"{n:016x}", tune.Hardware.of(Target("llvm")), "matmul", "f(x)", 12.5 + n)
        record.add(tune.Trial({"tile": [n, 4]}, 0.8, "confirmed", "m"))
        database.records[record.key] = record
    database.save()
    written = list(database.records.values())

    def read(data: bytes) -> bool:
        path.write_bytes(data)
        with warnings.catch_warnings(action="ignore"):
            return all(r in written for r in tune.JSONDatabase(path).records.values())

    return File(path.read_bytes(), read)


def document(name: str) -> File:
    data, read, change = DOCUMENTS[name]()
    return File(data, read, (change,))


FILES: dict[str, Callable[[], File]] = {
    **{f"document:{name}": lambda name=name: document(name) for name in DOCUMENTS},
    "onnx:linear": lambda: onnx_file(onnx_models.linear()[0]),
    **{f"onnx:graph {seed}": lambda seed=seed: onnx_file(Graph(seed, 14).model()) for seed in range(6)},
    **{f"executable:{at}": lambda at=at: executable_file(at) for at in range(5)},
    "relay:program": lambda: relay_file(relay_executables.program),
    "relay:compiled": lambda: relay_file(relay_executables.compiled),
    "parameters": parameters_file,
    "arrays": lambda: arrays_file(np.savez),
    "arrays:compressed": lambda: arrays_file(np.savez_compressed),
    "cache": cache_file,
    "stored model": stored_file,
    "tuning": tuning_file,
    "library:linked": lambda: library_file(container=False),
    "library:container": lambda: library_file(container=True),
}


class Files:
    """The suite of all files."""

    check_seconds = 5.0

    def subjects(self) -> list[str]:
        return list(FILES)

    def open(self, subject: str) -> Damaged:
        return Damaged(FILES[subject]())
