"""Virtual machines far away: what a server offers of one, and what its client makes of that; TVM's functions.

An executable has ``vm_load_executable``, which makes a module of ``vm_initialization``, ``set_input``,
``invoke_stateful``, ``get_output`` and so on, and of the program's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.rpc import codec
from weft.rpc.service import ServedModule
from weft.runtime import Device, Module, VirtualMachine
from weft.runtime.vm import arguments_in_order

_EXECUTABLES = ("weft.Executable", "relax.VMExecutable", "weft.RelayExecutable")
_ALLOCATORS = {1: "naive", 2: "pooled"}


def served_function(module: Module, name: str) -> Callable[..., Any] | None:
    """A function of an executable that the native module does not have, or None."""
    if name == "vm_load_executable" and module.kind in _EXECUTABLES:
        return lambda: ServedMachine(module)
    return None


class ServedMachine(ServedModule):
    """A virtual machine as a module of functions.

    Parameters
    ----------
    executable : Module
        What it runs, once ``vm_initialization`` has said on which devices.
    """

    def __init__(self, executable: Module) -> None:
        self._executable = executable
        self._made: VirtualMachine | None = None
        self._results: dict[str, Any] = {}

    @property
    def _machine(self) -> VirtualMachine:
        if self._made is None:
            raise InvalidArgument("the virtual machine has no devices yet", help="call vm_initialization first")
        return self._made

    @property
    def _relay(self) -> bool:
        return self._executable.kind == "weft.RelayExecutable"

    def function(self, name: str) -> Callable[..., Any] | None:
        """A function of the machine, else one of the program."""
        own = getattr(self, f"_do_{name}", None)
        if own is not None:
            return own
        try:
            return self._machine[name].plain
        except InvalidArgument:
            return None

    def _do_vm_initialization(self, *flat: int) -> None:
        rows = [flat[i : i + 3] for i in range(0, len(flat), 3)]
        devices = [Device(kind, index) for kind, index, _ in rows]
        allocators = {Device(kind, index): _ALLOCATORS.get(a, "pooled") for kind, index, a in rows}
        self._made = VirtualMachine(self._executable, devices, allocators)

    def _do_set_input(self, name: str, *args: Any) -> None:
        self._machine.set_input(name, *args)

    def _do_invoke_stateful(self, name: str) -> None:
        if self._relay:
            self._results[name] = self._machine.invoke(name)  # pyright: ignore[reportAttributeAccessIssue] - Relay's
        else:
            self._machine.invoke_stateful(name)

    def _do_get_output(self, name: str, *path: int) -> Any:
        out = self._results[name] if name in self._results else self._machine.get_outputs(name)
        for index in path:
            out = out[index]
        return out

    def _do_get_output_arity(self, name: str, *path: int) -> int:
        if self._relay:
            out = self._do_get_output(name, *path)
            return len(out) if isinstance(out, tuple) else -1
        return self._machine.get_output_arity(name, *path)

    def _do_get_function_arity(self, name: str) -> int:
        machine = self._machine
        return len(machine.executable.get_function_params(name)) if self._relay else machine.get_function_arity(name)

    def _do_get_function_param_name(self, name: str, index: int) -> str:
        if self._relay:
            return self._machine.executable.get_function_params(name)[index]
        return self._machine.get_function_param_name(name, index)

    def _do_save_function(self, name: str, saved: str, include_return: int, *args: Any) -> None:
        self._machine.save_function(name, saved, *args, include_return=bool(include_return))

    def _do_invoke_closure(self, closure: Any, *args: Any) -> Any:
        return self._machine.invoke_closure(closure, *args)

    def _do_set_instrument(self, instrument: Any) -> None:
        self._machine.set_instrument(instrument)


class RemoteVirtualMachine:
    """A virtual machine that runs where its executable lies.

    Made by ``relax.VirtualMachine(remote.load_module("model.so"), remote.cpu())``. Arguments are tensors of the
    session's devices; see :class:`weft.runtime.VirtualMachine`.
    """

    def __init__(self, rt_mod: Any, device: Any, memory_cfg: Any = None) -> None:
        self.devices = list(device) if isinstance(device, (list, tuple)) else [device]
        kinds = {None: 2, "pooled": 2, "naive": 1}
        flat: list[int] = []
        for d in [*self.devices, *([] if any(d.device_type % 128 == 1 for d in self.devices) else [Device("cpu")])]:
            kind = memory_cfg.get(d) if isinstance(memory_cfg, dict) else memory_cfg
            if kind not in kinds:
                raise InvalidArgument("unknown allocator", expected="'pooled' or 'naive'", found=repr(kind))
            flat += [d.device_type % 128, d.device_id, kinds[kind]]
        self.module = codec.answered(rt_mod["vm_load_executable"](), Module)
        self.module["vm_initialization"](*flat)
        self._functions: dict[str, Any] = {}

    def _do(self, name: str, *args: Any) -> Any:
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self.module[name]
        return found(*args)

    def __getitem__(self, name: str) -> Any:
        """A function of the program, or a saved one."""
        return self.module[name]

    def get_function_arity(self, func_name: str) -> int:
        """Return how many parameters a function of the executable has."""
        return codec.answered(self._do("get_function_arity", func_name), int)

    def get_function_param_name(self, func_name: str, index: int) -> str:
        """Return the name of one parameter of a function of the executable."""
        return codec.answered(self._do("get_function_param_name", func_name, index), str)

    def _arguments(self, func_name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        if not kwargs:
            return list(args)
        count = self.get_function_arity(func_name)
        names = [self.get_function_param_name(func_name, i) for i in range(count)]
        return arguments_in_order(func_name, names, args, kwargs)

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure that a function of this machine returned."""
        return self._do("invoke_closure", closure, *args)

    def save_function(
        self, func_name: str, saved_name: str, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Bind arguments to a function and keep it as ``vm[saved_name]``, which takes none."""
        values = self._arguments(func_name, args, kwargs)
        self._do("save_function", func_name, saved_name, int(include_return), *values)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function and return its outputs, of which a tuple comes as a tuple."""
        self.set_input(func_name, *args, **kwargs)
        self.invoke_stateful(func_name)
        return self.get_outputs(func_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main``."""
        return self.invoke("main", *args, **kwargs)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a later :meth:`invoke_stateful`."""
        self._do("set_input", func_name, *self._arguments(func_name, args, kwargs))

    def invoke_stateful(self, func_name: str) -> None:
        """Run a function on the inputs that were set, and keep its output."""
        self._do("invoke_stateful", func_name)

    def get_outputs(self, func_name: str) -> Any:
        """The output of the last :meth:`invoke_stateful`; a tuple comes as a tuple."""
        return self._outputs(func_name)

    def _outputs(self, func_name: str, *path: int) -> Any:
        arity = self.get_output_arity(func_name, *path)
        if arity < 0:
            return self._do("get_output", func_name, *path)
        return tuple(self._outputs(func_name, *path, i) for i in range(arity))

    def get_output_arity(self, func_name: str, *path: int) -> int:
        """Number of items of an output, -1 when it is not a tuple."""
        return codec.answered(self._do("get_output_arity", func_name, *path), int)

    def set_instrument(self, instrument: Any) -> None:
        """Call a function, also one of this process, before and after every ``Call`` instruction."""
        self._do("set_instrument", instrument)

    def time_evaluator(self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, **options: Any) -> Any:
        """Return a function that times `func_name` where it runs; see :meth:`Module.time_evaluator`."""
        return self.module.time_evaluator(func_name, dev, number=number, repeat=repeat, **options)
