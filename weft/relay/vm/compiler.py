"""``relay.vm.compile`` and ``VMCompiler``: passes, kernels and instructions, in that order, to one executable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from weft import error, ir, runtime, tir
from weft.relax import compile_kernels, recompilable_kernels
from weft.relay.analysis import warn_unmatched
from weft.relay.bind import bind_params_by_name
from weft.relay.database import kernel_sources, scheduled
from weft.relay.expr import Function
from weft.relay.external import compile_external, external_functions, with_externals
from weft.relay.prelude import is_standard
from weft.relay.transform.plan_devices import KERNEL_DEVICE
from weft.relay.transform.remove_unused_functions import remove_unused_functions
from weft.relay.typing import Program, TargetsLike
from weft.relay.vm.codegen import CodeUnit
from weft.relay.vm.pipeline import vm_pipeline
from weft.relay.vm.targets import Targets
from weft.runtime.relay_vm import Executable, VMFunction
from weft.target import TargetLike


@ir.dumped
def compile(
    mod: Program,
    target: TargetsLike = None,
    target_host: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a module for the Relay virtual machine.

    Parameters
    ----------
    mod : IRModule or Function
        The program; a function becomes ``main``.
    target : Target, str, sequence of them, or mapping of device to them, optional
        By default the host's CPU; for several devices, those that the machine is made with, in order.
    target_host : Target or str, optional
        Where the machine itself runs, for targets that are no CPU.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name; they become constants.

    Returns
    -------
    Executable
    """
    compiler = VMCompiler()
    if params:
        compiler.set_params(params)
    with kernel_sources():
        compiler.lower(mod, target, target_host)
        compiler.codegen()
    return compiler.get_exec()


class VMCompiler:
    """Compiles in steps: :meth:`lower`, :meth:`codegen`, :meth:`get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._lowered: ir.IRModule | None = None
        self._code: tuple[list[VMFunction], CodeUnit] | None = None
        self._kernels: runtime.Module | None = None
        self._recompilable: dict[str, Any] = {}
        self._targets = Targets.of()

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values for parameters of ``main``, by name; the lowered program has them as constants."""
        self._params = dict(params)

    def get_params(self) -> dict[str, Any]:
        """Return the values that were set."""
        return dict(self._params)

    def optimize(
        self, mod: Any, target: Any = None, target_host: Any = None, params: Mapping[str, Any] | None = None
    ) -> tuple[ir.IRModule, dict[str, Any]]:
        """Run the passes in front of code generation.

        Returns
        -------
        (IRModule, dict)
            The lowered module, and the values of its parameters that are still parameters: none.
        """
        if params:
            self.set_params(params)
        mod = as_module(mod)
        own = [v.name_hint for v, f in mod.items() if not is_standard(f)]
        mod = remove_unused_functions(own)(mod) if own else mod
        self._targets = Targets.of(target, target_host)
        if self._params:
            mod = bind_params(mod, self._params)
        warn_unmatched(mod)
        return vm_pipeline(self._targets)(mod), {}

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Run the passes and make the code."""
        self._lowered, _ = self.optimize(mod, target, target_host)
        unit = CodeUnit(self._lowered)
        self._code = unit.compile(), unit

    def codegen(self) -> None:
        """Compile the kernels of the lowered program."""
        if self._lowered is None:
            raise error.InvalidArgument("there is no program to compile", help="call lower(mod, target) before")
        by_device: dict[int, ir.IRModule] = {}
        for v, f in self._lowered.items():
            if isinstance(f, tir.PrimFunc):
                by_device.setdefault(f.attrs.get(KERNEL_DEVICE, 0), ir.IRModule({}))[v] = f
        targets = (*self._targets.targets, self._targets.host_target)
        gpus = [f"{targets[d]}" for d in sorted(by_device) if targets[d].kind.device != "cpu"]
        if gpus:
            raise error.CodegenError("the kernels of a Relay program are made for CPUs only", found=", ".join(gpus))
        by_device = {d: scheduled(part, targets[d]) for d, part in by_device.items()}
        self._recompilable = {}
        for d, part in by_device.items():
            if targets[d].kind.compile is not None:
                self._recompilable |= recompilable_kernels(part, partial(compile_kernels, target=targets[d]))
        made = [m for d, part in sorted(by_device.items()) if (m := compile_kernels(part, targets[d])) is not None]
        for module in made[1:]:
            made[0].import_module(module)
        self._kernels = with_externals(made[0] if made else None, compile_external(external_functions(self._lowered)))

    def get_exec(self) -> Executable:
        """Return the executable: code, constants and kernels."""
        if self._code is None:
            raise error.InvalidArgument("there is no code", help="call lower(mod, target) and codegen() before")
        functions, unit = self._code
        pool = unit.constants
        made = Executable.from_parts(functions, pool.values, list(unit.primitives), self._kernels, pool.devices)
        made.recompilable = self._recompilable
        return made


def as_module(mod: object) -> ir.IRModule:
    """Return a module itself, or a module whose ``main`` is an expression."""
    if isinstance(mod, ir.IRModule):
        return mod
    if isinstance(mod, ir.Expr):
        return ir.IRModule({"main": mod if isinstance(mod, ir.BaseFunc) else Function((), mod)})
    raise error.InvalidArgument("a module or function is compiled", found=type(mod).__name__)


def bind_params(mod: ir.IRModule, params: Mapping[str, Any], name: str = "main") -> ir.IRModule:
    """Replace parameters of a function by constants, by name.

    Raises
    ------
    InvalidArgument
        When several parameters have a name that a value is for.
    """
    func = mod[name]
    if not isinstance(func, Function):
        raise error.InvalidArgument(f"'{name}' is not a Relay function", found=type(func).__name__)
    made = bind_params_by_name(func, params)
    return mod.with_functions({**dict(mod.items()), mod.get_global_var(name): made})
