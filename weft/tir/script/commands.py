"""What the statements of a TIR script evaluate to before they become nodes.

Loops, scopes, and facts about the block under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from weft.ir import IntImm, IterVar, PrimExpr, Range
from weft.tir.buffer import Buffer
from weft.tir.stmt import ForKind, Stmt


class Loops(NamedTuple):
    """Loops, outermost first: what follows ``in`` of a ``for``."""

    kind: ForKind
    ranges: tuple[Range, ...]
    annotations: Any = None
    thread: str | None = None
    binding: IterVar | None = None
    var: Any = None
    step: int = 1

    def values(self) -> Iterator[int]:
        """Count through a single constant loop, for comprehensions."""
        (r,) = self.ranges
        assert isinstance(r.min, IntImm)
        assert isinstance(r.extent, IntImm)
        return iter(range(r.min.value, r.min.value + r.extent.value, self.step))


class Scope(NamedTuple):
    """A statement that holds others.

    ``make(value, body, parser)`` builds it, `value` is what a name after ``as`` or before ``=`` binds.
    """

    value: Any
    make: Callable[[Any, Stmt, Any], Stmt]
    kind: str = ""
    annotations: Any = None


class BlockScope(NamedTuple):
    """``with T.sblock(name)``."""

    name: str


class IfScope(NamedTuple):
    """``with T.If(condition)``."""

    condition: PrimExpr


class Branch(NamedTuple):
    """``with T.Then()`` or ``with T.Else()``."""

    holds: bool


class WhileScope(NamedTuple):
    """``with T.While(condition)``."""

    condition: PrimExpr


class InitScope(NamedTuple):
    """``with T.init()``."""


class BlockFact(NamedTuple):
    """A fact about the block (or, for ``func_attr``, the function) under way."""

    kind: str
    value: Any


class Axis(NamedTuple):
    """One iteration variable of a block with its value."""

    iter_type: str
    dom: Any
    value: PrimExpr
    dtype: str | None = None
    thread_tag: str = ""


class Remap(NamedTuple):
    """Iteration variables that run over whole loops."""

    kinds: str
    values: tuple[PrimExpr, ...]


class AllocBlockBuffer(NamedTuple):
    """A buffer that lives in the block under way."""

    buffer: Buffer


class MatchBuffer(NamedTuple):
    """A buffer that names a parameter's memory or a region of another buffer."""

    source: Any
    buffer: Buffer


class LetAnnotation(NamedTuple):
    """``T.let[T.int32]``."""

    dtype: str | None
