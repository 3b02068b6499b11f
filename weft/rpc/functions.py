"""What every session offers its client: files of its folder, modules, timing; under TVM's names.

Each takes the service first. A client asks for them as for global functions.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from tarfile import is_tarfile
from typing import Any

import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi import get_global_func
from weft.rpc.folder import Folder
from weft.rpc.machine import served_function
from weft.rpc.service import ServedModule, Service, session_function
from weft.runtime import Device, Module, load_module, open_regular, read_regular, time_function
from weft.support import cc
from weft.support.tar import untar


@session_function("tvm.rpc.server.workpath")
def _workpath(service: Service, name: str) -> str:
    return service.folder.relpath(name)


@session_function("tvm.rpc.server.upload")
def _upload(service: Service, name: str, data: bytes | str) -> None:
    path = Path(service.folder.relpath(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a library that is open keeps its file
    path.write_bytes(data.encode() if isinstance(data, str) else data)


@session_function("tvm.rpc.server.download")
def _download(service: Service, name: str) -> bytes:
    return read_regular(service.folder.relpath(name))


@session_function("tvm.rpc.server.remove")
def _remove(service: Service, name: str) -> None:
    Path(service.folder.relpath(name)).unlink()


@session_function("tvm.rpc.server.listdir")
def _listdir(service: Service, name: str) -> str:
    return ",".join(sorted(p.name for p in Path(service.folder.relpath(name)).iterdir()))


@session_function("tvm.rpc.server.load_module")
def _load_module(service: Service, name: str) -> Module:
    module = load_module(linked(service.folder, name))
    service.entry_names[module.__tvm_ffi_object__().__chandle__()] = module.entry_name
    return module


@session_function("tvm.rpc.server.download_linked_module")
def _download_linked_module(service: Service, name: str) -> bytes:
    return read_regular(linked(service.folder, name))


@session_function("weft.rpc.callbacks")
def _callbacks(_: Service) -> bool:
    """Whether functions of the client may be arguments: servers of TVM have no function of this name."""
    return True


def linked(folder: Folder, name: str) -> str:
    """The path of a library in a session's folder; object files, also those of a tar archive, are linked first.

    Raises
    ------
    ExecutableError
        When an archive holds anything but files, or a file lies outside.
    """
    path = Path(folder.relpath(name))
    with open_regular(path) as file:
        magic = file.read(18)
    objects = [path]
    if magic.startswith(b"\x7fELF") and magic[16:18] == b"\x01\x00":
        pass
    elif path.suffix == ".tar" and is_tarfile(path):
        objects = _extracted(path, Path(folder.relpath(f"{name}.objects")))
    elif path.suffix != ".o":
        return str(path)
    library = Path(f"{path}.so")
    cc.create_shared(library, [str(p) for p in objects])
    return str(library)


def _extracted(archive: Path, where: Path) -> list[Path]:
    where.mkdir(exist_ok=True)
    untar(archive, where)
    return sorted(p for p in where.rglob("*") if p.is_file())


@session_function("tvm.rpc.server.ImportModule")
def _import_module(_: Service, parent: Any, child: Any) -> None:
    if isinstance(parent, ServedModule) or isinstance(child, ServedModule):
        raise InvalidArgument("a virtual machine takes no imports, and is none")
    parent.import_module(child)


@session_function("tvm.rpc.server.ModuleGetFunction")
def _module_get_function(_: Service, module: Any, name: str, query_imports: bool = False) -> Any:
    return function_of(module, name, query_imports)


def function_of(module: Module | ServedModule, name: str, query_imports: bool = False) -> Any:
    """The function of a module, native or not, or None."""
    if isinstance(module, ServedModule):
        return module.function(name)
    try:
        return module.get_function(name, query_imports)
    except AttributeError:
        return served_function(Module(module), name)


@session_function("weft.rpc.module_entry_name")
def _entry_name(service: Service, module: Any) -> str:
    if isinstance(module, ServedModule):
        return "main"
    return service.entry_names.get(module.__chandle__()) or Module(module).entry_name


@session_function("weft.rpc.module_kind")
def _kind(_: Service, module: Any) -> str:
    return "weft.VirtualMachine" if isinstance(module, ServedModule) else Module(module).kind


_TIMING = (
    "number repeat min_repeat_ms limit_zero_time_iterations cooldown_interval_ms repeats_to_cooldown cache_flush_bytes "
    "f_preproc"
).split()
"""What a client sends, in this order; older ones leave the last two out."""


@session_function("runtime.RPCTimeEvaluator")
def _time_evaluator(
    service: Service, module: Any, name: str, device_type: int, device_id: int, *how: object
) -> Callable[..., bytes]:
    """A function that times another where it lies, as `_TIMING` says: a double of seconds for each repeat."""
    if not 6 <= len(how) <= len(_TIMING):
        raise InvalidArgument("a timing has 6 to 8 numbers and names", expected=", ".join(_TIMING), found=str(how))
    timing: dict[str, Any] = dict(zip(_TIMING, how, strict=False))
    found = get_global_func(name, allow_missing=True) if module is None else function_of(module, name, True)
    if found is None:
        raise InvalidArgument(f"there is no function '{name}' to time")
    timed = found if isinstance(found, tvm_ffi.Function) else tvm_ffi.convert(found)
    timed = getattr(timed, "plain", timed)
    device = Device(device_type, device_id)

    def evaluate(*args: Any) -> bytes:
        with service.counted(timing.get("cache_flush_bytes", 0)):
            measured = time_function(timed, args, **timing, dev=device)
        return struct.pack(f"={len(measured.results)}d", *measured.results)

    return evaluate
