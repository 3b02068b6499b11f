"""Instruments in Python: what the virtual machine calls before and after each call, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi

from weft.ffi import convert_func, wrap

_set = tvm_ffi.get_global_func("weft.vm_set_instrument")
_call_values = tvm_ffi.get_global_func("weft.vm_call_values")


def set_instrument(machine: tvm_ffi.Module, instrument: Callable[..., Any] | None) -> None:
    """Set a machine's instrument, see `VirtualMachine.set_instrument`.

    A native function gets the documented arguments. For a Python callable the machine passes less, since converting
    values takes most of the time: those of an instruction itself are converted once, the others once for both
    callbacks.

    Parameters
    ----------
    machine : tvm_ffi.Module
        The virtual machine.
    instrument : callable or None
        The instrument; None removes it.
    """
    if instrument is None or isinstance(instrument, tvm_ffi.Function):
        _set(machine, None if instrument is None else convert_func(instrument), False)
        return
    # Arguments of the instrument, and where values of registers go: by instruction, and by frame of a call under way.
    known: dict[int, tuple[list[Any], list[int]]] = {}
    running: dict[int, list[Any]] = {}

    def call(frame: int, instruction: int, *values: Any) -> int:
        if instruction < 0:
            args = running.pop(frame)
            args[2] = False
            ret = values[0]
            if ret is not None:
                args[3] = wrap(ret)
            instrument(*args)
            return 0
        try:
            template, places = known[instruction]
        except KeyError:
            template, places = known[instruction] = _known_values(instruction)
        args = template.copy()
        for place, value in zip(places, values):  # noqa: B905 - strict takes 100 ns
            args[place] = wrap(value)
        if instrument(*args) == 1:
            return 1
        running[frame] = args
        return 0

    _set(machine, tvm_ffi.convert(call), True)


def _known_values(instruction: int) -> tuple[list[Any], list[int]]:
    (func, name, *values), registers = _call_values(instruction)
    return [wrap(func), str(name), True, None, *map(wrap, values)], [4 + int(r) for r in registers]
