"""A model, the package that it is compiled to, and what a run gave."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from weft import ir, runtime
from weft.error import InvalidArgument, reading
from weft.relay.build_module import GraphExecutorFactoryModule
from weft.runtime.timing import BenchmarkResult
from weft.support import cc
from weft.support.tar import tar, untar
from weft.support.utils import tempdir


class TVMCException(InvalidArgument):
    """The driver is asked for what it cannot do; the message says what was expected."""


class TVMCImportError(TVMCException, ImportError):
    """A model's format needs a package that is not installed."""


class TVMCModel:
    """A program of Relay and the values of its parameters.

    Parameters
    ----------
    mod : IRModule, optional
    params : mapping of str to Tensor, optional
        Values for parameters of ``main``, by name.
    model_path : str, optional
        What :meth:`save` wrote, in place of both; records and a package that were saved with it come along.
    """

    def __init__(
        self, mod: ir.IRModule | None = None, params: Mapping[str, Any] | None = None, model_path: str | None = None
    ) -> None:
        if (mod is None) == (model_path is None):
            raise TVMCException("a model is made of a module or of a file", expected="either mod or model_path")
        self._folder = tempdir()
        self.mod: Any = mod
        self.params: dict[str, Any] = dict(params or {})
        if model_path is not None:
            self.load(model_path)

    def save(self, model_path: str) -> None:
        """Write the program, its parameters, and what lies at the default places, as one archive."""
        folder = Path(self._folder.path)
        (folder / "model.json").write_text(ir.save_json(self.mod))
        runtime.save_param_dict_to_file(self.params, folder / "model.params")
        tar(model_path, sorted(map(str, folder.iterdir())))

    def load(self, model_path: str) -> None:
        """Read what :meth:`save` wrote."""
        folder = Path(self._folder.path)
        with _reading(model_path):
            untar(model_path, folder)
            self.mod = ir.load_json((folder / "model.json").read_text())
            self.params = runtime.load_param_dict_from_file(folder / "model.params")

    def default_tuning_records_path(self) -> str:
        """The file that records of tuning go to where no other is named; it goes away with the model."""
        return self._folder.relpath("tuning_records")

    def default_package_path(self) -> str:
        """The file that a package goes to where no other is named; it goes away with the model."""
        return self._folder.relpath("model_package.tar")

    def export_package(
        self,
        executor_factory: Any,
        package_path: str | None = None,
        cross: Any = None,
        cross_options: str | None = None,
        output_format: str = "so",
    ) -> str:
        """Write what was built as an archive.

        Parameters
        ----------
        executor_factory : GraphExecutorFactoryModule or relay.vm.Executable
            What was built.
        package_path : str, optional
            By default that of :meth:`default_package_path`.
        cross : str or callable, optional
            The compiler that links another machine's library, with `cross_options`, words of its command line.
        output_format : str
            ``"so"``, or ``"tar"`` for objects that are linked later.

        Returns
        -------
        str
            The path.
        """
        if output_format not in ("so", "tar"):
            raise TVMCException("a package holds a library", expected="'so' or 'tar'", found=repr(output_format))
        options: dict[str, Any] = {}
        if cross:
            words = (cross_options or "").split()
            options["fcompile"] = cross if callable(cross) else cc.cross_compiler(cross, words)
        folder = Path((parts := tempdir()).path)
        lib: Any
        if isinstance(executor_factory, GraphExecutorFactoryModule):
            name, lib, whole = "mod", executor_factory.get_lib(), executor_factory.module
            (folder / "mod.json").write_text(executor_factory.get_graph_json())
            runtime.save_param_dict_to_file(executor_factory.get_params(), folder / "mod.params")
        else:
            name, (code, lib), whole = "lib", executor_factory.save(), executor_factory.mod
            (folder / "code.ro").write_bytes(code)
        (whole if lib is None else lib).export_library(folder / f"{name}.{output_format}", **options)
        path = package_path or self.default_package_path()
        tar(path, sorted(map(str, folder.iterdir())))
        parts.remove()
        return path

    def summary(self, file: TextIO | None = None) -> None:
        """Print the program."""
        print(self.mod, file=file or sys.stdout)


class TVMCPackage:
    """A compiled model: ``lib_path`` is its library, ``graph`` and ``params`` are those of the graph executor.

    Parameters
    ----------
    package_path : str
        What :func:`compile_model` wrote.
    project_dir : str, optional
        TVM's folder of a microcontroller's project, which are no targets here.
    """

    def __init__(self, package_path: str, project_dir: str | None = None) -> None:
        if project_dir is not None:
            raise TVMCException("microcontrollers are no targets", found=f"project_dir={project_dir!r}")
        self.package_path, self.project_dir = package_path, None
        self._folder = tempdir()
        self.import_package(package_path)

    def import_package(self, package_path: str) -> None:
        """Read an archive."""
        folder = Path(self._folder.path)
        with _reading(package_path):
            untar(package_path, folder)
        found = [n for n in ("mod.so", "mod.tar", "lib.so", "lib.tar") if (folder / n).exists()]
        if not found:
            raise TVMCException("the package has no library", expected="mod.so or lib.so", found=package_path)
        self.lib_name, self.lib_path = found[0], str(folder / found[0])
        is_graph = found[0].startswith("mod")
        self.type, self.executor_type = ("classic", "graph") if is_graph else ("vm", "vm")
        with _reading(package_path):
            self.graph = (folder / "mod.json").read_text() if is_graph else None
            self.params = bytearray((folder / "mod.params").read_bytes()) if is_graph else None
            self.code = None if is_graph else (folder / "code.ro").read_bytes()


class TVMCResult:
    """What a run gave: ``outputs`` by name, ``output_0`` and on, and ``times``, a BenchmarkResult in seconds."""

    def __init__(self, outputs: dict[str, np.ndarray[Any, Any]], times: BenchmarkResult) -> None:
        self.outputs, self.times = outputs, times

    def format_times(self) -> str:
        """The times as a small table."""
        return str(self.times)

    def get_output(self, name: str) -> np.ndarray[Any, Any]:
        """The output of that name."""
        return self.outputs[name]

    def save(self, output_path: str) -> None:
        """Write the outputs as an .npz file."""
        arrays: dict[str, Any] = dict(self.outputs)
        with runtime.finished_file(output_path) as out, out.open("wb") as file:
            np.savez(file, **arrays)

    def __str__(self) -> str:
        return f"{self.format_times()}\nOutput Names:\n {list(self.outputs)}"


def get_top_results(result: TVMCResult, max_results: int) -> np.ndarray[Any, Any]:
    """The places and the values of the largest numbers in the first row of ``output_0``: ``(2, max_results)``."""
    row = result.outputs["output_0"][0]
    places = np.argsort(row)[::-1][:max_results]
    return np.array([places, row[places]])


def _reading(path: str) -> AbstractContextManager[None]:
    return reading("this is no archive of the driver's", TVMCException, (OSError,), where=path)
