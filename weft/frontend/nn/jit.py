"""Compiled modules that are called with tensors of PyTorch, or arrays, and keep their parameters and effects."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir
from weft.frontend.nn import spec as _spec
from weft.frontend.nn.parameter import Parameter
from weft.relax import VirtualMachine, build
from weft.relax.transform import BindParams
from weft.runtime import Device, ShapeTuple, Tensor, from_dlpack, tensor
from weft.runtime import device as as_device


class JITModule:
    """What :meth:`Module.jit` returns: ``jitted["method"](x, ...)``, or ``jitted(x, ...)`` for ``forward``.

    Parameters are constants of the program, so that the compiler lays them out as its kernels read them. Effects are
    kept: each call continues where the one before it ended.
    """

    def __init__(
        self,
        spec: _spec.ModuleSpec,
        mod: ir.IRModule,
        params: Sequence[tuple[str, Parameter]],
        device: Any,
        pipeline: Any,
        out_format: str,
    ) -> None:
        if out_format not in _FORMATS:
            raise error.InvalidArgument(f"unknown out_format '{out_format}'", expected=", ".join(_FORMATS))
        without = [name for name, p in params if p.data is None]
        if without:
            raise error.InvalidArgument(
                "parameters have no value",
                found=", ".join(without),
                help="call module.load_state_dict(values), or set parameter.data",
            )
        self._convert = _FORMATS[out_format]()
        self.spec = spec
        self.device = as_device(device) if isinstance(device, str) else device
        kind = "llvm" if self.device.device_type == Device.kDLCPU else self.device.type
        values = [ir.constant(p.data) for _, p in params]
        for name, method in spec:
            if method.param_mode != "none":
                mod = _bound(mod, name, values)
        self.vm = VirtualMachine(build(mod, kind, relax_pipeline=pipeline), self.device)
        self.effects: list[Any] = list(self.vm["_initialize_effect"]()) if "_initialize_effect" in mod else []

    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        specs = dict(self.spec)
        if method_name not in specs:
            raise error.InvalidArgument(f"there is no method '{method_name}'", expected=", ".join(specs))
        method = specs[method_name]

        def call(*args: Any) -> Any:
            return self._call(method_name, method, args)

        return call

    def __call__(self, *args: Any) -> Any:
        """Call ``forward``."""
        return self["forward"](*args)

    def _call(self, name: str, method: _spec.MethodSpec, args: tuple[Any, ...]) -> Any:
        if len(args) != len(method.arg_names):
            raise error.InvalidArgument(
                f"'{name}' takes {len(method.arg_names)} arguments",
                expected=", ".join(method.arg_names),
                found=f"{len(args)} values",
            )
        inputs = [self._input(s, a, n) for s, a, n in zip(method.arg_specs, args, method.arg_names, strict=True)]
        effects = self.effects if method.effect_mode != "none" else []
        out = self.vm[name](*inputs, *effects)
        if effects:
            out, after = out
            self.effects = list(after)
        return self._output(out)

    def _input(self, spec: Any, value: Any, name: str) -> Any:
        """An argument as the virtual machine takes it."""
        if isinstance(spec, _spec.Int):
            try:
                return ShapeTuple((operator.index(value),))
            except (TypeError, ValueError) as e:
                raise error.InvalidArgument(f"'{name}' is a whole number of 64 bits", found=repr(value)) from e
        if isinstance(spec, _spec.Tuple):
            if not isinstance(value, (list, tuple)) or len(value) != len(spec.elements):
                raise error.InvalidArgument(
                    f"'{name}' is a tuple", expected=f"{len(spec.elements)} values", found=repr(value)
                )
            return [
                self._input(s, v, f"{name}[{i}]") for i, (s, v) in enumerate(zip(spec.elements, value, strict=True))
            ]
        if isinstance(spec, _spec.Object):
            return value
        if hasattr(value, "detach"):
            value = from_dlpack(value.detach().contiguous())
        return value if isinstance(value, Tensor) and value.device == self.device else tensor(value, device=self.device)

    def _output(self, value: Any) -> Any:
        """A result in the other framework's form, within tuples too."""
        if isinstance(value, Tensor):
            return self._convert(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._output(v) for v in value)
        return value


def _bound(mod: ir.IRModule, name: str, values: list[ir.Constant]) -> ir.IRModule:
    """Put values in the place of a function's parameters, which are its last arguments."""
    arguments = mod[name].params  # type: ignore[attr-defined]
    return BindParams(name, dict(zip(arguments[len(arguments) - len(values) :], values, strict=True)))(mod)


def _to_torch() -> Callable[[Tensor], Any]:
    torch = error.require("torch", extra="torch")
    return lambda value: torch.from_dlpack(value)


_FORMATS: dict[str, Callable[[], Callable[[Tensor], Any]]] = {"torch": _to_torch, "numpy": lambda: Tensor.numpy}
