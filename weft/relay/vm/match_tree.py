"""The clauses of a match as a decision tree: each place of the value is looked at once on a path.

A place (`Place`) is the path of fields from the matched value: ``()`` is the value, ``(1, 0)`` the first field of its
second field. Places of tuples and of types with one constructor need no test.

Source: Maranget, "Compiling pattern matching to good decision trees", 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.relay.adt import Clause, Constructor, Pattern, PatternConstructor, PatternTuple, PatternVar
from weft.relay.expr import Var

Place = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """A clause matched: which, and the places that its variables name."""

    clause: int
    bindings: tuple[tuple[Var, Place], ...]


@dataclass(frozen=True)
class Fail:
    """No clause matches; `missing` is a pattern of such values."""

    missing: str


@dataclass(frozen=True)
class Switch:
    """Continue by the constructor at a place; `default`, where there is one, for all that the cases do not name."""

    place: Place
    cases: tuple[tuple[Constructor, Tree], ...]
    default: Tree | None


Tree = Leaf | Fail | Switch


@dataclass(frozen=True)
class _Row:
    """What is still to be tested of a clause."""

    tests: dict[Place, PatternConstructor]
    bindings: tuple[tuple[Var, Place], ...]
    clause: int


def decision_tree(clauses: tuple[Clause, ...], siblings: Callable[[Constructor], tuple[Constructor, ...]]) -> Tree:
    """Order the tests of a match.

    Parameters
    ----------
    clauses : tuple of Clause
        The first that matches is taken.
    siblings : callable
        Gives all constructors of the type that a constructor belongs to.
    """

    def row(index: int, pattern: Pattern) -> _Row:
        tests, bindings = _requirements(pattern, (), siblings)
        return _Row(tests, tuple(bindings), index)

    known: dict[Place, Any] = {}
    for c in clauses:
        _forms(c.lhs, (), siblings, known)
    return _grow([row(i, c.lhs) for i, c in enumerate(clauses)], known, siblings)


def _forms(pattern: Pattern, place: Place, siblings: Any, known: dict[Place, Any]) -> None:
    """Note what is known without a test, for messages: the lengths of tuples, and constructors without siblings."""
    if isinstance(pattern, PatternTuple):
        known[place] = len(pattern.patterns)
    elif isinstance(pattern, PatternConstructor) and len(siblings(pattern.constructor)) == 1:
        known[place] = pattern.constructor
    else:
        return
    for i, p in enumerate(pattern.patterns):
        _forms(p, (*place, i), siblings, known)


def _requirements(
    pattern: Pattern, place: Place, siblings: Callable[[Constructor], tuple[Constructor, ...]]
) -> tuple[dict[Place, PatternConstructor], list[tuple[Var, Place]]]:
    """The constructors that must be found, and where variables are; fields of what is to be tested come later."""
    tests: dict[Place, PatternConstructor] = {}
    bindings: list[tuple[Var, Place]] = []
    rest = [(pattern, place)]
    while rest:
        p, at = rest.pop()
        if isinstance(p, PatternVar):
            bindings.append((p.var, at))
        elif isinstance(p, PatternConstructor) and len(siblings(p.constructor)) > 1:
            tests[at] = p
        elif isinstance(p, (PatternTuple, PatternConstructor)):
            rest += [(q, (*at, i)) for i, q in reversed(list(enumerate(p.patterns)))]
    return tests, bindings


def _grow(rows: list[_Row], known: dict[Place, Any], siblings: Any) -> Tree:
    if not rows:
        return Fail(_missing((), known))
    first = rows[0]
    if not first.tests:
        return Leaf(first.clause, first.bindings)
    place = max(first.tests, key=lambda p: (sum(p in r.tests for r in rows), [-i for i in p]))
    found = {c.tag: c for c in (r.tests[place].constructor for r in reversed(rows) if place in r.tests)}
    cases = tuple(
        (c, _grow([s for r in rows if (s := _under(r, place, c, siblings)) is not None], {**known, place: c}, siblings))
        for c in reversed(found.values())
    )
    others = [c for c in siblings(cases[0][0]) if c.tag not in found]
    default = None
    if others:
        left = " | ".join(_pattern(c) for c in others)
        default = _grow([r for r in rows if place not in r.tests], {**known, place: left}, siblings)
    return Switch(place, cases, default)


def _under(row: _Row, place: Place, constructor: Constructor, siblings: Any) -> _Row | None:
    """What is left of a row when a constructor has been found at a place."""
    test = row.tests.get(place)
    if test is None:
        return row
    if test.constructor.tag != constructor.tag:
        return None
    tests = {p: t for p, t in row.tests.items() if p != place}
    bindings = list(row.bindings)
    for i, q in enumerate(test.patterns):
        more, names = _requirements(q, (*place, i), siblings)
        tests |= more
        bindings += names
    return _Row(tests, tuple(bindings), row.clause)


def _pattern(c: Constructor) -> str:
    return c.name_hint + (f"({', '.join('_' for _ in c.inputs)})" if c.inputs else "")


def _missing(place: Place, known: dict[Place, Any]) -> str:
    """A pattern of the values that reach a failure; what is known of a place is text, a constructor or a length."""
    here = known.get(place, "_")
    if isinstance(here, str):
        return here
    n, name = (here, "") if isinstance(here, int) else (len(here.inputs), here.name_hint)
    fields = ", ".join(_missing((*place, i), known) for i in range(n))
    return f"{name}({fields})" if n or not name else name
