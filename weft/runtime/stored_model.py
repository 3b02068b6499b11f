"""Compiled models on disk, as a cache keeps them: the executable, its machine code, its weights and a note.

A file is read, not mapped: weights come into memory of their own in large pages, which a product that streams them
reads a tenth faster, and no page of the file stays resident. Layout: magic, u64 bytes of the header, the header (JSON),
machine code, zeros up to a cache line, weights (each on a cache line), and a digest: BLAKE2b of all before the weights
and of the SHA-256 of each MiB of weights, which is taken where the bytes have come to lie, on all cores. SHA-256 is an
instruction of today's processors: 1.4 GB/s on a core where BLAKE2b makes 0.7.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import tvm_ffi

from weft import error, runtime
from weft.runtime.bytecode import VMFuncInfo
from weft.runtime.executable import VMExecutable, dtype_constant, shape_constant
from weft.runtime.loading import placed_module
from weft.runtime.module import Module, object_code
from weft.runtime.regular_file import CHUNK, open_regular, read_parts
from weft.runtime.tensor import Tensor, from_dlpack
from weft.runtime.weight_file import release

_MAGIC = b"WEFTM\x02\x00\x00"
_LINE = 64
_PIECE = 16 << 20
_DIGEST = 32
_HUGE_PAGE = 2 << 20

_view = tvm_ffi.get_global_func("weft.tensor_view")


class StoredModel(NamedTuple):
    """What a file holds."""

    executable: VMExecutable
    note: Any
    """What the writer of the file gave: anything that JSON can hold."""


def write_model(path: Path, executable: VMExecutable, note: object, key: str = "") -> bool:
    """Write a compiled model.

    Parameters
    ----------
    path : Path
        The file, which is replaced.
    executable : VMExecutable
        The model.
    note : object
        Anything that JSON can hold, to come back with the model.
    key : str
        Names the model: who reads it as another one finds it damaged.

    Returns
    -------
    bool
        False where the executable needs what a file cannot hold, such as modules that are not machine code.
    """
    code = executable.imports
    if len(code) > 1 or any(m.kind != "weft.jit" or m.imports for m in code):
        return False
    objects, names = object_code(code[0]) if code else ([], [])
    if names and not objects:
        return False
    weights: list[np.ndarray[Any, Any]] = []
    constants = [_describe(c, weights) for c in executable.constants]
    if None in constants:
        return False
    header = {
        "functions": executable.functions,
        "scopes": executable.memory_scopes,
        "constants": constants,
        "offsets": executable.instr_offset.tolist(),
        "words": executable.instr_data.tolist(),
        "names": names,
        "objects": [len(o) for o in objects],
        "weights": sum(_up(w.nbytes) for w in weights),
        "note": note,
        "key": key,
        "places": executable.places,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    head = _MAGIC + struct.pack("<Q", len(text)) + text + b"".join(objects)
    head += bytes(_up(len(head)) - len(head))
    with path.open("wb") as file:
        file.write(head)
        digests, chunk, room = [], hashlib.sha256(), CHUNK
        for piece in _pieces(weights):
            file.write(piece)
            while len(piece) >= room:
                chunk.update(piece[:room])
                digests.append(chunk.digest())
                piece, chunk, room = piece[room:], hashlib.sha256(), CHUNK
            chunk.update(piece)
            room -= len(piece)
        file.write(_digest(head, b"".join([*digests, chunk.digest()] if room < CHUNK else digests)))
    return True


def _pieces(weights: Sequence[np.ndarray[Any, Any]]) -> Generator[memoryview]:
    """The bytes of weights, each up to a cache line; of files that they lie in, no more than a piece is in memory."""
    for w in weights:
        for at in range(0, len(w), CHUNK):
            yield w[at : at + CHUNK].data
            if at % _PIECE == 0:
                release()
        yield memoryview(bytes(_up(w.nbytes) - w.nbytes))


def _describe(constant: Any, weights: list[np.ndarray[Any, Any]]) -> list[Any] | None:
    """How the header names a constant; the bytes of tensors go to `weights`. None for what a file cannot hold."""
    if isinstance(constant, Tensor):
        bits = tvm_ffi.dtype(str(constant.dtype)).bits * tvm_ffi.dtype(str(constant.dtype)).lanes
        if bits % 8:
            return None
        count = prod(constant.shape) * bits // 8
        raw = np.from_dlpack(_view(constant, (count,), "uint8", 0)) if count else np.empty(0, np.uint8)
        weights.append(raw)
        return ["tensor", str(constant.dtype), list(constant.shape), count]
    if isinstance(constant, tvm_ffi.Shape):
        return ["shape", [int(d) for d in constant]]
    if isinstance(constant, tvm_ffi.dtype):
        return ["dtype", str(constant)]
    if isinstance(constant, (str, int, float)):
        return ["value", constant]
    return None


def read_model(
    path: Path,
    accept: Callable[[Any], bool] = lambda note: True,
    load: Callable[..., Module] | None = None,
    *,
    key: str = "",
    opened: BinaryIO | None = None,
    is_sound: bool = False,
) -> StoredModel | None:
    """Read a compiled model.

    Parameters
    ----------
    path : Path
        The file.
    accept : callable
        From the note to whether the model is wanted; weights are read only if it is.
    load : callable, optional
        ``load(objects, names)``: makes a module of objects that the runtime cannot place by itself; by default the
        compiler that is loaded does.
    key : str
        What the model was written as.
    opened : file, optional
        The file, where it is open; it is closed.
    is_sound : bool
        Whether its weights were compared with their digests since it was written last.

    Returns
    -------
    StoredModel or None
        None where it is not accepted.

    Raises
    ------
    ExecutableError
        When the file is damaged.
    OSError
        When it cannot be read.
    """
    with opened or open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(len(_MAGIC) + 8)
        n = struct.unpack_from("<Q", start, 8)[0] if len(start) == 16 and start.startswith(_MAGIC) else size
        if n > size - 16:
            raise _damaged(path)
        text = file.read(n)
        try:
            header = json.loads(text)
            objects = [file.read(int(k)) for k in header["objects"]]
            head = b"".join([start, text, *objects])
            head += file.read(_up(len(head)) - len(head))
            weights = int(header["weights"])
            if size != len(head) + weights + _DIGEST or header["key"] != key:
                raise _damaged(path)
            if not accept(header["note"]):
                return None
            memory = _large_pages(weights)
            look = None if is_sound else lambda chunk: hashlib.sha256(chunk).digest()
            digests = read_parts(file.fileno(), memory.data, len(head), look)
            if not is_sound and os.pread(file.fileno(), _DIGEST, size - _DIGEST) != _digest(head, digests):
                raise _damaged(path)
            return StoredModel(_executable(header, objects, memory, path, load), header["note"])
        except (ValueError, LookupError, TypeError) as e:
            raise _damaged(path) from e


def _executable(
    header: dict[str, Any], objects: Sequence[bytes], memory: np.ndarray[Any, Any], path: Path, load: Any
) -> VMExecutable:
    names = header["names"]
    code = []
    if objects:
        load = load or (lambda *given: runtime.link.load_objects(*given, path))
        code.append(placed_module(objects, names) or load(objects, names))
    constants: list[Any] = []
    at = 0
    for kind, value, *rest in header["constants"]:
        if kind == "tensor":
            shape, count = rest
            bytes_of = from_dlpack(memory[at : at + count]) if count else from_dlpack(np.empty(0, np.uint8))
            constants.append(_view(bytes_of, tuple(shape), value, 0))
            at += _up(count)
        else:
            constants.append({"shape": shape_constant, "dtype": dtype_constant}.get(kind, lambda v: v)(value))
    functions = [VMFuncInfo._make([*f[:6], tuple(f[6])]) for f in header["functions"]]
    scopes = {int(i): s for i, s in header["scopes"].items()}
    made = VMExecutable.from_parts(functions, constants, scopes, header["offsets"], header["words"], code)
    made.places = header["places"]
    return made


def _large_pages(size: int) -> np.ndarray[Any, Any]:
    """Memory on a cache line, and from 2 MiB on in pages of 2 MiB where the system has them."""
    if size < _HUGE_PAGE:
        raw = np.empty(size + _LINE, np.uint8)
        align = _LINE
    else:
        region = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):  # other systems, and kernels without large pages
            region.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(region, np.uint8)
        align = _HUGE_PAGE
    skip = -raw.ctypes.data % align
    return raw[skip : skip + size]


def _digest(head: bytes, weights: bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=_DIGEST)
    digest.update(weights)
    return digest.digest()


def _up(n: int) -> int:
    return (n + _LINE - 1) // _LINE * _LINE


def _damaged(path: Path) -> error.ExecutableError:
    return error.ExecutableError("the stored model is damaged", where=str(path), help="delete it; it is made again")
