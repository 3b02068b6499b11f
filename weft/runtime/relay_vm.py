"""The Relay virtual machine: calls, stateful calls, values of data types, timing and profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi import PackedFunc, convert_argument, convert_func, wrap
from weft.runtime.device import Device
from weft.runtime.device import device as as_device
from weft.runtime.jit import HotShape, enabled_by_default, hot_shapes, watch
from weft.runtime.module import Module
from weft.runtime.profiler import Profiler, Report
from weft.runtime.relay_executable import Executable, VMFunction
from weft.runtime.relay_instruction import Instruction
from weft.runtime.tensor import Tensor, tensor
from weft.runtime.timing import BenchmarkResult
from weft.runtime.vm import arguments_in_order, machine_devices

__all__ = ["ADT", "Executable", "Instruction", "Ref", "TupleValue", "VMFunction", "VirtualMachine", "tuple_object"]

_create = tvm_ffi.get_global_func("weft.relay_vm_create")
_invoke = tvm_ffi.get_global_func("weft.relay_vm_invoke")
_invoke_closure = tvm_ffi.get_global_func("weft.relay_vm_invoke_closure")
_set_input = tvm_ffi.get_global_func("weft.relay_vm_set_input")
_invoke_stateful = tvm_ffi.get_global_func("weft.relay_vm_invoke_stateful")
_get_output = tvm_ffi.get_global_func("weft.relay_vm_get_output")
_set_instrument = tvm_ffi.get_global_func("weft.relay_vm_set_instrument")
_adt = tvm_ffi.get_global_func("weft.relay_adt")
_adt_tag = tvm_ffi.get_global_func("weft.relay_adt_tag")
_adt_size = tvm_ffi.get_global_func("weft.relay_adt_size")
_adt_field = tvm_ffi.get_global_func("weft.relay_adt_field")
_ref_value = tvm_ffi.get_global_func("weft.relay_ref_value")


class _ADTMeta(type(tvm_ffi.Object)):
    """Programs ask ``isinstance(result, ADT)`` of tuples, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) is TupleValue or super().__instancecheck__(instance)


@tvm_ffi.register_object("weft.ADT", init=False)
class ADT(tvm_ffi.Object, metaclass=_ADTMeta):
    """A value of an algebraic data type: a constructor's tag and its fields.

    Parameters
    ----------
    tag : int
        The constructor.
    fields : sequence
        Tensors, arrays, numbers, tuples, values of data types.
    """

    def __init__(self, tag: int, fields: Sequence[Any]) -> None:
        self.__init_handle_by_constructor__(_adt, int(tag), *map(_argument, fields))

    @property
    def tag(self) -> int:
        """The constructor's tag."""
        return int(_adt_tag(self))

    def __len__(self) -> int:
        return int(_adt_size(self))

    def __getitem__(self, index: int | slice) -> Any:
        n = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(n))]
        if not -n <= index < n:
            raise IndexError(f"field {index} of a value of {n} fields")
        return wrap(_adt_field(self, index % n))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"ADT(tag={self.tag}, fields={len(self)})"


@tvm_ffi.register_object("weft.Ref", init=False)
class Ref(tvm_ffi.Object):
    """A cell whose value a program can replace."""

    @property
    def value(self) -> Any:
        """What it holds."""
        return wrap(_ref_value(self))

    def __repr__(self) -> str:
        return f"Ref({self.value!r})"


class TupleValue(tuple[Any, ...]):
    """A tuple as executors return it: Python's, which also is an :class:`ADT` with tag 0."""

    __slots__ = ()
    tag = 0

    @property
    def fields(self) -> list[Any]:
        """Its fields."""
        return list(self)


def tuple_object(fields: Sequence[Any] = ()) -> TupleValue:
    """Make a tuple as executors return and take them; its fields stay the objects that they are."""
    return TupleValue(fields)


def _argument(value: Any) -> Any:
    """An argument as the machine takes it: numbers are scalars of Relay's default dtypes."""
    if isinstance(value, bool):
        return convert_argument(np.array(value))
    if isinstance(value, int):
        fits = -(2**31) <= value < 2**31
        return convert_argument(np.array(value, np.int32 if fits else np.int64))
    if isinstance(value, float):
        return convert_argument(np.array(value, np.float32))
    if isinstance(value, np.generic):
        return convert_argument(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return [_argument(v) for v in value]
    return convert_argument(value)


class VirtualMachine:
    """Runs a Relay executable on devices; safe to call from many threads.

    Parameters
    ----------
    exe : Executable or Module
        The executable.
    device : Device or list of Device
        Where to run; a program's device indexes count these. The CPU is always there, for scalars and shapes.
    memory_cfg : str or dict of Device to str, optional
        ``"pooled"`` (the default) or ``"naive"``, for all devices or per device.
    jit : bool, optional
        Whether kernels of symbolic shapes are compiled again, in the background, for shapes that stay hot; by default
        they are, where the environment does not say ``WEFT_JIT=0``. It is for executables of this process's compiler.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(self, exe: Any, device: Any = "cpu", memory_cfg: Any = None, jit: bool | None = None) -> None:
        if isinstance(exe, tvm_ffi.Module):
            exe = Module(exe)
        if isinstance(exe, Module):
            exe = Executable(exe)
        if not isinstance(exe, Executable):
            raise InvalidArgument("a Relay virtual machine runs a Relay executable", found=type(exe).__name__)
        self._exec = exe
        self.devices, flat = machine_devices(device, memory_cfg)
        self._handle = _create(exe.mod, flat)
        self._instrument: Callable[..., Any] | None = None
        self._inputs: dict[str, dict[str, Any]] = {}
        if exe.recompilable and (enabled_by_default() if jit is None else jit):
            watch(self, self._handle, exe.primitive_ops, exe.recompilable)

    @property
    def module(self) -> Module:
        """The machine as a module, whose functions are the executable's."""
        return Module(self._handle)

    @property
    def executable(self) -> Executable:
        """The executable that runs."""
        return self._exec

    def __getitem__(self, name: str) -> PackedFunc:
        """A function of the executable."""
        self._exec.function(name)
        return self.module.get_function(name)

    def _arguments(self, func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = tuple(self._exec.function(func_name).params)
        return [_argument(a) for a in arguments_in_order(func_name, names, args, kwargs)]

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function.

        Parameters
        ----------
        func_name : str
            Its name.
        *args, **kwargs
            Its arguments, by position or name. Numbers become scalars: int32, float32, bool. Without any, a function
            that takes some gets those that were set.

        Returns
        -------
        Tensor, tuple, ADT or another object
            A tuple of the program comes as a tuple.
        """
        if not args and not kwargs:
            kwargs = self._inputs.get(func_name, {})
        return wrap(_invoke(self._handle, func_name, *self._arguments(func_name, args, kwargs)))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main``."""
        return self.invoke("main", *args, **kwargs)

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function of this executable returned."""
        return wrap(_invoke_closure(self._handle, closure, *map(_argument, args)))

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a later :meth:`invoke_stateful`, or :meth:`invoke` without arguments."""
        values = self._arguments(func_name, args, kwargs)
        _set_input(self._handle, func_name, *values)
        self._inputs[func_name] = dict(zip(self._exec.function(func_name).params, values, strict=True))

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument: ``set_one_input("main", 0, x)``, by its name instead of 0, or ``data=x``.

        The others stay what was set.

        Raises
        ------
        InvalidArgument
            When the function has no such parameter, or not one value is given.
        """
        given_one = [args] if len(args) == 2 and not kwargs else list(kwargs.items()) if not args else []
        if len(given_one) != 1:
            raise InvalidArgument(
                "one input is set",
                expected="a parameter and its value",
                found=f"{len(args)} values, {len(kwargs)} by name",
            )
        (key, value) = given_one[0]
        names = list(self._exec.function(func_name).params)
        name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
        if name not in names:
            raise InvalidArgument(f"'{func_name}' has no such parameter", expected=", ".join(names), found=str(key))
        given = self._inputs.setdefault(func_name, {})
        given[name] = value  # type: ignore[index]
        if len(given) == len(names):
            self.set_input(func_name, **given)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Run a function on the inputs that were set, or are given, and keep its output."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        _invoke_stateful(self._handle, func_name)
        self._last = func_name

    def get_outputs(self, func_name: str | None = None) -> list[Any]:
        """Return the outputs of the last :meth:`invoke_stateful`: a tuple's items, or the one output."""
        name = func_name or getattr(self, "_last", "main")
        out = wrap(_get_output(self._handle, name))
        return list(out) if isinstance(out, tuple) else [out]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Return which parameter has a name, -1 when none has."""
        names = self._exec.get_function_params(func_name)
        return names.index(input_name) if input_name in names else -1

    def set_instrument(self, instrument: Callable[..., Any] | None) -> None:
        """Call ``instrument(None, name, before_run, None, *args)`` before and after each primitive.

        Parameters
        ----------
        instrument : callable or None
            An answer of 1 before a call leaves it out. None removes the instrument.
        """
        self._instrument = instrument
        _set_instrument(self._handle, None if instrument is None else convert_func(instrument))

    def profile(self, *args: Any, func_name: str = "main", **kwargs: Any) -> Report:
        """Run a function once and tell how long each primitive in it took.

        The machine's instrument is left out of the run. The report's `hot_shapes` tell which kernels were compiled
        for a shape since the machine was made, and how often each ran.
        """
        values = self._arguments(func_name, args, kwargs)
        before, profiler = self._instrument, Profiler()
        self.set_instrument(profiler)
        try:
            _invoke(self._handle, func_name, *values)
            report = profiler.report()
        finally:
            self.set_instrument(before)
        report.hot_shapes = self.hot_shapes()
        return report

    def hot_shapes(self) -> list[HotShape]:
        """Return what became of kernels of symbolic shapes, for each shape that they were called with."""
        return hot_shapes(self._handle)

    def benchmark(
        self,
        device: Device | None,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time a function by the clock of a device, as :meth:`Module.time_evaluator` does.

        With `end_to_end` copying the arguments to the machine's device is in the time; on the CPU nothing is copied.
        """
        values = self._arguments(func_name, args, kwargs)
        if not end_to_end and self.devices[0].device_type != Device.kDLCPU:
            values = [tensor(Tensor(v), self.devices[0]) if isinstance(v, tvm_ffi.Tensor) else v for v in values]
        timer = self.module.time_evaluator(
            func_name,
            None if device is None else as_device(device),
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms or 0,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        return timer(*values)
