"""BasePyModule: Python functions, Relax functions and kernels of one class, callable as methods with NumPy or torch.

A class under ``@I.ir_module`` that inherits from :class:`BasePyModule` may have methods under ``@I.pyfunc``; the
decorator gives a module, which called with a device gives the instance.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir, tir
from weft.error import InvalidArgument
from weft.ffi import get_global_func, register_global_func
from weft.relax.interpreter import Interpreter
from weft.relax.vm_build import build as build_relax
from weft.runtime import Tensor, VirtualMachine, from_dlpack, tensor
from weft.runtime import device as make_device
from weft.target import Target
from weft.target import build as build_kernels

_CALLED: dict[str, Callable[..., Any]] = {}


@register_global_func("vm.builtin.call_py_func")
def _call_registered(name: Any, *args: Any) -> Any:
    """Call a Python function of the module that was made last and has one of that name."""
    if str(name) not in _CALLED:
        raise InvalidArgument(f"Python function '{name}' not found")
    return _CALLED[str(name)](*args)


class ModuleWithPython(ir.IRModule):
    """A module with Python functions: ``pyfuncs``, by name; called with a device, it is ready to run."""

    pyfuncs: dict[str, Callable[..., Any]]
    instance_class: type[BasePyModule]

    def __call__(self, device: Any = None, target: Any = None) -> BasePyModule:
        """Compile for a device, by default the CPU."""
        return self.instance_class(self, device if device is not None else make_device("cpu"), target)

    def copy(self) -> ModuleWithPython:
        """Return a copy that has the same Python functions."""
        return _with_python(super().copy(), self.instance_class, self.pyfuncs)


def _with_python(mod: ir.IRModule, cls: type[BasePyModule], pyfuncs: dict[str, Any]) -> ModuleWithPython:
    made = ModuleWithPython(mod.functions, mod.attrs, mod.global_infos)
    made.pyfuncs, made.instance_class = pyfuncs, cls
    return made


class BasePyModule:
    """A module that is compiled and ready, with its functions as attributes.

    Parameters
    ----------
    ir_mod : IRModule
        Relax functions and kernels, and perhaps Python functions.
    device : Device
        Where it runs.
    target : Target or str, optional
        By default that of the device.
    """

    def __init__(self, ir_mod: ir.IRModule, device: Any, target: Any = None) -> None:
        self.ir_mod, self.device = ir_mod, make_device(device)
        self.target = Target.of("llvm" if target is None and self.device.type == "cpu" else target or self.device.type)
        self.functions, self.attrs, self.global_infos = ir_mod.functions, ir_mod.attrs, ir_mod.global_infos
        kernels = {v.name_hint: f for v, f in ir_mod.items() if isinstance(f, tir.PrimFunc)}
        self.tir_func_names = list(kernels)
        self.relax_func_names = [v.name_hint for v, f in ir_mod.items() if isinstance(f, ir.Function)]
        self.compiled_tir_funcs: dict[str, Any] = {}
        self.extern_funcs: dict[str, Any] = {}
        self.relax_vm: VirtualMachine | None = None
        self.pyfuncs: dict[str, Any] = dict(getattr(ir_mod, "pyfuncs", {}))
        if kernels:
            named = {n: f.with_attr("global_symbol", n) for n, f in kernels.items()}
            built = build_kernels(ir.IRModule(named), self.target)
            self.compiled_tir_funcs = {n: built[n] for n in kernels}
        if self.relax_func_names:
            self.relax_vm = VirtualMachine(build_relax(ir_mod, self.target), self.device)
        vars(self).update(self.compiled_tir_funcs)  # the class has the functions' definitions under these names
        vars(self).update({n: self._relax_function(n) for n in self.relax_func_names})
        for name, fn in dict(self.pyfuncs).items():
            self.add_python_function(name, fn)

    @classmethod
    def from_ir_module(cls, mod: ir.IRModule, pyfuncs: dict[str, Any]) -> ModuleWithPython:
        """Make what ``@I.ir_module`` returns for a class that inherits from this one."""
        return _with_python(mod, cls, pyfuncs)

    def __getattr__(self, name: str) -> Any:
        if "ir_mod" in vars(self) and not name.startswith("_"):
            return getattr(self.ir_mod, name)
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def _relax_function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            assert self.relax_vm is not None
            return self._convert_tvm_to_pytorch(self.relax_vm[name](*self._convert_pytorch_to_tvm(list(args))))

        call.__name__ = name
        return call

    def _called_by_machine(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = fn(*[self._convert_tvm_to_pytorch(a) for a in args])
            return self._convert_pytorch_to_tvm(result)

        return call

    def call_tir(self, tir_func: Any, args: Any, out_ty: Any) -> Any:
        """Call a kernel, given by name or as an attribute, and return its results; an InvalidArgument without one."""
        own = self.compiled_tir_funcs
        name = tir_func if isinstance(tir_func, str) else next((n for n, f in own.items() if f is tir_func), None)
        name = name or getattr(tir_func, "name_hint", getattr(tir_func, "__name__", ""))
        if name not in own:
            raise InvalidArgument(f"the module has no kernel '{name}'", expected=", ".join(own) or "none")
        return self._call_with_outputs(own[name], args, out_ty)

    def call_dps_packed(self, func_name: str, args: Any, out_ty: Any) -> Any:
        """Call a global function, or a method, that writes its results into its last arguments."""
        if func_name in self.pyfuncs:
            return vars(self)[func_name](*args)
        if func_name not in self.extern_funcs:
            found = get_global_func(func_name, allow_missing=True)
            if found is None:
                raise InvalidArgument(f"Function '{func_name}' not found as a global function")
            self.extern_funcs[func_name] = found
        return self._call_with_outputs(self.extern_funcs[func_name], args, out_ty)

    def call_py_func(self, func_name: str, args: Any) -> Any:
        """Call a Python function of the module."""
        if func_name not in self.pyfuncs:
            raise InvalidArgument(f"Python function '{func_name}' not found")
        return self.pyfuncs[func_name](self, *args)

    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Add a Python function; one whose first parameter is called ``self`` gets the module there."""
        if not callable(func):
            raise InvalidArgument(f"'{name}' is no function", found=repr(func))
        self.pyfuncs[name] = func
        takes_module = next(iter(inspect.signature(func).parameters), "") == "self"
        vars(self)[name] = functools.partial(func, self) if takes_module else func
        _CALLED[name] = self._called_by_machine(vars(self)[name])

    def get_function(self, name: str) -> Any:
        """Return a function by name, or None."""
        known = (*self.compiled_tir_funcs, *self.extern_funcs, *self.relax_func_names, *self.pyfuncs)
        return self.extern_funcs.get(name) or getattr(self, name) if name in known else None

    def list_functions(self) -> dict[str, list[str]]:
        """List the names of functions by kind."""
        return {"tir": self.tir_func_names, "relax": self.relax_func_names, "extern": list(self.extern_funcs)}

    def script(self, **options: Any) -> str:
        """Return the module as TVMScript, its Python functions behind the others."""
        text = self.ir_mod.script(**options).rstrip("\n")
        return "\n".join([text, *(_source(f) for f in self.pyfuncs.values())]) + "\n"

    def show(self, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
        """Print the module."""
        print(self.script(**options))

    def _call_with_outputs(self, fn: Any, args: Any, out_ty: Any) -> Any:
        given = list(args) if isinstance(args, (list, tuple)) else [args]
        types = out_ty if isinstance(out_ty, list) else [out_ty]
        outs = [self._empty(t, given) for t in types]
        fn(*self._convert_pytorch_to_tvm(given), *outs)
        results = [self._convert_tvm_to_pytorch(o) for o in outs]
        return results[0] if len(results) == 1 else results

    def _empty(self, ty: Any, args: list[Any]) -> Tensor:
        ty = ty.as_type() if hasattr(ty, "as_type") else ty
        shape = ty if isinstance(ty, (list, tuple)) else ty.shape
        dtype = "float32" if isinstance(ty, (list, tuple)) else ty.dtype
        dims = self._infer_concrete_shape_from_args(shape, args)
        return tensor(np.zeros(dims, ir.numpy_dtype(dtype)), self.device)

    def _infer_concrete_shape_from_args(self, shape: Any, in_args: Any) -> list[int]:
        """Take dimensions that are symbolic from the first argument of the same rank."""
        known = [d if isinstance(d, (int, np.integer)) else ir.as_int(d) for d in shape]
        if None not in known:
            return [int(d) for d in known]  # type: ignore[arg-type]
        args = in_args if isinstance(in_args, (list, tuple)) else [in_args]
        for a in args:
            dims = getattr(a, "shape", None)
            if dims is not None and len(dims) == len(known):
                return [int(n if d is None else d) for d, n in zip(known, dims, strict=True)]
        raise InvalidArgument("Cannot infer concrete output shape: no argument has its rank", expected=str(len(known)))

    def _convert_pytorch_to_tvm(self, value: Any) -> Any:
        """Make a tensor of the runtime of an array or a torch tensor, also inside lists; numbers stay."""
        if isinstance(value, (list, tuple)):
            return [self._convert_pytorch_to_tvm(v) for v in value]
        if isinstance(value, Tensor) or not hasattr(value, "shape"):
            return value
        if hasattr(value, "detach"):  # torch's: memory is shared where it is contiguous
            return from_dlpack(value.detach().contiguous())
        return tensor(np.ascontiguousarray(value), self.device)

    def _convert_tvm_to_pytorch(self, value: Any) -> Any:
        """Make torch tensors of the runtime's, where the program has imported torch."""
        torch = sys.modules.get("torch")
        if torch is None or not (isinstance(value, (list, tuple)) or hasattr(value, "numpy")):
            return value
        if isinstance(value, (list, tuple)):
            return [self._convert_tvm_to_pytorch(v) for v in value]
        return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value.numpy()))


class RelaxToPyFuncConverter:
    """Makes Python functions of Relax functions, at any stage of compilation, to compare that stage with another.

    They run in the interpreter of Relax, which uses nothing of the machine, the passes or the schedules.
    """

    def __init__(self, ir_module: ir.IRModule) -> None:
        self.ir_module = ir_module

    def convert(self, relax_function_names: str | list[str]) -> ModuleWithPython:
        """Return a module that has functions of these names, on torch tensors or arrays, in ``pyfuncs``.

        Raises
        ------
        InvalidArgument
            When there is no such Relax function.
        """
        names = [relax_function_names] if isinstance(relax_function_names, str) else list(relax_function_names)
        known = [v.name_hint for v, f in self.ir_module.items() if isinstance(f, ir.Function)]
        if missing := [n for n in names if n not in known]:
            raise InvalidArgument(f"Relax function '{missing[0]}' not found", expected=", ".join(known) or "none")
        pyfuncs = {**getattr(self.ir_module, "pyfuncs", {}), **{n: self._function(n) for n in names}}
        return _with_python(self.ir_module, getattr(self.ir_module, "instance_class", BasePyModule), pyfuncs)

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            given = [a for a in args if not isinstance(a, BasePyModule)]  # a module passes itself
            torch = sys.modules.get("torch")
            is_torch = torch is not None and any(isinstance(a, torch.Tensor) for a in given)
            arrays = [a.detach().cpu().numpy() if hasattr(a, "detach") else a for a in given]
            result = Interpreter(self.ir_module).run(name, *arrays)
            return _as_torch(result) if is_torch else result

        call.__name__ = name
        return call


def _as_torch(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_as_torch(v) for v in value)
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _source(fn: Callable[..., Any]) -> str:
    try:
        return "\n" + textwrap.indent(textwrap.dedent(inspect.getsource(fn)), "    ").rstrip("\n")
    except OSError:
        return f"\n    # {fn.__name__}: the source is not at hand"
