"""Modules: native code, executables and libraries under one interface."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm_ffi

from weft import runtime
from weft._aliases import names_of
from weft.error import ExecutableError, InvalidArgument
from weft.ffi import PackedFunc, refuse_copies, register_wrapper, wrap
from weft.runtime.device import device
from weft.spelling import also_called

if TYPE_CHECKING:
    from weft.runtime import link
    from weft.runtime.timing import BenchmarkResult

_OWN_DEVICE_CODE = ("cuda", "opencl", "vulkan", "webgpu")  # kinds of modules of kernels that the native runtime has
_jit_objects = tvm_ffi.get_global_func("weft.jit_objects")
_jit_names = tvm_ffi.get_global_func("weft.jit_names")
_size = tvm_ffi.get_global_func("weft.executable_size")
_to_bytes = tvm_ffi.get_global_func("weft.module_to_bytes")
_append = tvm_ffi.get_global_func("weft.executable_append")


class _Answer(int):
    """Yes or no, which is also asked for as a call: ``module.is_runnable`` and ``module.is_runnable()``."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class Module:
    """Compiled code: functions by name, and other modules that they need.

    Made by compilers, :func:`jit_module`, :func:`load_module`.
    """

    __slots__ = ("__dict__", "__weakref__", "_entry", "_handle")
    __reduce__ = refuse_copies

    _source: Callable[[str], str | bytes] | None = None
    _exported: Sequence[str] = ()

    def __init__(self, handle: Any) -> None:
        self._handle: tvm_ffi.Module = handle._handle if isinstance(handle, Module) else handle
        self._entry: PackedFunc | None = None

    def __tvm_ffi_object__(self) -> tvm_ffi.Module:
        """The tvm-ffi module, which native functions receive."""
        return self._handle

    @property
    def kind(self) -> str:
        """What the module is: ``"weft.jit"``, ``"library"``, ``"weft.Executable"``, ``"weft.VirtualMachine"``, ..."""
        return str(self._handle.kind)

    type_key = kind

    @property
    def format(self) -> str:
        """What the module's own text or code is: ``"o"`` for native code."""
        return "o" if self.kind == "weft.jit" else self.kind

    @property
    def handle(self) -> Any:
        """The native object, which is the same for all wrappers of a module."""
        return self._handle

    def get_property_mask(self) -> int:
        """What can be done with the module, as bits: 1 it can be saved as bytes, 2 run, 4 exported as native code."""
        return int(self.is_binary_serializable) | 2 * self.is_runnable | 4 * self.is_dso_exportable

    @property
    def is_binary_serializable(self) -> _Answer:
        """Whether the module can be written into a library as bytes."""
        return _Answer(self._handle.is_binary_serializable())

    @property
    def is_runnable(self) -> _Answer:
        """Whether its functions can be called here; all that Weft makes can be."""
        return _Answer(self.kind != "static_library")

    @property
    def is_dso_exportable(self) -> _Answer:
        """Whether it is native code, which goes into a library as such."""
        return _Answer(self.kind in ("weft.jit", "static_library"))

    is_compilation_exportable = is_dso_exportable

    @property
    def is_device_module(self) -> bool:
        """Whether it is code for another device than the CPU."""
        return self.kind in (*_OWN_DEVICE_CODE, "rocm", "metal", "hexagon")

    @property
    def imports(self) -> list[Module]:
        """Modules that this one needs."""
        return [Module(m) for m in self._handle.imports]

    imported_modules = imports

    def import_module(self, module: Any) -> None:
        """Add a module to the imports."""
        self._handle.import_module(_module_handle(module))

    def clear_imports(self) -> None:
        """Remove all imports."""
        self._handle.clear_imports()

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the module, or with `query_imports` one that it imports, has a function `name`."""
        return bool(self._handle.implements_function(name, query_imports))

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """Return a function; an InvalidArgument, which is an AttributeError too, as in TVM, where there is none."""
        try:
            function = self._handle.get_function(name, query_imports)
        except AttributeError:
            if name == "main" and len(self.function_names()) == 1:  # the only function is the entry, too
                return self.entry_func
            about = tvm_ffi.get_global_func(f"{self.kind}.{name}", allow_missing=True)
            if about is not None:  # what a kind of module tells of itself
                return wrap(tvm_ffi.convert(lambda: about(self._handle)))
            raise MissingFunction(
                f"this module has no function '{name}'", where=f"module of kind {self.kind}"
            ) from None
        return wrap(function)

    def __getitem__(self, name: str) -> PackedFunc:
        return self.get_function(name, query_imports=False)

    @property
    def entry_name(self) -> str:
        """The name of the entry function: that of the only function of the module, else ``main``."""
        names = self.function_names()
        return names[0] if len(names) == 1 else "main"

    @property
    def entry_func(self) -> PackedFunc:
        """The function ``main``, or the only function of the module."""
        if self._entry is None:
            name = self.entry_name
            if not self.implements_function(name):
                raise MissingFunction(
                    "this module has no entry function",
                    expected="'main', or one function in all",
                    found=", ".join(self.function_names()) or None,
                )
            self._entry = self.get_function(name)
        return self._entry

    def __getattr__(self, name: str) -> PackedFunc:
        if name.startswith("_") or not (self.implements_function(name) or name == "main"):
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}', nor is it a function of it"
            )
        return self.get_function(name)

    def function_names(self) -> list[str]:
        """Names of the functions, where the module can tell (native code and executables)."""
        if self._exported:
            return list(self._exported)
        if self.kind == "weft.jit":
            return [str(n) for n in _jit_names(self._handle)]
        if self.kind == "weft.Executable":
            rows = tvm_ffi.get_global_func("weft.executable_functions")(self._handle)
            return [str(row[1]) for row in rows if int(row[0]) != 0]
        if self.kind in _OWN_DEVICE_CODE:
            return [str(n) for n in tvm_ffi.get_global_func("weft.device_kernels")(self._handle)]
        return []

    def __call__(self, *args: Any) -> Any:
        """Call the entry function."""
        return self.entry_func(*args)

    def time_evaluator(
        self,
        func_name: str,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Any:
        """Return a function that times calls of `func_name` without Python in the loop.

        Parameters
        ----------
        func_name : str
            The function.
        dev : Device
            Where it runs. A CUDA device is timed by events on its current stream.
        number, repeat : int
            Each of `repeat` results is the mean of `number` calls.
        min_repeat_ms : int
            `number` grows until one repeat takes at least this long.
        limit_zero_time_iterations : int
            How often a repeat may measure zero before it is believed.
        cooldown_interval_ms, repeats_to_cooldown : int
            Sleep that long after every so many repeats.
        cache_flush_bytes : int
            Bytes to touch before each timing; 0 leaves the caches warm.
        f_preproc : str
            A global function to call with the arguments before each repeat.

        Returns
        -------
        callable
            Takes the function's arguments, returns a :class:`BenchmarkResult`.
        """
        function = self.get_function(func_name)

        def evaluate(*args: Any) -> BenchmarkResult:
            return runtime.time_function(
                function,
                args,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown,
                cache_flush_bytes=cache_flush_bytes,
                f_preproc=f_preproc,
                dev=None if dev is None else device(dev),
            )

        return evaluate

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        host: str | None = None,
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **link_options: Any,
    ) -> Any:
        """Write a shared library with the module's code and the modules inside it.

        Parameters
        ----------
        file_name : path
            The file: ``model.so``, ``model.wasm`` for JavaScript, or ``model.tar``, an archive of the object files.
        host : str, optional
            ``"tvm"`` writes an executable under the kind that Apache TVM's runtime opens.
        fcompile : callable, optional
            ``fcompile(path, object files, **options)`` links instead.
        addons : sequence of str, optional
            More files to link with.
        workspace_dir : path, optional
            Where the object files are put, and stay; by default a folder that goes away.
        **link_options
            Passed on to `fcompile`, else to :func:`weft.runtime.link.link_library` (``cc``, ``options``, ``target``).

        Returns
        -------
        str
            The path, or what `fcompile` returned.
        """
        if host not in (None, "tvm"):
            raise InvalidArgument("unknown host", expected="None or 'tvm'", found=repr(host))
        kind = "relax.VMExecutable" if host == "tvm" else "weft.Executable"
        path = Path(file_name)
        objects, names, blob = _collect(self._handle, kind)
        fcompile = fcompile or (archives().tar if path.suffix == ".tar" else None)
        if fcompile is not None:
            files = runtime.link.Files(
                objects, blob, addons or (), workspace_dir, getattr(fcompile, "get_target_triple", None)
            )
            made = files.given_to(fcompile, str(path), link_options)
            return str(path) if made is None else made
        if addons or workspace_dir is not None:
            link_options["options"] = [*(link_options.get("options") or ()), *map(str, addons or ())]
            link_options["workspace"] = None if workspace_dir is None else Path(workspace_dir)
        link_options["options"] = link_options.get("options") or ()
        return str(runtime.link.link_library(path, objects, blob, names=names, **link_options))

    def get_source(self, fmt: str = "") -> str:
        """Return the text that the code was made of.

        Parameters
        ----------
        fmt : str
            ``"ll"`` (LLVM IR), ``"asm"``, ``"c"``, ``"cuda"``, ``"ptx"``, ``"cl"``, as the module's target has
            it; by default the target's own.

        Raises
        ------
        InvalidArgument
            When the module was loaded from a file, which has code only.
        """
        if self.kind in _OWN_DEVICE_CODE:  # it keeps its texts itself
            return str(self._handle.inspect_source(fmt))
        if self._source is None:
            raise InvalidArgument(
                "this module has no source",
                where=f"module of kind {self.kind}",
                help="the module that build returns has it",
            )
        text = self._source(fmt)
        return text if isinstance(text, str) else text.hex()

    inspect_source = get_source

    @property
    def has_source(self) -> bool:
        """Whether :meth:`get_source` has something to say."""
        return self._source is not None or self.kind in _OWN_DEVICE_CODE

    def set_source(self, source: Callable[[str], str | bytes]) -> None:
        """Say where :meth:`get_source` takes the text from: a function of the format."""
        self._source = source

    @also_called(file_name="path")
    def save(self, path: str | os.PathLike[str], fmt: str = "") -> None:
        """Write object code (``.o``), LLVM's (``.ll``, ``.bc``), text (``.s``, ``.c``, ``.cu``) or a library."""
        file = Path(path)
        kind = fmt or file.suffix.lstrip(".")
        if kind in ("so", "dylib", "dll"):
            self.export_library(file)
        elif kind in ("o", "obj"):
            objects, _, blob = _collect(self._handle, "weft.Executable")
            if blob is not None or not objects:
                raise InvalidArgument(
                    "an object file holds native code alone",
                    where=f"module of kind {self.kind}",
                    help="use export_library",
                )
            runtime.link.join_objects(file, objects)
        else:
            bitcode = self._source if kind == "bc" else None
            code = (bitcode or self.get_source)({"s": "asm", "cu": "cuda", "cc": "c"}.get(kind, kind))
            runtime.write_file(file, code)

    write_to_file = save

    def get_write_formats(self) -> list[str]:
        """List the formats that :meth:`write_to_file` takes."""
        return ["o", "so", *(("ll", "bc", "s") if self.has_source else ())] if self.kind == "weft.jit" else ["so"]

    def same_as(self, other: Any) -> bool:
        """Whether both are the same native module."""
        return self._handle.same_as(_module_handle(other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and self._handle.same_as(other._handle)

    def __hash__(self) -> int:
        return self._handle.__chandle__()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, imports={len(self._handle.imports)})"


def object_code(module: Module | tvm_ffi.Module) -> tuple[list[bytes], list[str]]:
    """Return the object files of a module of native code and the names of its functions; no files if it kept none."""
    handle = _module_handle(module)
    return [bytes(o) for o in _jit_objects(handle)], [str(n) for n in _jit_names(handle)]


class MissingFunction(InvalidArgument, AttributeError):
    """A module has no function of that name."""


def _module_handle(module: Any) -> tvm_ffi.Module:
    if isinstance(module, tvm_ffi.Module):
        return module
    convert = getattr(module, "__tvm_ffi_object__", None)
    if convert is None:
        raise InvalidArgument("expected a module", found=type(module).__name__)
    return convert()


def _collect(root: tvm_ffi.Module, executable_kind: str) -> tuple[list[bytes], list[str], link.Blob | None]:
    """Object files of all code under `root`, its functions' names, and the blob of the modules that are not code.

    All code becomes one library, the ``_lib`` of the blob; without other modules there is no blob.
    """
    order: list[tvm_ffi.Module] = []
    _visit(root, order)
    objects, names = list[bytes](), list[str]()
    other = [m for m in order if str(m.kind) != "weft.jit"]
    for m in order:
        if str(m.kind) == "weft.jit":
            files, functions = object_code(m)
            objects += files
            names += functions
    code = [m for m in order if str(m.kind) == "weft.jit"]
    if code and not objects:
        raise ExecutableError(
            "this code has no object files, so it cannot be exported", help="pass the objects to jit_module"
        )
    if not other:
        return objects, names, None
    entries = [_entry(m, executable_kind) for m in other]
    code_at = None if not code else 0 if order[0] is code[0] else len(entries)
    index = {m.__chandle__(): i + (code_at == 0) for i, m in enumerate(other)}
    index |= {m.__chandle__(): code_at for m in code if code_at is not None}
    children = [list(dict.fromkeys(index[c.__chandle__()] for c in m.imports)) for m in other]
    if code_at is not None:
        below = (index[c.__chandle__()] for m in code for c in m.imports)
        children.insert(code_at, [i for i in dict.fromkeys(below) if i != code_at])
    return objects, names, runtime.link.Blob(entries, children, code_at=code_at)


def _entry(module: tvm_ffi.Module, executable_kind: str) -> link.BlobEntry:
    """Return the kind of a module, the number of its bytes, and what appends them to a file."""
    kind = str(module.kind)
    if kind in ("weft.Executable", "relax.VMExecutable"):
        aligned = executable_kind == "weft.Executable"
        return executable_kind, partial(_module_size, module, aligned), partial(_append_module, module, aligned)
    if kind == "library" or not module.is_binary_serializable():
        raise ExecutableError(f"a module of kind '{kind}' cannot be put into a library")
    data = bytes(_to_bytes(module))
    return kind, lambda at: len(data), partial(_append_bytes, data)


def _append_bytes(data: bytes, at: int, path: Path) -> None:
    with path.open("ab") as file:
        file.write(data)


def _module_size(module: tvm_ffi.Module, aligned: bool, at: int) -> int:
    return int(_size(module, at if aligned else -1))


def _append_module(module: tvm_ffi.Module, aligned: bool, at: int, path: Path) -> None:
    _append(module, str(path), at if aligned else -1)


def _visit(module: tvm_ffi.Module, order: list[tvm_ffi.Module]) -> None:
    pending = [module]
    seen: set[int] = set()
    while pending:
        m = pending.pop(0)
        if m.__chandle__() in seen:
            continue
        seen.add(m.__chandle__())
        order.append(m)
        pending += list(m.imports)


def archives() -> Any:
    """Return what reads and writes archives, which is not loaded where a library is."""
    return importlib.import_module("weft.support.tar")


register_wrapper(tvm_ffi.Module, Module)

_FROM_FILES = dict.fromkeys(("load_module", "load_static_library", "system_lib"), "weft.runtime.loading")
__getattr__ = names_of(__name__, _FROM_FILES | {"BenchmarkResult": "weft.runtime.timing"})
