"""Packed functions ``test.vm.*`` that programs under test call, and a check of saved functions.

They are registered when this module is imported.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ffi, runtime


def _registered(name: str) -> Callable[[Any], Any]:
    return ffi.register_global_func(f"test.vm.{name}", override=True)


@_registered("move")
def move(src: object) -> Any:
    """Return the argument."""
    return src


@_registered("add")
def add(a: runtime.Tensor, b: runtime.Tensor) -> runtime.Tensor:
    """Add two tensors."""
    return runtime.tensor(a.numpy() + b.numpy())


@_registered("mul")
def mul(a: runtime.Tensor, b: runtime.Tensor) -> runtime.Tensor:
    """Multiply two tensors."""
    return runtime.tensor(a.numpy() * b.numpy())


@_registered("equal_zero")
def equal_zero(a: runtime.Tensor) -> runtime.Tensor:
    """Tell whether all elements are zero, as a tensor of no dimensions."""
    return runtime.tensor(np.all(a.numpy() == 0))


@_registered("subtract_one")
def subtract_one(a: runtime.Tensor) -> runtime.Tensor:
    """Subtract one from each element."""
    return runtime.tensor(np.subtract(a.numpy(), 1))


@_registered("identity")
def identity_packed(a: runtime.Tensor, b: runtime.Tensor) -> None:
    """Copy the first tensor into the second."""
    b[:] = a


@_registered("tile")
def tile_packed(a: runtime.Tensor, b: runtime.Tensor) -> None:
    """Write the first tensor twice, side by side, into the second."""
    b[:] = runtime.tensor(np.tile(a.numpy(), (1, 2)))


@_registered("add_scalar")
def add_scalar(a: float, b: float) -> Any:
    """Add two numbers."""
    return a + b


@_registered("get_device_id")
def get_device_id(device: runtime.Device) -> int:
    """Return the index of a device among those of its kind."""
    return device.index


@_registered("check_if_defined")
def check_if_defined(obj: object) -> bool:
    """Tell whether a value is something else than null."""
    return obj is not None


def check_saved_func(vm: runtime.VirtualMachine, func_name: str, *inputs: Any) -> Any:
    """Call a function, check that it gives the same once its arguments are saved with it, and return its result."""
    saved_name = f"{func_name}_saved"
    vm.save_function(func_name, saved_name, *inputs)
    result = vm[func_name](*inputs)
    np.testing.assert_allclose(result.numpy(), vm[saved_name]().numpy(), rtol=1e-7, atol=1e-7)
    return result
