"""External modules: functions of object files and of C++ sources, called by models and linked with their programs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi.libinfo

from weft import error, runtime, target
from weft.frontend.nn.exporter import Exporter
from weft.frontend.nn.op import extern
from weft.frontend.nn.tensor import caller


def add_extern(mod: ExternModule) -> None:
    """Say that the model being exported calls functions of an external module.

    Raises
    ------
    InvalidArgument
        When none is being exported, or another module has a function of the same name.
    """
    Exporter.current().add_external_module(mod)


class ExternModule:
    """Functions outside of the program.

    ``module["name"](a, b)`` calls one: it gets the arguments, then the outputs.

    Parameters
    ----------
    symbols : mapping of str to callable
        For each function, what makes placeholders for its outputs of its arguments:
        ``lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)``.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        self.symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        if func_name not in self.symbols:
            raise error.InvalidArgument(
                f"the external module has no function '{func_name}'",
                where=caller(),
                expected=", ".join(self.symbols) or "none",
            )

        def call(*args: Any) -> Any:
            return extern(func_name, list(args), self.symbols[func_name](*args))

        return call

    def load(self) -> runtime.Module:
        """Load the functions into this process."""
        raise NotImplementedError


class ObjectModule(ExternModule):
    """Functions of an object file, whose symbols are ``__tvm_ffi_<name>``.

    Parameters
    ----------
    filepath : path
        The object file.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], filepath: str | os.PathLike[str]) -> None:
        super().__init__(symbols)
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise error.InvalidArgument("there is no such object file", found=str(self.filepath))

    def load(self) -> runtime.Module:
        """Link the object file into this process."""
        return _load(self.filepath, list(self.symbols))


class SourceModule(ExternModule):
    """Functions of C++ source, which exports them by ``TVM_FFI_DLL_EXPORT_TYPED_FUNC``.

    Parameters
    ----------
    source_code : str or path
        The source, or a file of it.
    source_format : str
        ``"cpp"``.
    compile_options : list of str, optional
        Options of the compiler, by default those of :meth:`get_compile_options`.
    compiler : str, optional
        The compiler, by default ``$CXX`` or ``c++``.
    """

    def __init__(
        self,
        symbols: Mapping[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        super().__init__(symbols)
        if source_format != "cpp" or output_format != "obj":
            raise error.InvalidArgument(
                "unsupported format",
                expected="source_format='cpp', output_format='obj'",
                found=f"'{source_format}', '{output_format}'",
            )
        self.source_code = source_code.read_text() if isinstance(source_code, Path) else source_code
        self.source_format = source_format
        options = self.get_compile_options(source_format) if compile_options is None else compile_options
        self.compile_options = list(options)
        self.compiler = compiler or os.environ.get("CXX") or shutil.which("c++") or "c++"

    @staticmethod
    def get_includes() -> list[Path]:
        """List the folders of headers of tvm-ffi and DLPack."""
        return [Path(p) for p in tvm_ffi.libinfo.include_paths()]

    @staticmethod
    def get_compile_options(source_format: str = "cpp") -> list[str]:
        """List the options that sources are compiled with."""
        return ["-c", "-O3", "-std=c++17", "-fPIC", *(f"-I{p}" for p in SourceModule.get_includes())]

    def compile(self, output_path: str | os.PathLike[str]) -> None:
        """Compile to an object file.

        Raises
        ------
        CodegenError
            With what the compiler says.
        """
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "extern.cc"
            source.write_text(self.source_code)
            command = [self.compiler, *self.compile_options, str(source), "-o", str(output_path)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as e:
                raise error.CodegenError("the C++ compiler does not run", found=str(e), help="set $CXX") from e
            if done.returncode:
                raise error.CodegenError("the source of the external module does not compile", found="\n" + done.stderr)

    def load(self) -> runtime.Module:
        """Compile, and link into this process."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "extern.o"
            self.compile(path)
            return _load(path, list(self.symbols))


def _load(path: Path, names: list[str]) -> runtime.Module:
    """Link an object file into this process for good: objects that its code made may live longer than any program."""
    module = target.load_objects([path.read_bytes()], names)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
    return module
