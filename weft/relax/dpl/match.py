"""Matching expressions against patterns, through the variables that bind them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from weft import ir
from weft.relax.analysis import get_var2val
from weft.relax.dpl import pattern as kinds
from weft.relax.expr import DataflowVar, SeqExpr
from weft.relax.infer import same_shape


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
    return next(all_matches(pattern, expr, var2val), None)


def all_matches(
    pattern: kinds.DFPattern, expr: ir.Expr, var2val: Mapping[Any, Any] | None = None
) -> Iterator[dict[Any, Any]]:
    """Yield what the parts of a pattern stand for, for each way in which it matches, the first as a reader tries them.

    Ways differ by the alternative of an ``a | b``, by the order of an addition's or multiplication's operands, and by
    the places of a tuple's unordered elements.
    """
    state = Matcher(var2val or {})
    for _ in state.ways(pattern, expr):
        yield {k: v for k, v in state.found.items() if isinstance(k, kinds.DFPattern)}


extract_matched_expr = extract_matches


def match(pattern: kinds.DFPattern, expr: ir.Expr, var2val: Mapping[Any, Any] | None = None) -> bool:
    """Whether a pattern matches an expression."""
    return extract_matches(pattern, expr, var2val) is not None


kinds.OPERATIONS.update(match=match, extract=extract_matches)


class Matcher:
    """What the parts of a pattern, and the variables of its types, stand for so far."""

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = values
        self.found: dict[Any, Any] = {}

    def match(self, pattern: kinds.DFPattern, expr: ir.Node) -> bool:
        """Match one part in the first way there is; where there is none, nothing is left behind."""
        return next(self.ways(pattern, expr), self) is None

    def ways(self, pattern: kinds.DFPattern, expr: ir.Node) -> Iterator[None]:
        """Match one part in each way; what it stood for before must be the same expression.

        While the iterator stands at a way, that way's choices are in `found`; they are gone when it ends.
        """
        if pattern in self.found:
            if self.resolve(self.found[pattern]) is self.resolve(expr):
                yield
            return
        saved, matched = self.found, False
        for candidate in self.readings(expr):
            for _ in _WAYS(pattern, candidate, self):
                self.found = {**self.found, pattern: candidate}
                matched = True
                yield
            self.found = saved
            if matched:
                return

    def all(self, pairs: Sequence[tuple[kinds.DFPattern, Any]]) -> Iterator[None]:
        """Match several parts, each in each way that goes with the ways of those before."""
        if not pairs:
            yield
            return
        for _ in self.ways(*pairs[0]):
            yield from self.all(pairs[1:])

    def readings(self, expr: ir.Node) -> list[Any]:
        """List an expression and, for a variable, the values behind it."""
        out = [expr]
        while isinstance(out[-1], ir.ExprVar) and out[-1] in self.values:
            out.append(self.values[out[-1]])
        return out

    def resolve(self, expr: ir.Node) -> Any:
        """Return the value behind a variable."""
        return self.readings(expr)[-1]


_WAYS = ir.Dispatch("match of a pattern", (kinds.DFPattern,))


def _test(kind: type[kinds.DFPattern]) -> Callable[[Callable[..., bool]], None]:
    """Register what says whether a pattern without parts matches."""

    def register(test: Callable[[Any, Any], bool]) -> None:
        _WAYS.on(kind)(lambda p, e, m: iter((None,) if test(p, e) else ()))

    return register


def _constraint(kind: type[kinds.DFPattern]) -> Callable[[Callable[..., bool]], None]:
    """Register what says whether that which a pattern's only part matches is what the pattern asks for."""

    def register(test: Callable[[Any, Any, Matcher], bool]) -> None:
        @_WAYS.on(kind)
        def _(p: Any, e: Any, m: Matcher) -> Iterator[None]:
            saved = m.found
            if test(p, e, m):
                yield from m.ways(p.pattern, e)
            m.found = saved

    return register


_test(kinds.WildcardPattern)(lambda p, e: True)
_test(kinds.ConstantPattern)(lambda p, e: isinstance(e, ir.Constant))
_test(kinds.ExprPattern)(lambda p, e: e is p.expr or ir.structural_equal(e, p.expr))
_test(kinds.PrimArrPattern)(lambda p, e: isinstance(e, ir.ShapeExpr) and same_shape(e.values, p.shape))
_test(kinds.OpPattern)(lambda p, e: isinstance(e, ir.Op) and _bare(e.name) == _bare(p.name))
_test(kinds.VarPattern)(lambda p, e: isinstance(e, ir.ExprVar) and p.name in ("", e.name_hint))
_test(kinds.DataflowVarPattern)(lambda p, e: isinstance(e, DataflowVar) and p.name in ("", e.name_hint))
_test(kinds.GlobalVarPattern)(lambda p, e: isinstance(e, ir.GlobalVar) and p.name in ("", e.name_hint))
_test(kinds.ExternFuncPattern)(lambda p, e: isinstance(e, ir.ExternFunc) and p.name in ("", e.global_symbol))


def _bare(op: str) -> str:
    return op.removeprefix("relax.")


_COMMUTATIVE = ("relax.add", "relax.multiply")


@_WAYS.on(kinds.CallPattern)
def _call(p: kinds.CallPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    if not isinstance(e, ir.Call):
        return
    args = _operands(e) if len(e.args) < len(p.args) else e.args
    if len(args) < len(p.args) or (len(args) > len(p.args) and not p.more):
        return
    yield from m.all([(p.op, e.op), *zip(p.args, args, strict=False)])
    commutes = isinstance(e.op, ir.Op) and e.op.name in _COMMUTATIVE and len(p.args) == len(args) == 2
    if commutes and args[0] is not args[1]:
        yield from m.all([(p.op, e.op), (p.args[0], args[1]), (p.args[1], args[0])])


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


@_WAYS.on(kinds.FunctionPattern)
def _function(p: kinds.FunctionPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    if isinstance(e, ir.Function) and len(e.params) == len(p.params):
        m.values = ChainMap(get_var2val(e), cast(dict[Any, Any], m.values))
        result = e.body.body if isinstance(e.body, SeqExpr) else e.body
        yield from m.all([*zip(p.params, e.params, strict=True), (p.body, result)])


@_WAYS.on(kinds.TuplePattern)
def _tuple(p: kinds.TuplePattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    if isinstance(e, ir.Tuple) and len(e.fields) == len(p.fields):
        yield from m.all(list(zip(p.fields, e.fields, strict=True)))


@_WAYS.on(kinds.UnorderedTuplePattern)
def _unordered_tuple(p: kinds.UnorderedTuplePattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    def place(i: int, free: Sequence[Any]) -> Iterator[None]:
        """Match the patterns from the i-th with the elements that are left, trying each."""
        if i == len(p.fields):
            yield
        for k, field in enumerate(free):
            for _ in m.ways(p.fields[i], field):
                yield from place(i + 1, (*free[:k], *free[k + 1 :]))

    if isinstance(e, ir.Tuple) and len(e.fields) == len(p.fields):
        yield from place(0, e.fields)


@_WAYS.on(kinds.TupleItemPattern)
def _item(p: kinds.TupleItemPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    if isinstance(e, ir.TupleGetItem) and p.index in (-1, e.index):
        yield from m.ways(p.tuple_value, e.tuple_value)


@_WAYS.on(kinds.OrPattern)
def _or(p: kinds.OrPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    yield from m.ways(p.left, e)
    yield from m.ways(p.right, e)


@_WAYS.on(kinds.AndPattern)
def _and(p: kinds.AndPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    yield from m.all([(p.left, e), (p.right, e)])


@_WAYS.on(kinds.NotPattern)
def _not(p: kinds.NotPattern, e: ir.Expr, m: Matcher) -> Iterator[None]:
    saved = m.found
    matched = m.match(p.reject, e)
    m.found = saved
    if not matched:
        yield


@_constraint(kinds.AttrPattern)
def _attr(p: kinds.AttrPattern, e: ir.Expr, m: Matcher) -> bool:
    attrs = getattr(e, "attrs", None)
    return attrs is not None and all(k in attrs.keys() and ir.structural_equal(attrs[k], v) for k, v in p.attrs.items)


@_constraint(kinds.DtypePattern)
def _dtype(p: kinds.DtypePattern, e: ir.Expr, m: Matcher) -> bool:
    ty = getattr(e, "ty", None)
    return isinstance(ty, ir.TensorType) and ty.dtype == p.dtype


@_constraint(kinds.TypePattern)
def _type(p: kinds.TypePattern, e: ir.Expr, m: Matcher) -> bool:
    return _fits(p.ty, getattr(e, "ty", None), m)


@_constraint(kinds.ShapePattern)
def _shape(p: kinds.ShapePattern, e: ir.Expr, m: Matcher) -> bool:
    ty = getattr(e, "ty", None)
    return isinstance(ty, ir.TensorType) and same_shape(ty.shape, p.shape)


def _fits(wanted: ir.Type, ty: ir.Type | None, m: Matcher) -> bool:
    """Whether a type is one of those that a pattern's type describes; its variables stand for what they meet first."""
    if isinstance(wanted, ir.TensorType) and isinstance(ty, ir.TensorType):
        if (wanted.dtype and wanted.dtype != ty.dtype) or wanted.ndim not in (-1, ty.ndim):
            return False
        return wanted.shape is None or _dimensions_fit(wanted.shape, ty.shape, m)
    if isinstance(wanted, ir.ShapeType) and isinstance(ty, ir.ShapeType):
        if wanted.values is None:
            return wanted.ndim in (-1, ty.ndim)
        return _dimensions_fit(wanted.values, ty.values, m)
    if isinstance(wanted, ir.TupleType) and isinstance(ty, ir.TupleType):
        pairs = zip(wanted.fields, ty.fields, strict=False)
        return len(wanted.fields) == len(ty.fields) and all(_fits(a, b, m) for a, b in pairs)
    return ty is not None and (isinstance(wanted, ir.AnyType) or ir.structural_equal(ty, wanted))


def _dimensions_fit(wanted: Sequence[ir.PrimExpr], dims: Sequence[ir.PrimExpr] | None, m: Matcher) -> bool:
    if dims is None or len(wanted) != len(dims):
        return False
    new = {a: b for a, b in zip(wanted, dims, strict=True) if isinstance(a, ir.Var) and a not in m.found}
    m.found = {**m.found, **new}
    return same_shape([ir.substitute(d, m.found) for d in wanted], dims)
