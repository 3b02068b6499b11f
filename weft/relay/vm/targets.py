"""What a program is compiled for: one target, or a device each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.error import InvalidArgument
from weft.relay.op.annotation import device_name
from weft.target import Target


@dataclass(frozen=True)
class Targets:
    """The devices of the machine's list and their targets; the machine itself adds a CPU if there is none."""

    devices: tuple[str, ...]
    targets: tuple[Target, ...]

    @staticmethod
    def of(target: Any = None, host: Any = None) -> Targets:
        """Read what a program gives as targets.

        Parameters
        ----------
        target : Target, str, sequence of them, or mapping of device to them
            A sequence stands for devices of these kinds, numbered from 0. None is the target whose ``with`` block this
            is in, or the host's CPU.
        host : Target or str, optional
            Where the machine runs, for targets that are no CPU.
        """
        if isinstance(target, Mapping) and not any(isinstance(k, str) and k == "kind" for k in target):
            if not target:
                raise InvalidArgument("there is no target", expected="{device: target}")
            pairs = [(device_name(k), _target(t, host)) for k, t in target.items()]
            return Targets(tuple(d for d, _ in pairs), tuple(t for _, t in pairs))
        if isinstance(target, (list, tuple)) and target:
            targets = tuple(_target(t, host) for t in target)
        else:
            targets = (_target(target or Target.current() or "llvm", host),)
        count: Counter[str] = Counter()
        names: list[str] = []
        for t in targets:
            device = t.kind.device
            names.append(f"{device}:{count[device]}")
            count[device] += 1
        return Targets(tuple(names), targets)

    @property
    def host(self) -> int:
        """The place of the CPU that holds shapes and scalars."""
        return next((i for i, d in enumerate(self.devices) if d.startswith("cpu:")), len(self.devices))

    @property
    def host_target(self) -> Target:
        """The target of that CPU."""
        return self.targets[self.host] if self.host < len(self.targets) else self.targets[0].host or Target("llvm")

    @property
    def is_plain(self) -> bool:
        """Whether the host is all there is."""
        return len(self.devices) == 1 and self.host == 0


def _target(target: Any, host: Any) -> Target:
    made = target if isinstance(target, Target) else Target(target)
    return made if host is None or made.host is not None else Target(made, host)
