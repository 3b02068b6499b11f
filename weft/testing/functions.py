"""Packed functions that tests call across the language border."""

import ctypes
from typing import Any

from weft import error, ffi, runtime


def _nop(*args: Any) -> None:
    pass


ffi.register_global_func("testing.echo", lambda value, *_: value, override=True)
ffi.register_global_func("testing.nop", _nop, override=True)


def _function(name: str) -> ffi.PackedFunc:
    function = ffi.get_global_func(name)
    assert function is not None
    return function


echo = _function("testing.echo")
"""Return the argument, after it crossed the border both ways."""
identity_cpp = echo
nop = _function("testing.nop")
"""Take anything, return nothing."""


def device_test(dev: runtime.Device, type_id: int, device_id: int) -> runtime.Device:
    """Return a device that has a type and an index.

    Raises
    ------
    InvalidArgument
        When it has others.
    """
    if (int(dev.device_type), int(dev.index)) != (int(type_id), int(device_id)):
        raise error.InvalidArgument("this is another device", expected=f"{type_id}, {device_id}", found=str(dev))
    return dev


def object_use_count(value: object) -> int:
    """Return how many references native code and Python hold to a runtime object.

    Every runtime object starts with its strong count in the low 32 bits of a 64-bit word.
    """
    handle: Any = getattr(value, "__tvm_ffi_object__", lambda: value)()
    return ctypes.c_uint64.from_address(handle.__chandle__()).value & 0xFFFFFFFF
