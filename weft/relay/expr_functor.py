"""Visitor classes over Relay, as users of TVM write them. The compiler itself uses tables and ``weft.relay.walk``.

Each kind of expression has a method, ``visit_call`` for :class:`Call`, that a subclass overrides.
"""

from collections.abc import Callable
from typing import Any

from weft.ir import Node, Op, descending
from weft.relay import expr as nodes
from weft.relay.adt import Clause, Constructor, Match
from weft.relay.transform.copying import renamed_pattern
from weft.relay.type_functor import add_methods
from weft.relay.walk import bound_by, map_parts, parts

_METHODS: dict[type, str] = {
    nodes.Call: "visit_call",
    nodes.Constant: "visit_constant",
    Constructor: "visit_constructor",
    nodes.Function: "visit_function",
    nodes.GlobalVar: "visit_global_var",
    nodes.If: "visit_if",
    nodes.Let: "visit_let",
    Match: "visit_match",
    Op: "visit_op",
    nodes.RefCreate: "visit_ref_create",
    nodes.RefRead: "visit_ref_read",
    nodes.RefWrite: "visit_ref_write",
    nodes.Tuple: "visit_tuple",
    nodes.TupleGetItem: "visit_tuple_getitem",
    nodes.Var: "visit_var",
}


class ExprFunctor:
    """Calls the method of an expression's kind, once for each expression; results are kept in ``memo_map``."""

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}

    @descending
    def visit(self, expr: Node) -> Any:
        """Visit an expression by the method of its kind."""
        if expr in self.memo_map:
            return self.memo_map[expr]
        name = next((_METHODS[c] for c in type(expr).__mro__ if c in _METHODS), None)
        result = getattr(self, name)(expr) if name is not None else self.visit_unknown(expr)
        self.memo_map[expr] = result
        return result

    def visit_parts(self, expr: Node) -> Any:
        """What methods do that are not overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no method for {type(expr).__name__}")

    def visit_unknown(self, expr: Node) -> Any:
        """Visit what is no Relay expression."""
        return self.visit_parts(expr)


add_methods(ExprFunctor, _METHODS)


class ExprVisitor(ExprFunctor):
    """Visits all that an expression is made of, variables where they are bound included."""

    def visit_parts(self, expr: Any) -> None:
        """Visit what an expression binds and what it is made of."""
        for v in bound_by(expr):
            self.visit(v)
        for part in parts(expr):
            self.visit(part)

    def visit_let(self, expr: nodes.Let) -> None:
        """Visit the variables and values of a chain of lets in order, then what is under them."""
        chain = [expr]
        while type(chain[-1]) is nodes.Let and chain[-1] not in self.memo_map:
            self.visit(chain[-1].var)
            self.visit(chain[-1].value)
            chain.append(chain[-1].body)  # type: ignore[arg-type]
        body = self.visit(chain.pop())
        self.memo_map.update((let, body) for let in chain)


class ExprMutator(ExprFunctor):
    """Returns the expression with what its methods return in the place of its parts; itself where nothing changed.

    Variables are visited where they are bound, too, and stay unless ``visit_var`` says otherwise.
    """

    def visit_parts(self, expr: Node) -> Any:
        """Return the expression with new parts."""
        return _bind_anew(map_parts(expr, self.visit), self.visit)

    def visit_op(self, expr: Op) -> Any:
        """Return the operator."""
        return expr

    def visit_let(self, expr: nodes.Let) -> Any:
        """Return a chain of lets with new variables, values and what is under them."""
        chain: list[tuple[nodes.Let, Any, Any]] = []
        e: Any = expr
        while type(e) is nodes.Let and e not in self.memo_map:
            chain.append((e, self.visit(e.var), self.visit(e.value)))
            e = e.body
        result = self.visit(e)
        for let, var, value in reversed(chain):
            if var is let.var and value is let.value and result is let.body:
                result = let
            else:
                result = nodes.Let(var, value, result, span=let.span)
            self.memo_map[let] = result
        return result


def _bind_anew(expr: Any, visit: Callable[[Any], Any]) -> Any:
    """Replace the variables that a function or match binds."""
    new = {v: visit(v) for v in bound_by(expr)} if type(expr) in (nodes.Function, Match) else {}
    if all(w is v for v, w in new.items()):
        return expr
    if type(expr) is nodes.Function:
        return expr.replace(params=tuple(new[p] for p in expr.params))
    clauses = tuple(Clause(renamed_pattern(c.lhs, new), c.rhs, span=c.span) for c in expr.clauses)
    return Match(expr.data, clauses, expr.complete, span=expr.span)
