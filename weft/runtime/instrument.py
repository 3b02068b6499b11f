"""Instruments in Python: what the virtual machine calls before and after each call, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi

from weft.ffi import convert_func, wrap, wrappers
from weft.runtime.executable import VMFuncInfo

__all__ = ["set_instrument"]

_set = tvm_ffi.get_global_func("weft.vm_set_instrument")
_function_value = tvm_ffi.get_global_func("weft.vm_function_value")


def set_instrument(machine: tvm_ffi.Module, functions: list[VMFuncInfo], instrument: Callable[..., Any] | None) -> None:
    """Set a machine's instrument, see `VirtualMachine.set_instrument`.

    A native function gets the documented arguments. For a Python callable the machine passes less and the rest comes
    from here: functions are converted once for each, and the arguments of a call once for both callbacks.

    Parameters
    ----------
    machine : tvm_ffi.Module
        The virtual machine.
    functions : list of VMFuncInfo
        Its executable's function table.
    instrument : callable or None
        The instrument; None removes it.
    """
    if instrument is None or isinstance(instrument, tvm_ffi.Function):
        _set(machine, None if instrument is None else convert_func(instrument), False)
        return
    known: dict[int, tuple[Any, str]] = {}
    running: dict[int, tuple[Any, str, list[Any]]] = {}  # by frame: the call that is under way

    def call(frame: int, index: int, *values: Any) -> int:
        if index < 0:
            func, name, args = running.pop(frame)
            (ret,) = values
            wrapper = wrappers[type(ret)]
            answer = instrument(func, name, False, ret if wrapper is None else wrapper(ret), *args)
        else:
            if index not in known:
                known[index] = wrap(_function_value(machine, index)), functions[index].name
            func, name = known[index]
            args = [v if (w := wrappers[type(v)]) is None else w(v) for v in values]
            answer = instrument(func, name, True, None, *args)
            if answer == 1:
                return 1
            running[frame] = func, name, args
        return 0

    _set(machine, tvm_ffi.convert(call), True)
