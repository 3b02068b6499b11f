"""Packed functions that tests call across the language border."""

from __future__ import annotations

import ctypes
from typing import Any

from weft.ffi import PackedFunc, get_global_func, register_global_func
from weft.runtime import Device

__all__ = ["device_test", "echo", "identity_cpp", "nop", "object_use_count"]


def _echo(value: Any, *_: Any) -> Any:
    return value


def _nop(*args: Any) -> None:
    pass


register_global_func("testing.echo", _echo, override=True)
register_global_func("testing.nop", _nop, override=True)


def _function(name: str) -> PackedFunc:
    function = get_global_func(name)
    assert function is not None
    return function


echo = _function("testing.echo")
"""Return the argument, after it crossed the border both ways."""
identity_cpp = echo
nop = _function("testing.nop")
"""Take anything, return nothing."""


def device_test(dev: Device, type_id: int, device_id: int) -> bool:
    """Whether a device has a type and an index."""
    return int(dev.device_type) == type_id and int(dev.index) == device_id


def object_use_count(value: Any) -> int:
    """Return how many references native code and Python hold to a runtime object.

    Every runtime object starts with its strong count in the low 32 bits of a 64-bit word.
    """
    handle = getattr(value, "__tvm_ffi_object__", lambda: value)()
    return ctypes.c_uint64.from_address(handle.__chandle__()).value & 0xFFFFFFFF
