"""Which block each shared expression is named in, so that a graph is written with every node once.

A block is what stands between braces: the body of a function, a branch, the right-hand side of a clause, a nested let.
A node that is used in several blocks belongs to the innermost one around all its uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import ir
from weft.relay.adt import Constructor, Match
from weft.relay.expr import Function, Let, RefCreate, RefRead, RefWrite

_ATOMS = (ir.Op, ir.ExprVar, ir.GlobalVar, ir.Constant, Constructor)


class Block:
    """A pair of braces."""

    __slots__ = ("depth", "parent")

    def __init__(self, parent: Block | None) -> None:
        self.parent, self.depth = parent, parent.depth + 1 if parent else 0


def is_atom(node: ir.Node) -> bool:
    """Whether a node is written where it is used, however often: it has no operands."""
    return isinstance(node, _ATOMS) or (isinstance(node, ir.Call) and not node.args and type(node.op) is Constructor)


_INNER = object()  # a position that is a block of its own
_TAIL = object()  # the position at the end of the block that the let itself stands in

_POSITIONS = ir.Dispatch("positions of operands in Relay", (ir.Expr,), default=lambda node: ())


@_POSITIONS.on(ir.Call)
def _call(node: ir.Call) -> Iterator[tuple[Any, Any]]:
    yield from ((a, None) for a in (*node.args, node.op))


@_POSITIONS.on(ir.Tuple)
def _tuple(node: ir.Tuple) -> Iterator[tuple[Any, Any]]:
    yield from ((f, None) for f in node.fields)


@_POSITIONS.on(ir.TupleGetItem)
def _item(node: ir.TupleGetItem) -> Iterator[tuple[Any, Any]]:
    yield node.tuple_value, None


@_POSITIONS.on(ir.If)
def _if(node: ir.If) -> Iterator[tuple[Any, Any]]:
    yield from ((node.cond, None), (node.true_branch, _INNER), (node.false_branch, _INNER))


@_POSITIONS.on(Let)
def _let(node: Let) -> Iterator[tuple[Any, Any]]:
    yield from ((node.value, None), (node.body, _TAIL))


@_POSITIONS.on(Function)
def _function(node: Function) -> Iterator[tuple[Any, Any]]:
    yield node.body, _INNER


@_POSITIONS.on(Match)
def _match(node: Match) -> Iterator[tuple[Any, Any]]:
    yield from ((node.data, None), *((c.rhs, _INNER) for c in node.clauses))


@_POSITIONS.on(RefCreate)
def _ref_create(node: RefCreate) -> Iterator[tuple[Any, Any]]:
    yield node.value, None


@_POSITIONS.on(RefRead)
def _ref_read(node: RefRead) -> Iterator[tuple[Any, Any]]:
    yield node.ref, None


@_POSITIONS.on(RefWrite)
def _ref_write(node: RefWrite) -> Iterator[tuple[Any, Any]]:
    yield from ((node.ref, None), (node.value, None))


class Scopes:
    """The blocks of an expression.

    ``uses`` counts how often a node is an operand, ``home`` is the block that it is named in, and ``inner`` lists the
    blocks of a node that opens some, in order.

    Parameters
    ----------
    root : Expr
        The expression.
    """

    def __init__(self, root: ir.Expr) -> None:
        self.root = Block(None)
        self.uses: dict[ir.Expr, int] = {root: 1}
        self.home: dict[ir.Expr, Block] = {root: self.root}
        self.inner: dict[ir.Expr, list[Block]] = {}
        tails = {root}
        for node in self._parents_first(root):
            here = self.home[node]
            if isinstance(node, Let) and not (node in tails and self.uses[node] == 1):
                here = self._open(node, here)
            for operand, position in _POSITIONS(node):
                block = self._open(node, here) if position is _INNER else here
                if is_atom(operand):
                    continue
                if position is not None:
                    tails.add(operand)
                known = self.home.get(operand)
                self.home[operand] = block if known is None else _around(known, block)

    def is_chained(self, node: ir.Expr) -> bool:
        """Whether a let continues the block that it stands in, rather than opening its own."""
        return isinstance(node, Let) and node not in self.inner

    def _open(self, node: ir.Expr, parent: Block) -> Block:
        block = Block(parent)
        self.inner.setdefault(node, []).append(block)
        return block

    def _parents_first(self, root: ir.Expr) -> list[Any]:
        """List all nodes that are no atoms so that each comes after all that use it; count the uses."""
        done: list[Any] = []
        seen = {root}
        stack: list[tuple[Any, Any]] = [(root, iter(_POSITIONS(root)))]
        while stack:
            node, operands = stack[-1]
            for operand, _ in operands:
                if is_atom(operand):
                    continue
                self.uses[operand] = self.uses.get(operand, 0) + 1
                if operand not in seen:
                    seen.add(operand)
                    stack.append((operand, iter(_POSITIONS(operand))))
                    break
            else:
                done.append(node)
                stack.pop()
        return done[::-1]


def _around(a: Block, b: Block) -> Block:
    """Return the innermost block around two."""
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a
