"""Questions about whole functions, under TVM's names."""

from __future__ import annotations

from collections.abc import Sequence

from weft.error import WeftError
from weft.ir import BaseFunc, IRModule, IterVar, Let, Node, Var, children, structural_equal, walk
from weft.ir.spec import verify
from weft.tir.stmt import AllocBuffer, DeclBuffer, For, LetStmt


def expr_deep_equal(lhs: Node, rhs: Node) -> bool:
    """Whether two expressions are written alike, of the same variables."""
    return structural_equal(lhs, rhs)


def verify_ssa(func: BaseFunc) -> bool:
    """Whether no variable is introduced twice in a function, by a loop, a binding or an axis of a block."""
    seen: set[Var] = set()
    visited: set[int] = set()
    stack: list[Node] = [func]
    while stack:
        n = stack.pop()
        var = n.loop_var if isinstance(n, For) else n.var if isinstance(n, (LetStmt, Let, IterVar)) else None
        if var is not None and var in seen and (not isinstance(n, IterVar) or id(n) not in visited):
            return False
        if var is not None:
            seen.add(var)
        visited.add(id(n))
        stack.extend(children(n))
    return True


def undefined_vars(node: Node, defs: Sequence[Var] = ()) -> list[Var]:
    """List the variables that are used below `node` and that neither it nor `defs` define, in order of first use."""
    known = set(defs) | set(getattr(node, "params", ()))
    for n in walk(node):
        if isinstance(n, For):
            known.add(n.loop_var)
        elif isinstance(n, (LetStmt, Let, IterVar)):
            known.add(n.var)
        elif isinstance(n, (AllocBuffer, DeclBuffer)):
            known.add(n.buffer.data)
    return [n for n in walk(node) if isinstance(n, Var) and n not in known]


def verify_well_formed(obj: IRModule | BaseFunc, assert_mode: bool = True) -> bool:
    """Whether names are introduced around their uses and data types agree.

    Raises
    ------
    ErrorGroup
        With `assert_mode`, where they do not: all violations, each under its statement.
    """
    try:
        verify(obj, "tir.well_formed")
    except WeftError:
        if assert_mode:
            raise
        return False
    return True
