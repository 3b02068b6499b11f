"""Kernels and compiled models as PyTorch modules: ``tvm.contrib.torch``. Only who asks for it loads PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from weft import ir, meta_schedule, relay, runtime, target, tir
from weft.error import InvalidArgument
from weft.frontend.relay import from_pytorch
from weft.frontend.torch.node import dtype_name

__all__ = ["GraphExecutorFactoryWrapper", "OperatorModuleWrapper", "TVMScriptIRModule", "as_torch", "optimize_torch"]

_CPU = {"cpu": "llvm"}
Script = ir.IRModule | tir.PrimFunc


class OperatorModuleWrapper(torch.nn.Module):
    """A TIR function, or a module with one or with ``main``: called with tensors, it writes into the last of them."""

    def __init__(self, module: Script) -> None:
        super().__init__()
        self.ir_module, self.rt_module = module, None

    def tune(self, target: str | target.Target = "cpu", max_trials_global: int = 32, **options: Any) -> None:
        """Search for a faster schedule and build with it; `options` are those of ``meta_schedule.tune_tir``."""
        where = _CPU.get(str(target), target)
        with TemporaryDirectory() as folder:
            database = meta_schedule.tune_tir(self.ir_module, where, folder, max_trials_global, **options)
            found = meta_schedule.compile_tir(database, self.ir_module, where)
        self.ir_module = self.ir_module if found is None else found.mod
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
            self.build(next((_CPU.get(x.device.type, x.device.type) for x in torch_inputs), None))
        assert self.rt_module is not None
        self.rt_module(*[x.detach() for x in torch_inputs])
        return list(torch_inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "rt_module": None, "ir_module": ir.save_json(self.ir_module)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "ir_module": ir.load_json(state["ir_module"])})


TVMScriptIRModule = OperatorModuleWrapper


def as_torch(func: Script | Callable[..., Script]) -> OperatorModuleWrapper | Callable[..., OperatorModuleWrapper]:
    """Make a PyTorch module of a program, or, of a function that makes programs, one that makes modules."""
    if isinstance(func, (ir.IRModule, tir.PrimFunc)):
        return OperatorModuleWrapper(func)
    if not callable(func):
        raise InvalidArgument(
            "as_torch takes a program",
            found=repr(func),
            expected="an IRModule, a PrimFunc or a function that makes one",
        )
    return lambda *args, **options: OperatorModuleWrapper(func(*args, **options))


class GraphExecutorFactoryWrapper(torch.nn.Module):
    """A compiled model: one tensor where it has one result, else a list. It is saved with its library."""

    def __init__(self, module: runtime.Module) -> None:
        super().__init__()
        self.inner_module = module

    def forward(self, *torch_inputs: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        """Run where the tensors are."""
        where = torch_inputs[0].device if torch_inputs else torch.device("cpu")
        executor = runtime.graph_executor.GraphModule(
            self.inner_module["default"](runtime.device(where.type, where.index or 0))
        )
        inputs = {f"inp_{i}": runtime.from_dlpack(x.detach().contiguous()) for i, x in enumerate(torch_inputs)}
        executor.run(**inputs)
        results = [torch.from_dlpack(executor.get_output(i)) for i in range(executor.get_num_outputs())]
        return results[0] if len(results) == 1 else results

    def __getstate__(self) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            self.inner_module.export_library(str(path))
            return {**self.__dict__, "inner_module": path.read_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            path.write_bytes(state["inner_module"])
            super().__setstate__({**state, "inner_module": runtime.load_module(str(path))})


def optimize_torch(
    func: Callable[..., Any],
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    *,
    max_trials_global: int = 0,
    work_dir: str | None = None,
    target: str | target.Target = "cpu",
    **options: Any,
) -> GraphExecutorFactoryWrapper:
    """Compile a model, as ``relay.frontend.from_pytorch`` takes it, or a function of tensors.

    Parameters
    ----------
    example_inputs : tensor or sequence of tensors
        Shapes and data types of the inputs.
    max_trials_global : int
        Schedules to measure; 0 takes those that the compiler chooses.
    work_dir, target, options
        Of ``meta_schedule.relay_integration.tune_relay``; by default a scratch folder and the CPU.
    """
    where = _CPU.get(str(target), target)
    examples: list[torch.Tensor] = [example_inputs] if isinstance(example_inputs, torch.Tensor) else [*example_inputs]
    infos = [(f"inp_{i}", (tuple(x.shape), dtype_name(x.dtype))) for i, x in enumerate(examples)]
    model = func
    if not isinstance(func, torch.nn.Module):
        model = torch.nn.Module()
        model.forward = func
    mod, params = from_pytorch(model, infos)
    if not max_trials_global:
        return GraphExecutorFactoryWrapper(relay.build(mod, where, params=params).module)
    tuning = meta_schedule.relay_integration
    with nullcontext(work_dir) if work_dir else TemporaryDirectory() as folder:
        database = tuning.tune_relay(mod, params, where, folder, max_trials_global, **options)
        return GraphExecutorFactoryWrapper(tuning.compile_relay(database, mod, where, params).module)
