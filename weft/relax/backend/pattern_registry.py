"""The patterns that code generators take, by name: ``generator.what``."""

from collections.abc import Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.relax.transform.fuse_by_pattern import FusionPattern

_PATTERNS: list[FusionPattern] = []


def register_patterns(patterns: Sequence[Any]) -> None:
    """Register patterns, or tuples of what a :class:`FusionPattern` takes; later ones are tried first."""
    for p in patterns:
        if not isinstance(p, (FusionPattern, tuple)):
            raise InvalidArgument("a pattern is a FusionPattern or a tuple", found=type(p).__name__)
        made = p if isinstance(p, FusionPattern) else FusionPattern(*p)
        _PATTERNS[:] = [q for q in _PATTERNS if q.name != made.name]
        _PATTERNS.append(made)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """Return the patterns whose names begin so, those first that are tried first."""
    return [p for p in reversed(_PATTERNS) if p.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """Return the pattern of a name, or None."""
    return next((p for p in _PATTERNS if p.name == name), None)
