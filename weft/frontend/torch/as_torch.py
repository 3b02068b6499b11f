"""Kernels and compiled models as PyTorch modules: ``tvm.contrib.torch``. Only who asks for it loads PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from weft import ir, meta_schedule, relay, runtime, target, tir
from weft.error import InvalidArgument
from weft.frontend.torch.node import dtype_name

__all__ = ["GraphExecutorFactoryWrapper", "OperatorModuleWrapper", "TVMScriptIRModule", "as_torch", "optimize_torch"]

_CPU = {"cpu": "llvm"}
Script = ir.IRModule | tir.PrimFunc


class OperatorModuleWrapper(torch.nn.Module):
    """A TIR function, or a module with one or with ``main``: called with tensors, it writes into the last of them."""

    def __init__(self, module: Script) -> None:
        super().__init__()
        self.ir_module, self.rt_module = module, None

    def tune(self, target: str | target.Target = "cpu", max_trials_global: int = 32, **options: object) -> None:
        """Search for a faster schedule and build with it; `options` are those of ``meta_schedule.tune_tir``."""
        where = _CPU.get(str(target), target)
        with TemporaryDirectory() as folder:
            database = meta_schedule.tune_tir(self.ir_module, where, folder, max_trials_global, **options)  # pyright: ignore[reportArgumentType]
            found = meta_schedule.compile_tir(database, self.ir_module, where)
        if found is not None:
            self.ir_module = found.mod
        self.build(where)

    def script(self) -> str:
        """Return the TVMScript."""
        return self.ir_module.script()

    def build(self, target_: str | target.Target | None = None) -> None:
        """Compile, by default for the CPU."""
        self.rt_module = target.build(self.ir_module, target_ or "llvm").entry_func

    def forward(self, *torch_inputs: torch.Tensor) -> list[torch.Tensor]:
        """Run, and return the tensors that were given; the first call compiles for their device."""
        if self.rt_module is None:
            self.build(_CPU.get(torch_inputs[0].device.type, torch_inputs[0].device.type) if torch_inputs else None)
        assert self.rt_module is not None
        self.rt_module(*[x.detach() for x in torch_inputs])
        return list(torch_inputs)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "rt_module": None, "ir_module": ir.save_json(self.ir_module)}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        super().__setstate__(state)  # pyright: ignore[reportArgumentType]
        self.ir_module = ir.load_json(state["ir_module"])  # pyright: ignore[reportArgumentType]


TVMScriptIRModule = OperatorModuleWrapper


def as_torch(func: Script | Callable[..., Script]) -> OperatorModuleWrapper | Callable[..., OperatorModuleWrapper]:
    """Make a PyTorch module of TVMScript.

    Parameters
    ----------
    func : IRModule, PrimFunc or callable
        The program, or what makes one of its arguments; then the result makes modules of the same arguments.
    """
    if isinstance(func, (ir.IRModule, tir.PrimFunc)):
        return OperatorModuleWrapper(func)
    if not callable(func):
        raise InvalidArgument("as_torch takes a program", found=repr(func),
                              expected="an IRModule, a PrimFunc or a function that makes one")  # fmt: skip
    return lambda *args, **options: OperatorModuleWrapper(func(*args, **options))


class GraphExecutorFactoryWrapper(torch.nn.Module):
    """A compiled model: one tensor where it has one result, else a list. It is saved with its library."""

    def __init__(self, module: runtime.Module) -> None:
        super().__init__()
        self.inner_module = module
        self._executors: dict[str, runtime.graph_executor.GraphModule] = {}

    def forward(self, *torch_inputs: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        """Run where the tensors are."""
        where = torch_inputs[0].device if torch_inputs else torch.device("cpu")
        if str(where) not in self._executors:
            device = runtime.device(where.type, where.index or 0)
            self._executors[str(where)] = runtime.graph_executor.GraphModule(self.inner_module["default"](device))
        executor = self._executors[str(where)]
        for i, given in enumerate(torch_inputs):
            executor.set_input(f"inp_{i}", runtime.from_dlpack(given.detach().contiguous()))
        executor.run()
        results = [torch.from_dlpack(executor.get_output(i)).clone() for i in range(executor.get_num_outputs())]
        return results[0] if len(results) == 1 else results

    def __getstate__(self) -> dict[str, object]:
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            self.inner_module.export_library(str(path))
            return {**self.__dict__, "inner_module": path.read_bytes(), "_executors": {}}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        super().__setstate__(state)  # pyright: ignore[reportArgumentType]
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            path.write_bytes(state["inner_module"])  # pyright: ignore[reportArgumentType]
            self.inner_module = runtime.load_module(str(path))


class _Called(torch.nn.Module):
    def __init__(self, func: Callable[..., object]) -> None:
        super().__init__()
        self._func = func

    def forward(self, *args: torch.Tensor) -> object:
        return self._func(*args)


def optimize_torch(
    func: Callable[..., object],
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    *,
    max_trials_global: int = 0,
    work_dir: str | None = None,
    target: str | target.Target = "cpu",
    **options: object,
) -> GraphExecutorFactoryWrapper:
    """Compile a model or a function of tensors.

    Parameters
    ----------
    func : callable or torch.nn.Module
        What ``relay.frontend.from_pytorch`` takes, or a function.
    example_inputs : tensor or sequence of tensors
        Shapes and data types of the inputs.
    max_trials_global : int
        Schedules to measure; 0 takes those that the compiler chooses.
    work_dir : str, optional
        A folder that keeps what the search finds.
    target : Target or str
        By default the CPU.
    **options
        Of ``meta_schedule.relay_integration.tune_relay``.
    """
    where = _CPU.get(str(target), target)
    examples = [example_inputs] if isinstance(example_inputs, torch.Tensor) else list(example_inputs)
    infos = [(f"inp_{i}", (tuple(x.shape), dtype_name(x.dtype))) for i, x in enumerate(examples)]
    mod, params = relay.frontend.from_pytorch(func if isinstance(func, torch.nn.Module) else _Called(func), infos)
    if not max_trials_global:
        return GraphExecutorFactoryWrapper(relay.build(mod, where, params=params).module)
    tuning = meta_schedule.relay_integration
    with nullcontext(work_dir) if work_dir else TemporaryDirectory() as folder:
        database = tuning.tune_relay(mod, params, where, folder, max_trials_global, **options)
        built = tuning.compile_relay(database, mod, where, params)
    return GraphExecutorFactoryWrapper(built.module)
