"""Whether an expression is what a pattern describes, and which part of it each part of the pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.relay.dataflow_pattern import pattern as kinds
from weft.relay.dataflow_pattern.graph import Graph
from weft.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_module
from weft.relay.walk import operator_name

_COMMUTES = ("add", "multiply")


def match(pattern: kinds.DFPattern, expr: ir.Expr) -> bool:
    """Return whether an expression is what a pattern describes."""
    return Matcher(expr).match(pattern, expr)


kinds.DFPattern.match = match  # type: ignore[attr-defined]


class Matcher:
    """Matches patterns against expressions of one program.

    Parameters
    ----------
    root : Expr
        The program.

    Attributes
    ----------
    found : dict
        After a match: the expressions that each part of the pattern matched.
    """

    def __init__(self, root: Any) -> None:
        self.graph = Graph(root)
        self.found: dict[kinds.DFPattern, list[Any]] = {}
        self._matched: list[kinds.DFPattern] = []
        self._once = True

    def match(self, pattern: kinds.DFPattern, expr: ir.Node) -> bool:
        """Return whether an expression matches; afterwards :attr:`found` says how."""
        self.found, self._matched, self._once = {}, [], True
        return self._visit(pattern, expr)

    def _visit(self, pattern: kinds.DFPattern, expr: ir.Node) -> bool:
        if self._once and pattern in self.found:
            return self.found[pattern][0] is expr
        mark = len(self._matched)
        if not _RULES[type(pattern)](self, pattern, expr):
            self._forget(mark)
            return False
        self.found.setdefault(pattern, []).append(expr)
        self._matched.append(pattern)
        return True

    def _forget(self, mark: int) -> None:
        for pattern in self._matched[mark:]:
            self.found.pop(pattern, None)
        del self._matched[mark:]

    def _all(self, patterns: Sequence[kinds.DFPattern], exprs: Sequence[Any]) -> bool:
        if len(patterns) != len(exprs):
            return False
        mark = len(self._matched)
        if all(map(self._visit, patterns, exprs)):
            return True
        self._forget(mark)
        return False

    def _alt(self, p: kinds.AltPattern, e: ir.Expr) -> bool:
        return self._visit(p.left, e) or self._visit(p.right, e)

    def _attrs(self, p: kinds.AttrPattern, e: ir.Expr) -> bool:
        if not self._visit(p.pattern, e):
            return False
        if isinstance(e, ir.Op):
            return all(_same(v, e.get_attr(k)) for k, v in p.attrs.items())
        if isinstance(e, (Call, Function)):
            return all(k in e.attrs and _same(v, e.attrs[k]) for k, v in p.attrs.items())
        return False

    def _call(self, p: kinds.CallPattern, e: Any) -> bool:
        if type(e) is not Call:
            return False
        mark = len(self._matched)
        if self._visit(p.op, e.op):
            if p.args is None or self._all(p.args, e.args):
                return True
            return _name(p.op) in _COMMUTES and self._all(p.args[::-1], e.args)
        self._forget(mark)
        return any(self._visit(other, e) for other in _regrouped(p, e))

    def _dominator(self, p: kinds.DominatorPattern, e: ir.Expr) -> bool:
        if not self._visit(p.child, e):
            return False
        on_path = self._on_path(p, e)
        self._once = True
        return on_path and self._dominates_parent(p, e)

    def _on_path(self, p: kinds.DominatorPattern, e: ir.Expr) -> bool:
        for node in self.graph.nodes[e].inputs:
            if type(e) is Call and node.expr is e.op:
                continue
            self._once = True
            if self._visit(p.parent, node.expr):
                return True
            self._once = False
            if not self._visit(p.path, node.expr) or not self._on_path(p, node.expr):
                return False
        return True

    def _dominates_parent(self, p: kinds.DominatorPattern, e: ir.Expr) -> bool:
        stack, seen = [self.graph.nodes[e]], set()
        while stack:
            for node in stack.pop().under:
                if node not in seen:
                    seen.add(node)
                    if self._visit(p.parent, node.expr):
                        return True
                    stack.append(node)
        return False

    def _function(self, p: kinds.FunctionPattern, e: ir.Expr) -> bool:
        if type(e) is not Function:
            return False
        return (p.params is None or self._all(p.params, e.params)) and self._visit(p.body, e.body)

    def _item(self, p: kinds.TupleGetItemPattern, e: ir.Expr) -> bool:
        return type(e) is TupleGetItem and p.index in (-1, e.index) and self._visit(p.tuple, e.tuple_value)

    def _tuple(self, p: kinds.TuplePattern, e: ir.Expr) -> bool:
        return type(e) is Tuple and (p.fields is None or self._all(p.fields, e.fields))

    def _if(self, p: kinds.IfPattern, e: ir.Expr) -> bool:
        return type(e) is If and self._all(p.parts(), (e.cond, e.true_branch, e.false_branch))

    def _let(self, p: kinds.LetPattern, e: ir.Expr) -> bool:
        return type(e) is Let and self._all(p.parts(), (e.var, e.value, e.body))

    def _type(self, p: kinds.TypePattern, e: ir.Expr) -> bool:
        return ir.structural_equal(p.type, type_of(e)) and self._visit(p.pattern, e)

    def _shape(self, p: kinds.ShapePattern, e: ir.Expr) -> bool:
        ty = type_of(e)
        same = isinstance(ty, ir.TensorType) and ir.structural_equal(tuple(p.dims), tuple(ty.shape or ()))
        return same and self._visit(p.pattern, e)

    def _dtype(self, p: kinds.DataTypePattern, e: ir.Expr) -> bool:
        ty = type_of(e)
        return isinstance(ty, ir.TensorType) and ty.dtype == str(p.dtype) and self._visit(p.pattern, e)


_RULES: dict[type, Any] = {
    kinds.AltPattern: Matcher._alt,
    kinds.AttrPattern: Matcher._attrs,
    kinds.CallPattern: Matcher._call,
    kinds.ConstantPattern: lambda m, p, e: type(e) is Constant,
    kinds.DataTypePattern: Matcher._dtype,
    kinds.DominatorPattern: Matcher._dominator,
    kinds.ExprPattern: lambda m, p, e: p.expr is e or (type(p.expr) is type(e) and ir.structural_equal(p.expr, e)),
    kinds.FunctionPattern: Matcher._function,
    kinds.IfPattern: Matcher._if,
    kinds.LetPattern: Matcher._let,
    kinds.ShapePattern: Matcher._shape,
    kinds.TupleGetItemPattern: Matcher._item,
    kinds.TuplePattern: Matcher._tuple,
    kinds.TypePattern: Matcher._type,
    kinds.VarPattern: lambda m, p, e: isinstance(e, Var) and p.name in ("", e.name_hint),
    kinds.WildcardPattern: lambda m, p, e: True,
}


def type_of(expr: ir.Expr) -> Any:
    """Return the type of an expression, inferred where it has none; None where it cannot be."""
    known = getattr(expr, "ty", None)
    if known is not None or not hasattr(expr, "in_function"):
        return known
    try:
        func: Any = infer_module(ir.IRModule.from_expr(expr))["main"]
    except error.WeftError:
        return None
    return func.ty if type(expr) is Function else func.body.ty


def _same(wanted: Any, found: Any) -> bool:
    wanted, found = _plain(wanted), _plain(found)
    if isinstance(wanted, tuple) or isinstance(found, tuple):
        same = isinstance(wanted, tuple) and isinstance(found, tuple) and len(wanted) == len(found)
        return same and all(map(_same, wanted, found))
    return wanted is not None and (wanted is found or bool(wanted == found))


def _plain(value: Any) -> Any:
    if isinstance(value, (ir.IntImm, ir.StringImm)):
        return value.value
    return tuple(value) if isinstance(value, list) else value


def _name(pattern: Any) -> str | None:
    expr = getattr(pattern, "expr", None)
    return expr.name if isinstance(expr, ir.Op) else None


def _regrouped(p: kinds.CallPattern, e: Call) -> list[kinds.CallPattern]:
    """List forms of a product and a quotient in the other order: ``a * b / c`` is ``a * (b / c)``."""
    made: list[kinds.CallPattern] = []
    args: Any = p.args or ()
    if _name(p.op) == "divide" and operator_name(e) == "multiply" and any(operator_name(a) == "divide" for a in e.args):
        product = args[0]
        if type(product) is kinds.CallPattern and _name(product.op) == "multiply" and product.args:
            first, second = product.args
            made = [product.op(b, p.op(a, args[1])) for a, b in ((first, second), (second, first))]
    if (
        _name(p.op) == "multiply"
        and operator_name(e) == "divide"
        and any(operator_name(a) == "multiply" for a in e.args)
    ):
        for quotient, other in zip(args, args[::-1], strict=True):
            if type(quotient) is kinds.CallPattern and _name(quotient.op) == "divide" and quotient.args:
                made.append(quotient.op(p.op(quotient.args[0], other), quotient.args[1]))
    return made
