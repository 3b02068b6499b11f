"""Linking object files into a library, with whatever linker there is.

Tried in order: ``$CC``, ``cc``, ``clang``, ``gcc``, the ``ziglang`` package. Without any, the objects go into a
container file, which `load_module` opens with the help of a just-in-time linker (see `register_object_loader`).
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.error import ExecutableError, InvalidArgument
from weft.runtime.data_object import fill_reserved, write_data_object
from weft.runtime.elf import find_section, linker_triple
from weft.runtime.regular_file import finished_file, open_regular, write_file
from weft.runtime.seal import damaged, seal

CONTAINER_MAGIC, UNSEALED_MAGIC = b"WEFTLIB\x02", b"WEFTLIB\x01"
_SYMBOL = "__tvm_ffi__library_bin"
_LARGE = 1 << 20
"""Bytes of weights from which on they are written once, behind a gap of up to 64 KB, instead of linked."""

ObjectLoader = Callable[[list[bytes], list[str]], Any]

_object_loader: list[ObjectLoader] = []


def register_object_loader(loader: ObjectLoader) -> None:
    """Set the function ``loader(objects, names) -> Module`` that places object files in this process.

    A compiler package does so. `names` are the functions to offer, symbols ``__tvm_ffi_<name>``.
    """
    _object_loader[:] = [loader]


def load_objects(objects: Sequence[bytes], names: Sequence[str], where: Path) -> Any:
    """Place object files in this process, through the registered loader."""
    if not _object_loader:
        raise ExecutableError(
            "this container file needs a just-in-time linker, and none is loaded",
            where=str(where),
            help="import weft (with llvmlite) first, or export the library where a linker is installed",
        )
    return _object_loader[0](list(objects), list(names))


BlobEntry = tuple[str, Callable[[int], int], Callable[[int, Path], None]]


class Blob:
    """The bytes of ``__tvm_ffi__library_bin``, written piece by piece so that large constants are not copied.

    Parameters
    ----------
    entries : sequence of (kind, size, write)
        The modules, the root first: their kind, a function that says how many bytes they have, and one that appends
        them to a file. Both get the place of the first byte in the blob, since weights are aligned in it.
    children : sequence of sequences of int
        Imports of each module in the order in which they come to lie, the library's code among them.
    code_at : int, optional
        Which module in that order is the library's code, if it has some.
    """

    def __init__(self, entries: Sequence[BlobEntry], children: Sequence[Sequence[int]], *, code_at: int | None) -> None:
        indptr = [0]
        flat: list[int] = []
        for below in children:
            flat += below
            indptr.append(len(flat))
        self._parts: list[bytes | Callable[[Path], None]] = [_vector(indptr) + _vector(flat)]
        body = len(self._parts[0])  # pyright: ignore[reportArgumentType]
        code = _string(b"_lib")
        for i, (kind, size_at, write) in enumerate(entries):
            head = (code if i == code_at else b"") + _string(kind.encode())
            at = 8 + body + len(head) + 8
            size = size_at(at)
            self._parts += [head + struct.pack("<Q", size), partial(write, at)]
            body += len(head) + 8 + size
        if code_at == len(entries):
            self._parts.append(code)
            body += len(code)
        self._parts.insert(0, struct.pack("<Q", body))
        self.size = body + 8

    def append_to(self, path: Path) -> None:
        """Write the blob to the end of a file."""
        for part in self._parts:
            if isinstance(part, bytes):
                with path.open("ab") as file:
                    file.write(part)
            else:
                part(path)


def _vector(values: Sequence[int]) -> bytes:
    return struct.pack(f"<Q{len(values)}Q", len(values), *values)


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def link_library(
    path: Path,
    objects: Sequence[bytes],
    blob: Blob | None,
    *,
    names: Sequence[str] = (),
    cc: str | None = None,
    options: Sequence[str] = (),
    target: str | None = None,
    container: bool = False,
    workspace: Path | None = None,
) -> Path:
    """Link object files, and a blob of modules, into a shared library at `path`.

    Parameters
    ----------
    path : Path
        The file to write.
    objects : sequence of bytes
        Object files.
    blob : Blob or None
        Content of ``__tvm_ffi__library_bin``.
    names : sequence of str
        The functions of the objects, which a container file has to know.
    cc : str, optional
        The compiler driver to link with, instead of the search.
    options : sequence of str
        More options for it.
    target : str, optional
        Triple of another platform; needs a driver that can cross-link, such as ziglang. By default the objects say it.
    container : bool
        Write a container file without looking for a linker.
    workspace : Path, optional
        Where the files that are linked are put, and stay; by default a folder that goes away.

    Raises
    ------
    ExecutableError
        When linkers were found and all failed; the message lists them with what they said.
    """
    wrong = "no such directory" if not path.parent.is_dir() else "it is no regular file"
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InvalidArgument("cannot write the library", where=str(path), found=wrong)
    wasm = importlib.import_module("weft.runtime.wasm_link")  # not where a library is loaded
    if path.suffix == ".wasm" or any(o.startswith(wasm.MAGIC) for o in objects):
        return wasm.link_wasm(path, objects, names, None if blob is None else (blob.size, blob.append_to))
    if container:
        return _write_container(path, objects, names, blob)
    target = target or (linker_triple(objects[0]) if objects else None)
    tried: list[str] = []
    with _folder(workspace) as directory:
        reserve = workspace is None and blob is not None and blob.size >= _LARGE
        inputs, reserved = _write_inputs(directory, objects, blob, target, reserve=reserve)
        for command in _drivers(cc, target):
            with finished_file(path, 0o777) as out:
                message = _run([*command, "-shared", "-fPIC", "-o", str(out), *inputs, *options])
                if message is None and reserved and blob is not None and not fill_reserved(out, blob):
                    inputs, reserved = _write_inputs(directory, objects, blob, target)
                    message = _run([*command, "-shared", "-fPIC", "-o", str(out), *inputs, *options])
                if message is None:
                    _seal_library(out)
                    return path
            tried.append(f"{shlex.join(command)}: {message}")
    if tried:
        raise ExecutableError(
            "no linker could make the library",
            where=str(path),
            found="\n  " + "\n  ".join(tried),
            help="export_library(..., container=True) needs no linker",
        )
    if target is not None:
        what, hint = f"no linker for {target} was found", "pip install 'weft[cross]'"
        raise ExecutableError(what, where=str(path), expected="$CC or the ziglang package", help=hint)
    return _write_container(path, objects, names, blob)


@contextmanager
def _folder(workspace: Path | None) -> Generator[Path]:
    if workspace is not None:
        workspace.mkdir(parents=True, exist_ok=True)
        yield workspace
        return
    with tempfile.TemporaryDirectory(prefix="weft-link-") as directory:
        yield Path(directory)


class Files:
    """What a library is linked of, for a linker that the caller brings.

    Parameters
    ----------
    objects, blob
        As for :func:`link_library`.
    addons : sequence of str
        More files to link with.
    workspace : path, optional
        Where the files are put, and stay; by default a folder that goes away.
    triple : callable, optional
        Says for which platform the linker works.
    """

    def __init__(
        self,
        objects: Sequence[bytes],
        blob: Blob | None,
        addons: Sequence[str],
        workspace: str | os.PathLike[str] | None,
        triple: Callable[[], str] | None,
    ) -> None:
        self.objects, self.blob, self.addons = objects, blob, [str(a) for a in addons]
        self.workspace = None if workspace is None else Path(workspace)
        self.triple = triple

    def given_to(self, fcompile: Callable[..., Any], path: str, options: Mapping[str, Any]) -> Any:
        """Write the files, and call ``fcompile(path, files, **options)``."""
        with _folder(self.workspace) as directory:
            target = self.triple() if self.triple is not None else None
            files, _ = _write_inputs(directory, self.objects, self.blob, target)
            return fcompile(path, [*files, *self.addons], **options)


def _seal_library(path: Path) -> None:
    """Seal what the linker wrote. Other systems' loaders may not like bytes behind a library, so it has to be ELF."""
    with path.open("rb") as file:
        is_elf = file.read(4) == b"\x7fELF"
    if is_elf:
        seal(path, find_section(path, ".weft"))


def join_objects(path: Path, objects: Sequence[bytes]) -> None:
    """Write one relocatable object file of several.

    Raises
    ------
    ExecutableError
        When several have to be joined and no linker can.
    """
    if len(objects) == 1:
        write_file(path, objects[0])
        return
    tried: list[str] = []
    with tempfile.TemporaryDirectory(prefix="weft-join-") as folder, finished_file(path) as out:
        files = [Path(folder) / f"{i}.o" for i in range(len(objects))]
        for file, code in zip(files, objects, strict=True):
            file.write_bytes(code)
        for command in _drivers(None, None):
            failure = _run([*command, "-r", "-nostdlib", "-o", str(out), *map(str, files)])
            if failure is None:
                return
            tried.append(failure)
            out.unlink(missing_ok=True)
    raise ExecutableError("no linker could join the object files", where=str(path), found="\n  " + "\n  ".join(tried))


def _drivers(cc: str | None, target: str | None) -> list[list[str]]:
    """Linker commands to try, in order."""
    zig = [[sys.executable, "-m", "ziglang", "cc"]] if find_spec("ziglang") is not None else []
    if target is not None:
        zig = [[*command, "-target", target] for command in zig]
    if cc is not None:
        return [shlex.split(cc)]
    found: list[list[str]] = []
    chosen = os.environ.get("CC")
    if chosen:
        found.append(shlex.split(chosen))
    if target is None:
        found += [[name] for name in ("cc", "clang", "gcc") if shutil.which(name)]
    unique = list({tuple(command): command for command in found}.values())
    return unique + zig


def _run(command: list[str]) -> str | None:
    """Run a linker; None on success, else what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        return str(e)
    return None if done.returncode == 0 else (done.stderr.strip() or f"exit status {done.returncode}")


def _write_inputs(
    directory: Path, objects: Sequence[bytes], blob: Blob | None, target: str | None, reserve: bool = False
) -> tuple[list[str], bool]:
    """Write what is linked; and return whether the blob is left to :func:`fill_reserved`."""
    inputs: list[str] = []
    for i, data in enumerate(objects):
        file = directory / f"code{i}.o"
        file.write_bytes(data)
        inputs.append(str(file))
    if blob is not None:
        data = directory / "modules.o"
        if objects and write_data_object(data, blob, _SYMBOL, objects[0], reserved=reserve):
            return [*inputs, str(data)], reserve
        data_file = directory / "modules.bin"
        blob.append_to(data_file)
        source = directory / "modules.S"
        source.write_text(_assembly(data_file, target))
        inputs.append(str(source))
    return inputs, False


def _assembly(data: Path, target: str | None) -> str:
    """Assembly that puts a file under the blob's symbol, on a cache line.

    Weights are used where they are mapped, so the section can be written: as with memory of one's own, a write to a
    constant is seen by this process alone.
    """
    apple = (target or sys.platform).find("darwin") >= 0 or "macos" in (target or "")
    symbol = ("_" if apple else "") + _SYMBOL
    section = ".section __DATA,__weft" if apple else '.section .weft,"aw"'
    note = "" if apple else '.section .note.GNU-stack,"",%progbits\n'
    return f'{section}\n.globl {symbol}\n.balign 64\n{symbol}:\n.incbin "{data}"\n{note}'


def _write_container(path: Path, objects: Sequence[bytes], names: Sequence[str], blob: Blob | None) -> Path:
    parts = [CONTAINER_MAGIC, struct.pack("<Q", len(names)), *(_string(name.encode()) for name in names)]
    parts.append(struct.pack("<Q", len(objects)))
    for data in objects:
        parts += [struct.pack("<Q", len(data)), data]
    parts.append(struct.pack("<Q", blob.size if blob is not None else 0))
    with finished_file(path) as out:
        out.write_bytes(b"".join(parts))
        size = out.stat().st_size
        if blob is not None:
            blob.append_to(out)
        seal(out, (size, out.stat().st_size - size))
    return path


def read_container(path: Path, *, sealed: bool) -> tuple[list[bytes], list[str], bytes | None] | None:
    """Objects, names of their functions and blob of a container file, or None when the file is something else.

    Parameters
    ----------
    path : Path
        The file.
    sealed : bool
        Whether it has a digest, which has been compared. Containers of early versions have none.

    Raises
    ------
    ExecutableError
        When the container is cut short, or has lost its digest.
    """
    with open_regular(path) as file:
        magic = file.read(len(CONTAINER_MAGIC))
        if magic not in (CONTAINER_MAGIC, UNSEALED_MAGIC):
            return None
        if magic == CONTAINER_MAGIC and not sealed:
            raise damaged(path, "a file without a digest, which is its end")
        data = file.read()
    at = 0

    def take(n: int) -> bytes:
        nonlocal at
        if n > len(data) - at:
            where = f"{path}, offset {at + len(CONTAINER_MAGIC)}"
            raise ExecutableError(
                "the container file is cut short", where=where, expected=f"{n} bytes", found=str(len(data) - at)
            )
        at += n
        return data[at - n : at]

    def number() -> int:
        return struct.unpack("<Q", take(8))[0]

    def count() -> int:
        n = number()
        if n > len(data):
            raise ExecutableError("the container file is damaged", where=str(path), found=f"{n} items")
        return n

    names = [take(number()).decode(errors="replace") for _ in range(count())]
    objects = [take(number()) for _ in range(count())]
    blob = take(number())
    return objects, names, blob or None
