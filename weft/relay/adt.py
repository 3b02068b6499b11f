"""Algebraic data types: their definitions, constructors, patterns and matches."""

from __future__ import annotations

from typing import Any

from msgspec.structs import force_setattr

from weft import ir
from weft.ir.structural import BIND
from weft.relay.expr import Operators, Var
from weft.relay.types import FuncType, GlobalTypeVar, TypeCall, TypeVar


class Constructor(Operators, ir.TypedExpr):
    """A constructor of a data type: the types of its fields, and the type it belongs to.

    ``tag`` tells it apart from the other constructors of its type at run time: 1, 2, … in the order of the definition
    (0 is a tuple). The definition, :class:`TypeData`, sets it, and ``ty``: a function from the fields to the type.
    """

    name_hint: str
    inputs: tuple[ir.Type, ...]
    belong_to: GlobalTypeVar
    tag: int = -1

    __uncompared__ = ("ty", "inputs", "tag")


class TypeData(ir.Type):
    """The definition of a data type: ``type List[A] { Cons(A, List[A]), Nil, }``."""

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    __binders__ = (("type_vars", BIND),)

    def __post_init__(self) -> None:
        for f in ("type_vars", "constructors"):
            if type(getattr(self, f)) is not tuple:
                force_setattr(self, f, tuple(getattr(self, f)))
        made = TypeCall(self.header, self.type_vars)
        for i, c in enumerate(self.constructors):
            force_setattr(c, "tag", i + 1)
            force_setattr(c, "ty", FuncType(c.inputs, made, self.type_vars))


class Pattern(ir.Node, abstract=True):
    """What a value is compared with."""


class PatternWildcard(Pattern):
    """``_``: matches anything."""


class PatternVar(Pattern):
    """Matches anything and names it."""

    var: Var

    __binders__ = (("var", BIND),)


class PatternConstructor(Pattern):
    """Matches values that a constructor made, whose fields match."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        if type(self.patterns) is not tuple:
            force_setattr(self, "patterns", tuple(self.patterns or ()))


class PatternTuple(Pattern):
    """Matches tuples whose fields match."""

    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        if type(self.patterns) is not tuple:
            force_setattr(self, "patterns", tuple(self.patterns or ()))


class Clause(ir.Node):
    """``lhs => rhs``: what a match gives for values that match the pattern."""

    lhs: Pattern
    rhs: ir.Expr


class Match(Operators, ir.TypedExpr):
    """The right-hand side of the first clause whose pattern matches.

    ``complete`` says that the clauses cover all values; type inference checks it.
    """

    data: ir.Expr
    clauses: tuple[Clause, ...]
    complete: bool = True

    def __post_init__(self) -> None:
        if type(self.clauses) is not tuple:
            force_setattr(self, "clauses", tuple(self.clauses))


def type_data(mod: ir.IRModule, header: GlobalTypeVar | str | Constructor) -> TypeData | Any:
    """Find a definition by its name, its type variable or one of its constructors; None where there is none."""
    if isinstance(header, Constructor):
        header = header.belong_to
    name = header if isinstance(header, str) else header.name_hint
    return next((d for g, d in mod.type_definitions.items() if g.name_hint == name), None)
