"""A device that a program is compiled for: what kind, which of those, with which target, in which memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft import error, ir
from weft.runtime import Device
from weft.runtime import device as as_device
from weft.target.target import Target

_UNKNOWN = -1
Kind = Target | str


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
        for name, value in (
            ("device_type_int", int(kind)),
            ("virtual_device_id", int(index)),
            ("target", target),
            ("memory_scope", memory_scope),
        ):
            object.__setattr__(self, name, value)

    def dlpack_device_type(self) -> int:
        """Return the kind of the device, by its number."""
        return self.device_type_int

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

    def __str__(self) -> str:
        return f"{self.device or '?'}{self.memory_scope and ' ' + self.memory_scope}"

    def join(self, other: VirtualDevice) -> VirtualDevice | None:
        """Return what says all that both say; None where they differ."""
        if self == other:
            return self
        made = VirtualDevice()
        for name, nothing in _NOTHING.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != nothing and theirs != nothing and mine != theirs and str(mine) != str(theirs):
                return None
            object.__setattr__(made, name, theirs if mine == nothing else mine)
        return made


def _saved(device: VirtualDevice) -> tuple[Any, ...]:
    return device.device_type_int, device.virtual_device_id, device.target, device.memory_scope


def _loaded(saved: tuple[Any, ...]) -> VirtualDevice:
    kind, index, target, scope = saved
    return VirtualDevice(None if kind == _UNKNOWN else Device(int(kind), int(index)), target, str(scope))


ir.register_json_form(VirtualDevice, "virtual_device", _saved, _loaded)
_NOTHING = {"device_type_int": _UNKNOWN, "virtual_device_id": _UNKNOWN, "target": None, "memory_scope": ""}


@dataclass(frozen=True)
class CompilationConfig:
    """The targets of operators, the host's, and the virtual devices of what nobody places and of shapes."""

    primitive_targets: tuple[Target, ...]
    host_target: Target
    default_primitive_virtual_device: VirtualDevice
    host_virtual_device: VirtualDevice

    def canonical(self, device: Any) -> VirtualDevice:
        """Return a device, given as one, by name or as a ``VirtualDevice``, with the target of its kind."""
        place = device if isinstance(device, VirtualDevice) else VirtualDevice(device)
        if place.target is not None:
            return place
        for target in self.primitive_targets:
            if target.get_target_device_type() == place.device_type_int:
                return VirtualDevice(place, target, place.memory_scope)
        kinds = ", ".join(t.kind.name for t in self.primitive_targets)
        raise error.InvalidArgument(
            "there is no target for a device of the program",
            found=str(place),
            expected=f"a device of {kinds}",
            help="compile with targets for all",
        )


def make_compilation_config(
    ctxt: ir.PassContext | None, target: Kind | Sequence[Kind] | Mapping[Any, Kind], target_host: Kind | None = None
) -> CompilationConfig:
    """Say what programs for some targets are planned with.

    Parameters
    ----------
    ctxt : PassContext
        Its ``relay.fallback_device_type`` is the kind of device of what nobody places; else that of the only target,
        or the CPU.
    target : Target, str, or list or mapping of them
        The targets.
    target_host : Target or str, optional
        The host; where it is left out, that of a target, or the first CPU.

    Raises
    ------
    InvalidArgument
        When there is no target for the default device.
    """
    given: Any = (
        target.values() if isinstance(target, dict) else target if isinstance(target, (list, tuple)) else (target,)
    )
    targets = tuple(map(Target, given))
    cpus = [t for t in targets if t.get_target_device_type() == 1]
    host = Target(next(h for h in (target_host, *(t.host for t in targets), *cpus, "llvm") if h)).with_host(None)
    targets = tuple(t.with_host(host) for t in targets)
    kinds = {t.get_target_device_type() for t in targets}
    asked = (ctxt or ir.PassContext()).config.get("relay.fallback_device_type")
    at_host = VirtualDevice(host.get_target_device_type(), host)
    config = CompilationConfig(targets, host, at_host, at_host)
    default = config.canonical(int(asked or (kinds.pop() if len(kinds) == 1 else 1)))
    return replace(config, default_primitive_virtual_device=default)
