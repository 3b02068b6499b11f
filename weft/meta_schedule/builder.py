"""Builders: modules that are scheduled become code in files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft import error, ir, runtime
from weft.ffi import get_global_func
from weft.meta_schedule.arg_info import entry_of
from weft.meta_schedule.part import Named, made
from weft.target import Target
from weft.tune import Measurer


class BuilderInput:
    """A module to be compiled for a target."""

    def __init__(self, mod: ir.IRModule, target: Target, params: Mapping[str, Any] | None = None) -> None:
        self.mod, self.target, self.params = mod, target, params


class BuilderResult:
    """The file with the code, or what went wrong."""

    def __init__(self, artifact_path: str | None, error_msg: str | None) -> None:
        self.artifact_path, self.error_msg = artifact_path, error_msg


class Builder(Named):
    """Compiles modules."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile modules, one result for each."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Builder:
        """Make a builder; ``"local"`` is the only kind."""
        return made("builder", {"local": LocalBuilder}, kind, *args, **kwargs)


class PyBuilder(Builder):
    """A builder written in Python."""


class LocalBuilder(PyBuilder):
    """Compiles on this machine, in processes beside this one.

    Parameters
    ----------
    max_workers : int, optional
        Processes at most.
    timeout_sec : float
        Seconds for one.
    f_build : callable or str, optional
        ``f_build(mod, target, params)`` makes the module, in this process, in place of the compiler.
    f_export : callable or str, optional
        ``f_export(module)`` writes it and returns the path.
    initializer : callable, optional
        Called first.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: Any = None,
        f_export: Any = None,
        initializer: Callable[[], None] | None = None,
    ) -> None:
        self.max_workers, self.timeout_sec = max_workers or os.cpu_count() or 1, timeout_sec
        self.f_build, self.f_export = f_build, f_export
        if initializer is not None:
            initializer()
        for given in (f_build, f_export):
            if isinstance(given, str):
                get_global_func(given)  # says at once that there is none
        self._measurer: Measurer | None = None

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile modules."""
        if self.f_build is not None or self.f_export is not None:
            return [self._build_here(i) for i in build_inputs]
        if not build_inputs:
            return []
        if self._measurer is None:
            self._measurer = Measurer(Target(build_inputs[0].target), runtime.num_threads(), min(2, self.max_workers))
        results = []
        for built in self._measurer.compile([entry_of(i.mod) for i in build_inputs]):
            if built.code is None:
                results.append(BuilderResult(None, built.why or built.state))
                continue
            path = Path(tempfile.mkdtemp()) / "kernel.o"
            path.write_bytes(built.code)
            results.append(BuilderResult(str(path), None))
        return results

    def _build_here(self, given: BuilderInput) -> BuilderResult:
        try:
            module = _function(self.f_build)(given.mod, given.target, given.params)
            return BuilderResult(str(_function(self.f_export)(module)), None)
        except Exception as e:
            return BuilderResult(None, f"LocalBuilder: An exception occurred\n{type(e).__name__}: {e}")

    def __del__(self) -> None:
        if getattr(self, "_measurer", None) is not None:
            self._measurer.__exit__()  # type: ignore[union-attr]


def _function(given: Any) -> Any:
    if given is None:
        raise error.InvalidArgument("a builder of the user's needs f_build and f_export")
    return get_global_func(given) if isinstance(given, str) else given


create = Builder.create
