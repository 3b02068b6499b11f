"""The Relax virtual machine: calls, stateful calls, saved functions, instruments, timing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import tvm_ffi

from weft import runtime
from weft.error import InvalidArgument
from weft.ffi import CallbackTaker, PackedFunc, convert_argument, get_global_func, refuse_copies, wrap
from weft.runtime.device import Device
from weft.runtime.device import device as as_device
from weft.runtime.executable import VMExecutable
from weft.runtime.jit import HotShape, enabled_by_default, hot_shapes, watch
from weft.runtime.module import Module
from weft.runtime.opcodes import FuncKind
from weft.spelling import also_called

if TYPE_CHECKING:
    from weft.runtime.profiler import Report
    from weft.runtime.timing import BenchmarkResult

_create = tvm_ffi.get_global_func("weft.vm_create")
_set_input = tvm_ffi.get_global_func("weft.vm_set_input")
_invoke_stateful = tvm_ffi.get_global_func("weft.vm_invoke_stateful")
_get_output = tvm_ffi.get_global_func("weft.vm_get_output")
_get_output_arity = tvm_ffi.get_global_func("weft.vm_get_output_arity")
_invoke_closure = tvm_ffi.get_global_func("weft.vm_invoke_closure")
_save_function = tvm_ffi.get_global_func("weft.vm_save_function")


class VMInstrumentReturnKind(IntEnum):
    """What an instrument's callback before a call answers."""

    NO_OP = 0
    SKIP_RUN = 1


Devices = str | Device | Sequence[str | Device]
"""Of a machine: one or several, the host first or left out."""

Allocators = str | int | Mapping[Any, str | int] | None
"""How memory is kept between allocations, ``"pooled"`` or ``"naive"``, or that of each device."""


def machine_devices(device: Devices, memory_cfg: Allocators) -> tuple[list[Device], list[int]]:
    """Devices of a machine, with the CPU, and rows of device type, id and allocator for the native side."""
    given = device if isinstance(device, Sequence) and not isinstance(device, str) else [device]
    devices = [as_device(d) for d in given]
    if all(d.device_type != Device.kDLCPU for d in devices):
        devices.append(as_device("cpu"))
    kinds: dict[object, int] = {None: 2, "pooled": 2, "naive": 1, 1: 1, 2: 2}
    flat: list[int] = []
    for d in devices:
        kind = memory_cfg
        if isinstance(memory_cfg, Mapping):
            kind = next((v for k, v in memory_cfg.items() if as_device(k) == d), None)
        if kind not in kinds:
            raise InvalidArgument("unknown allocator", expected="'pooled' or 'naive'", found=repr(kind))
        flat += [d.device_type, d.device_id, kinds[kind]]
    return devices, flat


def arguments_in_order(
    func_name: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Positional arguments of a call that may name some of its parameters `names`."""
    if not kwargs:
        return list(args)
    if not names:
        raise InvalidArgument(f"{func_name}: its parameters have no names", help="pass the arguments by position")
    unknown = [k for k in kwargs if k not in names]
    twice = [k for k in kwargs if k in names[: len(args)]]
    missing = [n for n in names[len(args) :] if n not in kwargs]
    if unknown or twice or missing:
        problems = [f"unknown: {', '.join(unknown)}"] if unknown else []
        problems += [f"given twice: {', '.join(twice)}"] if twice else []
        problems += [f"missing: {', '.join(missing)}"] if missing else []
        raise InvalidArgument(
            f"{func_name}: wrong argument names", expected=", ".join(names), found="; ".join(problems)
        )
    return [*args, *(kwargs[n] for n in names[len(args) :])]


def __getattr__(name: str) -> Any:
    """Find what TVM's module of this name has of Relay's machine, which is imported when it is asked for."""
    if name == "relay_vm":
        return importlib.import_module("weft.runtime.relay_vm")
    if name == "Executable":
        return __getattr__("relay_vm").Executable
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def _kind(executable: Any) -> str | None:
    return getattr(getattr(executable, "mod", executable), "kind", None)


class VirtualMachine:
    """Runs an executable on devices; safe to call from many threads.

    Parameters
    ----------
    rt_mod : VMExecutable or Module
        The executable.
    device : Device or list of Device
        Where to run. The CPU is always there, for shapes.
    memory_cfg : str or dict of Device to str, optional
        ``"pooled"`` (the default) or ``"naive"``, for all devices or per device.
    profile : bool, optional
        Nothing depends on it: every machine has :meth:`profile`.
    jit : bool, optional
        Whether kernels of symbolic shapes are compiled again, in the background, for shapes that stay hot; by default
        they are, where the environment does not say ``WEFT_JIT=0``. It is for executables of this process's compiler.
    """

    __reduce__ = refuse_copies

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    @also_called(exe="rt_mod")
    def __new__(
        cls, rt_mod: Any, device: Any = "cpu", memory_cfg: Any = None, profile: bool = False, *, jit: bool | None = None
    ) -> Any:
        """Make the machine that the executable is for: TVM's name is the same for Relay's."""
        if _kind(rt_mod) == "weft.RelayExecutable":
            return __getattr__("relay_vm").VirtualMachine(rt_mod, device, memory_cfg, jit=jit)
        if _kind(rt_mod) == "rpc":  # a machine where its executable lies
            return rt_mod.virtual_machine(device, memory_cfg)
        return super().__new__(cls)

    @also_called(exe="rt_mod")
    def __init__(
        self,
        rt_mod: Any,
        device: Any = "cpu",
        memory_cfg: Any = None,
        profile: bool = False,
        *,
        jit: bool | None = None,
    ) -> None:
        module = rt_mod.mod if hasattr(rt_mod, "mod") else rt_mod
        if isinstance(module, tvm_ffi.Module):
            module = Module(module)
        if not isinstance(module, Module):
            raise InvalidArgument("a virtual machine runs an executable", found=type(rt_mod).__name__)
        self._executable = rt_mod if isinstance(rt_mod, VMExecutable) else VMExecutable(module)
        self.devices, flat = machine_devices(device, memory_cfg)
        self._handle = _create(module, flat)
        self.module = Module(self._handle)
        self._cache: dict[str, PackedFunc] = {}
        self._takes_functions = any(f.name == "vm.builtin.check_func_info" for f in self._executable.functions)
        self._instrument: Callable[..., Any] | None = None
        kernels = self._executable.recompilable
        if kernels and (enabled_by_default() if jit is None else jit):
            watch(self, self._handle, [f.name for f in self._executable.functions], kernels)

    def hot_shapes(self) -> list[HotShape]:
        """Return what became of kernels of symbolic shapes, for each shape that they were called with."""
        return hot_shapes(self._handle)

    @property
    def executable(self) -> VMExecutable:
        """The executable that runs."""
        return self._executable

    def __getitem__(self, name: str) -> PackedFunc:
        """A function of the executable, or a saved one."""
        found = self._cache.get(name)
        if found is None:
            try:
                found = self.module.get_function(name)
            except AttributeError:
                self._executable.function(name)  # raises, with the names there are
                raise
            if self._takes_functions:
                found = CallbackTaker.of(found)
            found.on_error = self._executable.name_place
            self._cache[name] = found
        return found

    def get_function(self, name: str) -> PackedFunc:
        """The same as ``vm[name]``."""
        return self[name]

    def get_function_arity(self, func_name: str) -> int:
        """Return how many parameters a function of the executable has."""
        return self._executable.function(func_name).num_args

    def get_function_param_name(self, func_name: str, index: int) -> str:
        """Return the name of one parameter of a function of the executable."""
        names = self._executable.function(func_name).param_names
        if not 0 <= index < len(names):
            raise InvalidArgument(f"{func_name}: no parameter {index} has a name", found=", ".join(names))
        return names[index]

    def _arguments(self, func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Positional arguments of a call that may name some."""
        names = self._executable.function(func_name).param_names if kwargs else ()
        return [convert_argument(a) for a in arguments_in_order(func_name, names, args, kwargs)]

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function of this machine returned."""
        return wrap(_invoke_closure(self._handle, closure, *[convert_argument(a) for a in args]))

    def save_function(
        self, func_name: str, saved_name: str, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Bind arguments to a function and keep it as ``vm[saved_name]``, which takes none.

        Parameters
        ----------
        func_name, saved_name : str
            The function, and its new name.
        *args, **kwargs
            Its arguments, by position or name.
        include_return : bool
            Whether the saved function returns the result; timing is cleaner without.

        Raises
        ------
        InvalidArgument
            When `saved_name` is a function of the executable. An earlier saved function is replaced.
        """
        values = self._arguments(func_name, args, kwargs)
        if any(f.name == saved_name and f.kind != FuncKind.PACKED_FUNC for f in self._executable.functions):
            raise InvalidArgument(f"'{saved_name}' is a function of the executable", help="save under another name")
        _save_function(self._handle, func_name, saved_name, include_return, *values)
        self._cache.pop(saved_name, None)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a later :meth:`invoke_stateful`."""
        _set_input(self._handle, func_name, *self._arguments(func_name, args, kwargs))

    def invoke_stateful(self, func_name: str) -> None:
        """Run a function on the inputs that were set, and keep its output."""
        _invoke_stateful(self._handle, func_name)

    def get_outputs(self, func_name: str) -> Any:
        """The output of the last :meth:`invoke_stateful`; a tuple comes as a tuple."""
        return self._outputs(func_name)

    def _outputs(self, func_name: str, *path: int) -> Any:
        arity = int(_get_output_arity(self._handle, func_name, *path))
        if arity < 0:
            return wrap(_get_output(self._handle, func_name, *path))
        return tuple(self._outputs(func_name, *path, i) for i in range(arity))

    def get_output_arity(self, func_name: str, *path: int) -> int:
        """Number of items of an output, -1 when it is not a tuple."""
        return int(_get_output_arity(self._handle, func_name, *path))

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Call a function before and after every ``Call`` instruction.

        Parameters
        ----------
        instrument : callable, str or None
            ``instrument(func, func_symbol, before_run, ret_value, *args)``, or the name of such a global function.
            Before a call it may answer `VMInstrumentReturnKind.SKIP_RUN`, then the call is left out, and there is
            no callback after it. None removes the instrument.
        """
        if isinstance(instrument, str):
            instrument = get_global_func(instrument)
        if instrument is not None and not callable(instrument):
            raise InvalidArgument(
                "an instrument is a function",
                found=f"{type(instrument).__name__}: {instrument!r}",
                expected="instrument(func, func_symbol, before_run, ret_value, *args)",
            )
        self._instrument = instrument
        runtime.instrument.set_instrument(self._handle, instrument)

    def profile(self, func_name: str, *args: Any, **kwargs: Any) -> Report:
        """Run a function once and tell how long each call in it took.

        The machine's instrument is left out of the run.

        Returns
        -------
        Report
            ``print(report)`` shows the table; ``report.json()`` and ``report.trace(path)`` are for other tools.
        """
        values = self._arguments(func_name, args, kwargs)
        function = self[func_name]
        before, profiler = self._instrument, runtime.profiler.Profiler()
        self.set_instrument(profiler)
        try:
            function(*values)
            report = profiler.report()
        finally:
            self.set_instrument(before)
        report.hot_shapes = self.hot_shapes()
        return report

    def time_evaluator(
        self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, *further: Any, **options: Any
    ) -> Any:
        """Return a function that times `func_name`; see :meth:`Module.time_evaluator`.

        A saved function is timed with the least around it. The name ``"invoke_stateful"`` times a run on the inputs
        that were set: ``vm.time_evaluator("invoke_stateful", dev)("main")``.
        """
        options |= zip(
            ("min_repeat_ms", "cooldown_interval_ms", "repeats_to_cooldown", "f_preproc"), further, strict=False
        )
        if func_name == "invoke_stateful":

            def evaluate(name: str) -> BenchmarkResult:
                return runtime.time_function(
                    _invoke_stateful, [self._handle, name], number=number, repeat=repeat, **options
                )

            return evaluate
        self[func_name]
        return self.module.time_evaluator(func_name, dev, number=number, repeat=repeat, **options)
