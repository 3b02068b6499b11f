"""Questions about whole functions, under TVM's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.error import InvalidArgument, WeftError
from weft.ir import BaseFunc, IRModule, IterVar, Let, Node, Var, children, find, structural_equal, walk
from weft.ir.spec import verify
from weft.tir.stmt import AllocBuffer, AttrStmt, Block, DeclBuffer, For, LetStmt


def expr_deep_equal(lhs: Node, rhs: Node) -> bool:
    """Whether two expressions are written alike, of the same variables."""
    return structural_equal(lhs, rhs)


def verify_ssa(func: BaseFunc) -> bool:
    """Whether no variable is introduced twice in a function: as a parameter, by a loop, a binding or an axis."""
    try:
        _note_definitions(func, set())
    except InvalidArgument:
        return False
    return True


def undefined_vars(node: Node, defs: Sequence[Var] = ()) -> list[Var]:
    """List the variables that are used below `node` and that neither it nor `defs` define, in order of first use."""
    known = set(defs) | set(getattr(node, "params", ()))
    for n in walk(node):
        known.update(introduced(n))
        if isinstance(n, IterVar):
            known.add(n.var)
        elif isinstance(n, (AllocBuffer, DeclBuffer)):
            known.add(n.buffer.data)
    return [n for n in find(node, Var) if n not in known]


def verify_well_formed(obj: IRModule | BaseFunc, assert_mode: bool = True) -> bool:
    """Whether names are introduced around their uses, each at one place, and data types agree.

    A thread's index may be introduced at several places of one function.

    Raises
    ------
    ErrorGroup, InvalidArgument
        With `assert_mode`, where they do not: all violations, each under its statement, or a name of two places.
    """
    try:
        verify(obj, "tir.well_formed")
        seen: set[Var] = set()
        for func in obj.functions.values() if isinstance(obj, IRModule) else (obj,):
            _note_definitions(func, seen)
    except WeftError:
        if assert_mode:
            raise
        return False
    return True


def _note_definitions(func: BaseFunc, seen: set[Var]) -> None:
    """Add the variables that a function introduces to those `seen` so far, of which it may introduce none."""
    here: set[Var] = set()  # indices of threads
    lets: set[int] = set()  # one let may stand in several places
    around: set[Var] = set()
    stack: list[Any] = [func]
    while stack:
        n = stack.pop()
        if isinstance(n, frozenset):  # the variables whose scope ends here
            around -= n
            continue
        new = frozenset(introduced(n)) if id(n) not in lets else frozenset()
        for var in new & (around | seen if not isinstance(n, AttrStmt) else around | seen - here):
            nested = "nested " if var in around else ""
            raise InvalidArgument(
                f"ill-formed, due to multiple {nested}definitions of variable {var.name}",
                where=n.span,
                help="give each its own Var, or run ConvertSSA",
            )
        here |= new if isinstance(n, AttrStmt) else set()
        lets |= {id(n)} if isinstance(n, Let) else set()
        seen |= new
        around |= new
        stack += [new, *reversed([c for c in children(n) if not isinstance(c, Var)])]


def introduced(node: object) -> Iterator[Var]:
    """The variables that are known inside of a node, and not outside."""
    if isinstance(node, BaseFunc):
        yield from getattr(node, "params", ())
    elif isinstance(node, For):
        yield node.loop_var
    elif isinstance(node, (LetStmt, Let)):
        yield node.var
    elif isinstance(node, Block):
        yield from (iv.var for iv in node.iter_vars)
    elif isinstance(node, AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread"):
        yield from (node.node.var,) if isinstance(node.node, IterVar) else ()
