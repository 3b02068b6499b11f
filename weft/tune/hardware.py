"""Where a measurement counts: the machine's features, the number of threads, and the compiler that made the code."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import weft
from weft.runtime import num_threads
from weft.target import Target


class Hardware(NamedTuple):
    """What has to agree for a measurement to mean something here: the target with its features, threads, version."""

    target: str
    threads: int
    weft: str

    @classmethod
    def of(cls, target: Target) -> Hardware:
        """Describe the machine that a target is, and its code on it: this one has the threads that are set."""
        threads = target.machine.cores if target.is_elsewhere else num_threads()
        return cls(target.described_text, threads, weft.__version__)

    @property
    def key(self) -> str:
        """A short name, the same in every process."""
        return hashlib.sha256("\n".join(map(str, self)).encode()).hexdigest()[:16]

    def differences(self, other: Hardware) -> str:
        """Say what is different about another one, in words."""
        said = []
        if self.threads != other.threads:
            said.append(f"{other.threads} threads, here {self.threads}")
        if self.weft != other.weft:
            said.append(f"Weft {other.weft}, here {self.weft}")
        if self.target != other.target:
            here, there = _features(self.target), _features(other.target)
            missing, more = sorted(there - here), sorted(here - there)
            parts = [f"with {_some(missing)}"] if missing else []
            parts += [f"without {_some(more)}"] if more else []
            said.append(f"a target {' and '.join(parts)}" if parts else f"target '{other.target}'")
        return "; ".join(said)


def _features(target: str) -> set[str]:
    return {word for word in target.replace(",", " ").replace("-mattr=", " ").split() if not word.startswith("+-")}


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
