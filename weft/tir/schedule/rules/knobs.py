"""Choices that rules leave open: each has a name, candidates and a default, which is what a rule takes by itself.

``ctx.choose("unroll", (1, 2, 4, 8), 4)`` returns 4 unless a decision for that name says otherwise. What was asked is
noted, so that one run of the rules lists the choices there are; a tuner decides them, and a database keeps what was
found to be best.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Knob(NamedTuple):
    """A choice that a rule asked for: candidates (numbers, strings, or tuples of them) and what was chosen."""

    candidates: tuple[Any, ...]
    default: Any
    chosen: Any


@dataclass
class Knobs:
    """Decisions by name, and the choices that were asked for while a function was scheduled.

    Parameters
    ----------
    decisions : mapping of str to value
        Values for choices; those that are not named take their defaults.
    """

    decisions: Mapping[str, Any] = field(default_factory=dict)
    asked: dict[str, Knob] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def choose(self, name: str, candidates: Sequence[Any], default: Any) -> Any:
        """Return the decision for a choice, or its default; a decision that is no candidate goes to ``refused``."""
        options = tuple(dict.fromkeys([default, *candidates]))
        chosen = default
        if name in self.decisions:
            value = _frozen(self.decisions[name])
            if value in options:
                chosen = value
            else:
                self.refused.append(name)
        self.asked[name] = Knob(options, default, chosen)
        return chosen

    def signature(self) -> str:
        """Name the choices and their candidates, to tell whether decisions were made for the same ones."""
        text = json.dumps({name: [k.candidates, k.default] for name, k in sorted(self.asked.items())})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def unused(self) -> list[str]:
        """List the decisions that were refused or that nobody asked for."""
        return [*self.refused, *(name for name in self.decisions if name not in self.asked)]


def _frozen(value: Any) -> Any:
    """Tuples for the lists that a file has in their place."""
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value
