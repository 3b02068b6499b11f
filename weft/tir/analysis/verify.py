"""Questions about whole functions, under TVM's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.error import InvalidArgument, WeftError
from weft.ir import BaseFunc, CallIntrin, IRModule, IterVar, Let, Node, Op, Var, children, find, structural_equal, walk
from weft.ir.spec import verify
from weft.tir.analysis.access import has_no_effect, stores_of
from weft.tir.stmt import AllocBuffer, AttrStmt, Block, DeclBuffer, For, LetStmt


def expr_deep_equal(lhs: Node, rhs: Node) -> bool:
    """Whether two expressions are written alike, of the same variables."""
    return structural_equal(lhs, rhs)


def verify_ssa(func: BaseFunc) -> bool:
    """Whether no variable is introduced twice in a function: as a parameter, by a loop, a binding, an axis of a block.

    One binding in an expression may stand in several places.
    """
    seen: set[Var] = set(getattr(func, "params", ()))
    visited: set[int] = set()
    stack: list[Node] = [func]
    while stack:
        n = stack.pop()
        var = n.loop_var if isinstance(n, For) else n.var if isinstance(n, (LetStmt, Let, IterVar)) else None
        if var is not None and var in seen and (not isinstance(n, (IterVar, Let)) or id(n) not in visited):
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
    threads: set[Var] = set()
    around: set[Var] = set()
    stack: list[Any] = [func]
    while stack:
        n = stack.pop()
        if isinstance(n, frozenset):  # the variables whose scope ends here
            around -= n
            continue
        for var in _introduced(n):
            if var in around or (var in seen and not (var in threads and isinstance(n, AttrStmt))):
                nested = "nested " if var in around else ""
                raise InvalidArgument(f"ill-formed, due to multiple {nested}definitions of variable {var.name}",
                                      where=n.span, help="give each its own Var, or run ConvertSSA")  # fmt: skip
            threads |= {var} if isinstance(n, AttrStmt) else set()
            seen.add(var)
            around.add(var)
            stack.append(frozenset((var,)))
        stack.extend(reversed([c for c in children(n) if not isinstance(c, Var)]))


def _introduced(node: Any) -> Iterator[Var]:
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


def is_pure_function(func: BaseFunc) -> bool:
    """Whether a function writes no memory but what it allocates itself and calls nothing that has an effect."""
    own = {n.buffer for n in find(func, AllocBuffer)} | {b for n in find(func, Block) for b in n.alloc_buffers}
    owned = {b.data for b in own}
    calls = (n for n in find(func, CallIntrin) if n.op is not Op.get("tir.ret"))
    return all(s.buffer.data in owned for s in stores_of(func)) and all(has_no_effect(n.op) for n in calls)


def assert_pure_function(func: BaseFunc) -> bool:
    """Check that a function is pure.

    Raises
    ------
    AssertionError
        When it has an effect.
    """
    assert is_pure_function(func), f"the function writes memory that it is given or calls what has an effect:\n{func}"
    return True
