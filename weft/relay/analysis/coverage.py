"""Which values no clause of a match covers.

The clauses are the rows of a matrix of patterns. Its first column is split by the constructors of the data type that
stand in it; what none of the rows covers then is a pattern for the values that are missed (Maranget, "Warnings for
pattern matching", 2007).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from weft import error, ir
from weft.relay import adt
from weft.relay.expr import Function
from weft.relay.typing import Program
from weft.relay.walk import subexpressions

_MOST = 64  # patterns that are listed; a match that misses more is no better explained by them
_Row = tuple[adt.Pattern, ...]
_WARNED: WeakSet[Any] = WeakSet()  # patterns of the first clauses of matches that were warned of


_SHOWN: dict[Any, int] = {}


class UnmatchedWarning(UserWarning):
    """A match says that its clauses cover all values, and they do not."""


def warn_unmatched(program: Program | list[ir.Node], mod: ir.IRModule | None = None, *, repeat: bool = True) -> None:
    """Warn of each match that says to be complete and is not: of the constructor that is missing, and where.

    Parameters
    ----------
    program : IRModule, Expr or list of Match
        The program.
    mod : IRModule, optional
        The module that defines the data types, where `program` is none.
    repeat : bool
        Whether to warn again of a match that was warned of.
    """
    if isinstance(program, ir.IRModule):
        mod = program
        program = [e for f in mod.functions.values() if isinstance(f, Function) for e in subexpressions(f)]
    elif not isinstance(program, list):
        program = list(subexpressions(program))
    for m in program:
        if isinstance(m, adt.Match) and m.complete and m.clauses and (repeat or m.clauses[0].lhs not in _WARNED):
            try:
                cases = unmatched_cases(m, mod)
            except error.InvalidArgument:  # a constructor of no type: type inference says it better
                continue
            if cases:
                _WARNED.add(m.clauses[0].lhs)
                _warn(m, cases)


def keep_warned(old: adt.Pattern, new: adt.Pattern) -> None:
    """Note that a pattern took the place of another."""
    if old in _WARNED:
        _WARNED.add(new)


def _warn(m: adt.Match, cases: list[adt.Pattern]) -> None:
    listed = ", ".join(f"`{c}`" for c in cases[:4]) + (" and others" if len(cases) > 4 else "")
    text = f"a match does not cover {listed}"
    where = "" if m.span is None else "\n" + "\n".join(error.render_where(m.span))
    text += f"{where}\n  help: add a clause, or write `match?`; other values stop the program when it runs"
    if m.span is None:
        warnings.warn(text, UnmatchedWarning, stacklevel=3)
    else:
        warnings.warn_explicit(text, UnmatchedWarning, m.span.file, m.span.line, registry=_SHOWN)


def unmatched_cases(match: adt.Match, mod: ir.IRModule | None = None) -> list[adt.Pattern]:
    """List patterns for the values that no clause of a match covers.

    Parameters
    ----------
    match : Match
        The match; whether it says to be complete makes no difference.
    mod : IRModule
        The module that defines the data types.

    Returns
    -------
    patterns : list of Pattern
        At most 64; empty when each value has a clause. No two of them cover the same value.

    Raises
    ------
    InvalidArgument
        When the module does not define a data type of a pattern.
    """
    rows: list[_Row] = [(c.lhs,) for c in match.clauses]
    return [p for (p,) in itertools.islice(_uncovered(rows, 1, mod), _MOST)]


def _uncovered(rows: list[_Row], width: int, mod: ir.IRModule | None) -> Iterator[_Row]:
    """Yield rows of patterns for what no row covers."""
    if not rows or not width:
        if not rows:
            yield (adt.PatternWildcard(),) * width
        return
    heads = [r[0] for r in rows]
    made = next((h for h in heads if isinstance(h, adt.PatternConstructor)), None)
    if made is not None:
        for c in _definition(made.constructor, mod).constructors:
            yield from _split(rows, width, len(c.inputs), c, mod)
        return
    fields = next((h for h in heads if isinstance(h, adt.PatternTuple)), None)
    if fields is not None:
        yield from _split(rows, width, len(fields.patterns), None, mod)
        return
    for rest in _uncovered([r[1:] for r in rows], width - 1, mod):
        yield (adt.PatternWildcard(), *rest)


def _split(
    rows: list[_Row], width: int, fields: int, c: adt.Constructor | None, mod: ir.IRModule | None
) -> Iterator[_Row]:
    """Yield what is not covered of the values that a constructor makes; None makes tuples."""
    fitting = [(*inner, *r[1:]) for r in rows if (inner := _fields(r[0], fields, c)) is not None]
    for row in _uncovered(fitting, fields + width - 1, mod):
        head = adt.PatternTuple(row[:fields]) if c is None else adt.PatternConstructor(c, row[:fields])
        yield (head, *row[fields:])


def _fields(p: adt.Pattern, count: int, c: adt.Constructor | None) -> _Row | None:
    """Return a pattern's fields as far as it covers values of a constructor, else None."""
    if isinstance(p, adt.PatternConstructor) and (c is None or p.constructor.name_hint != c.name_hint):
        return None
    given = p.patterns if isinstance(p, (adt.PatternConstructor, adt.PatternTuple)) else ()
    return (*given, *(adt.PatternWildcard(),) * count)[:count]


def _definition(c: adt.Constructor, mod: ir.IRModule | None) -> adt.TypeData:
    found: Any = adt.type_data(mod, c) if mod is not None else None
    if found is None:
        raise error.InvalidArgument(
            f"there is no data type '{c.belong_to.name_hint}', which constructor '{c.name_hint}' belongs to",
            expected="a module that defines it",
            found="no module" if mod is None else ", ".join(g.name_hint for g in mod.type_definitions) or "none",
        )
    return found
