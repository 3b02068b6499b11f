"""A device that a program is compiled for: what kind, which of those, with which target, in which memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.runtime import Device
from weft.runtime import device as as_device

_UNKNOWN = -1


@dataclass(frozen=True, init=False)
class VirtualDevice:
    """A device, and how code for it is made.

    Parameters
    ----------
    device : Device, str or int, optional
        The device, such as ``weft.cuda(0)``; where it is left out nothing is said.
    target : Target, optional
        What code for it is made.
    memory_scope : str
        The memory of it, ``"global"``; ``""`` says nothing.
    """

    device_type_int: int
    virtual_device_id: int
    target: Any
    memory_scope: str

    def __init__(self, device: Any = None, target: Any = None, memory_scope: str = "") -> None:
        kind, index = _UNKNOWN, _UNKNOWN
        if device is not None:
            kind, index = (Device(device) if isinstance(device, int) else as_device(device)).__dlpack_device__()
        for name, value in (("device_type_int", int(kind)), ("virtual_device_id", int(index)), ("target", target),
                            ("memory_scope", memory_scope)):  # fmt: skip
            object.__setattr__(self, name, value)

    def __dlpack_device__(self) -> tuple[int, int]:
        """What functions take it for: a device."""
        return self.device_type_int, self.virtual_device_id

    @property
    def device_type(self) -> int:
        """The number of the device's kind, -1 where nothing is said."""
        return self.device_type_int

    @property
    def device(self) -> Device | None:
        """The device; None where nothing is said."""
        return None if self.device_type_int == _UNKNOWN else Device(self.device_type_int, self.virtual_device_id)
