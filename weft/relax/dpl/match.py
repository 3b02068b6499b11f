"""Matching expressions against patterns, through the variables that bind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import arith, ir
from weft.relax.dpl import pattern as kinds
from weft.relax.expr import DataflowVar


def extract_matches(
    pattern: kinds.DFPattern, expr: ir.Expr, var2val: Mapping[Any, Any] | None = None
) -> dict[Any, Any] | None:
    """Match an expression and return what each part of the pattern stands for.

    Parameters
    ----------
    var2val : mapping of variable to expression, optional
        Values of variables (``analysis.get_var2val``), which the pattern may look into.

    Returns
    -------
    dict or None
        Pattern to expression; None if there is no match.
    """
    state = Matcher(var2val or {})
    return state.found if state.match(pattern, expr) else None


extract_matched_expr = extract_matches


def match(pattern: kinds.DFPattern, expr: ir.Expr, var2val: Mapping[Any, Any] | None = None) -> bool:
    """Whether a pattern matches an expression."""
    return extract_matches(pattern, expr, var2val) is not None


kinds.OPERATIONS.update(match=match, extract=extract_matches)


class Matcher:
    """What the parts of a pattern stand for so far; a failed alternative leaves nothing behind."""

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = values
        self.found: dict[Any, Any] = {}

    def match(self, pattern: kinds.DFPattern, expr: ir.Node) -> bool:
        """Match one part; what it stood for before must be the same expression."""
        if pattern in self.found:
            return self.resolve(self.found[pattern]) is self.resolve(expr)
        saved = dict(self.found)
        for candidate in self.readings(expr):
            if _MATCH(pattern, candidate, self):
                self.found[pattern] = candidate
                return True
            self.found = dict(saved)
        return False

    def readings(self, expr: ir.Node) -> list[Any]:
        """List an expression and, for a variable, the values behind it."""
        out = [expr]
        while isinstance(out[-1], ir.ExprVar) and out[-1] in self.values:
            out.append(self.values[out[-1]])
        return out

    def resolve(self, expr: ir.Node) -> Any:
        """Return the value behind a variable."""
        return self.readings(expr)[-1]


_MATCH = ir.Dispatch("match of a pattern", (kinds.DFPattern,))


@_MATCH.on(kinds.WildcardPattern)
def _wildcard(p: kinds.WildcardPattern, e: ir.Expr, m: Matcher) -> bool:
    return True


@_MATCH.on(kinds.OpPattern)
def _op(p: kinds.OpPattern, e: ir.Node, m: Matcher) -> bool:
    return isinstance(e, ir.Op) and e.name.removeprefix("relax.") == p.name.removeprefix("relax.")


@_MATCH.on(kinds.CallPattern)
def _call(p: kinds.CallPattern, e: ir.Expr, m: Matcher) -> bool:
    if not isinstance(e, ir.Call):
        return False
    args = _operands(e) if len(e.args) < len(p.args) else e.args
    if len(args) < len(p.args) or (len(args) > len(p.args) and not p.more):
        return False
    return m.match(p.op, e.op) and all(m.match(a, x) for a, x in zip(p.args, args, strict=False))


_ATTRIBUTES = {
    "relax.clip": ("min", "max"),
    "relax.strided_slice": ("axes", "begin", "end", "strides"),
    "relax.tril": ("k",),
    "relax.triu": ("k",),
}


def _operands(call: ir.Call) -> tuple[Any, ...]:
    """Return the arguments with the attributes that are arguments to a program of TVM's."""
    names = _ATTRIBUTES.get(call.op.name, ()) if isinstance(call.op, ir.Op) else ()
    values = [call.attrs[n] for n in names if call.attrs[n] is not None]
    return (
        *call.args,
        *(ir.Tuple(tuple(map(ir.prim_value, v))) if isinstance(v, tuple) else ir.prim_value(v) for v in values),
    )


@_MATCH.on(kinds.VarPattern)
def _var(p: kinds.VarPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.ExprVar) and p.name in ("", e.name_hint)


@_MATCH.on(kinds.GlobalVarPattern)
def _global(p: kinds.GlobalVarPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.GlobalVar) and p.name in ("", e.name_hint)


@_MATCH.on(kinds.ExternFuncPattern)
def _extern(p: kinds.ExternFuncPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.ExternFunc) and p.name == e.global_symbol


@_MATCH.on(kinds.ConstantPattern)
def _constant(p: kinds.ConstantPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.Constant)


@_MATCH.on(kinds.TuplePattern)
def _tuple(p: kinds.TuplePattern, e: ir.Expr, m: Matcher) -> bool:
    if not isinstance(e, ir.Tuple) or len(e.fields) != len(p.fields):
        return False
    return all(m.match(a, x) for a, x in zip(p.fields, e.fields, strict=True))


@_MATCH.on(kinds.UnorderedTuplePattern)
def _unordered_tuple(p: kinds.UnorderedTuplePattern, e: ir.Expr, m: Matcher) -> bool:
    if not isinstance(e, ir.Tuple) or len(e.fields) != len(p.fields):
        return False

    def place(i: int, free: list[Any]) -> bool:
        """Match the patterns from the i-th with the elements that are left, trying each."""
        if i == len(p.fields):
            return True
        for k, field in enumerate(free):
            saved = dict(m.found)
            if m.match(p.fields[i], field) and place(i + 1, free[:k] + free[k + 1 :]):
                return True
            m.found = saved
        return False

    return place(0, list(e.fields))


@_MATCH.on(kinds.TupleItemPattern)
def _item(p: kinds.TupleItemPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.TupleGetItem) and p.index in (-1, e.index) and m.match(p.tuple_value, e.tuple_value)


@_MATCH.on(kinds.OrPattern)
def _or(p: kinds.OrPattern, e: ir.Expr, m: Matcher) -> bool:
    return m.match(p.left, e) or m.match(p.right, e)


@_MATCH.on(kinds.AndPattern)
def _and(p: kinds.AndPattern, e: ir.Expr, m: Matcher) -> bool:
    return m.match(p.left, e) and m.match(p.right, e)


@_MATCH.on(kinds.NotPattern)
def _not(p: kinds.NotPattern, e: ir.Expr, m: Matcher) -> bool:
    saved = dict(m.found)
    matched = m.match(p.reject, e)
    m.found = saved
    return not matched


@_MATCH.on(kinds.AttrPattern)
def _attr(p: kinds.AttrPattern, e: ir.Expr, m: Matcher) -> bool:
    attrs = getattr(e, "attrs", None)
    if attrs is None or not all(k in attrs.keys() and ir.structural_equal(attrs[k], v) for k, v in p.attrs.items):
        return False
    return m.match(p.pattern, e)


@_MATCH.on(kinds.DtypePattern)
def _dtype(p: kinds.DtypePattern, e: ir.Expr, m: Matcher) -> bool:
    ty = getattr(e, "ty", None)
    return isinstance(ty, ir.TensorType) and ty.dtype == p.dtype and m.match(p.pattern, e)


@_MATCH.on(kinds.TypePattern)
def _type(p: kinds.TypePattern, e: ir.Expr, m: Matcher) -> bool:
    ty = getattr(e, "ty", None)
    return ty is not None and ir.structural_equal(ty, p.ty) and m.match(p.pattern, e)


@_MATCH.on(kinds.ExprPattern)
def _expr(p: kinds.ExprPattern, e: ir.Expr, m: Matcher) -> bool:
    return e is p.expr or ir.structural_equal(e, p.expr)


@_MATCH.on(kinds.DataflowVarPattern)
def _dataflow_var(p: kinds.DataflowVarPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, DataflowVar) and p.name in ("", e.name_hint)


@_MATCH.on(kinds.PrimArrPattern)
def _dimensions(p: kinds.PrimArrPattern, e: ir.Expr, m: Matcher) -> bool:
    return isinstance(e, ir.ShapeExpr) and same_shape(e.values, p.shape)


@_MATCH.on(kinds.ShapePattern)
def _shape(p: kinds.ShapePattern, e: ir.Expr, m: Matcher) -> bool:
    ty = getattr(e, "ty", None)
    return isinstance(ty, ir.TensorType) and same_shape(ty.shape, p.shape) and m.match(p.pattern, e)


def same_shape(a: Sequence[ir.PrimExpr] | None, b: Sequence[ir.PrimExpr] | None) -> bool:
    """Whether two shapes are known and provably equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    analyzer = arith.Analyzer()
    return all(x is y or analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))
