"""Print rules of scalar expressions (``T``).

An operator is written infix only where reading it back builds the very same node; the checked constructors fold and
unify, so each rule asks its constructor and otherwise writes the class (``T.Add(...)``), which never folds. A
constant is written as a plain number where its type follows from its neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import arithmetic
from weft.ir import scalar as s
from weft.ir.dtype import DataType, ScalableLanes
from weft.ir.iteration import IterVar, Range
from weft.ir.structural import structural_equal
from weft.ir.text.doc import ADD, AND, COMPARE, MUL, NOT, OR, UNARY, Doc, Seq, call, infix, mapping, prefix, tuple_doc
from weft.ir.text.printer import EXPR, Printer, any_literal, quote
from weft.ir.types import PointerType

_INFIX: dict[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    s.Add: ("+", ADD, arithmetic.add),
    s.Sub: ("-", ADD, arithmetic.sub),
    s.Mul: ("*", MUL, arithmetic.mul),
    s.FloorDiv: ("//", MUL, arithmetic.floordiv),
    s.FloorMod: ("%", MUL, arithmetic.floormod),
    s.EQ: ("==", COMPARE, arithmetic.equal),
    s.NE: ("!=", COMPARE, arithmetic.not_equal),
    s.LT: ("<", COMPARE, arithmetic.less),
    s.LE: ("<=", COMPARE, arithmetic.less_equal),
    s.GT: (">", COMPARE, arithmetic.greater),
    s.GE: (">=", COMPARE, arithmetic.greater_equal),
    s.And: ("and", AND, arithmetic.logical_and),
    s.Or: ("or", OR, arithmetic.logical_or),
}
_NAMED: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    s.Min: ("T.min", arithmetic.min_),
    s.Max: ("T.max", arithmetic.max_),
    s.Div: ("T.Div", arithmetic.truncdiv),
    s.Mod: ("T.truncmod", arithmetic.truncmod),
}


def same(a: object, b: object) -> bool:
    """Whether two operands are one node, or equal constants."""
    if a is b:
        return True
    return (
        isinstance(a, (s.IntImm, s.FloatImm)) and isinstance(b, type(a)) and a.value == b.value and a.dtype == b.dtype
    )


def _plain(value: Any, other: Any) -> int | float | None:
    """Return the Python number that stands for a constant beside `other`, None where it needs its type."""
    if not isinstance(value, (s.IntImm, s.FloatImm)) or isinstance(other, (s.IntImm, s.FloatImm)):
        return None
    if value.dtype != other.dtype or value.dtype == "bool":
        return None
    number = value.value
    return number if number - number == 0 else None


def number(value: int | float) -> Doc:
    """Write a Python number."""
    text = repr(value)
    return Seq(UNARY, (text,)) if text.startswith("-") else text


def operand(value: object, other: object, p: Printer) -> Doc:
    """Write an operand that stands beside `other`."""
    plain = _plain(value, other)
    return number(plain) if plain is not None else p.expr(value)


def argument(value: object, p: Printer) -> Doc:
    """Write a value where Python numbers become int32 and strings string constants."""
    if type(value) is s.IntImm and value.dtype == "int32" and -(2**31) <= value.value < 2**31:
        return number(value.value)
    if type(value) is s.StringImm:
        return quote(value.value)
    return any_literal(value, p)


def _rebuilt(build: Callable[[Any, Any], Any], node: Any) -> bool:
    """Whether `build`, given what the text of the operands evaluates to, makes a node like `node`."""
    a, b = _plain(node.a, node.b), _plain(node.b, node.a)
    try:
        made = build(node.a if a is None else a, node.b if b is None else b)
    except Exception:  # a division by a constant zero, operands of different types: written by class
        return False
    return type(made) is type(node) and same(made.a, node.a) and same(made.b, node.b)


@EXPR.on(s.BinaryOp, s.CmpOp)
def _binary(node: Any, p: Printer) -> Doc:
    rule = _INFIX.get(type(node))
    if rule is not None and _rebuilt(rule[2], node):
        return _chain(node, p)
    named = _NAMED.get(type(node))
    if type(node) is s.Div and DataType(node.dtype).is_float and _rebuilt(arithmetic.div, node):
        return infix(operand(node.a, node.b, p), "/", operand(node.b, node.a, p), MUL)
    if named is not None and _rebuilt(named[1], node):
        return call(named[0], [operand(node.a, node.b, p), operand(node.b, node.a, p)])
    return call(f"T.{type(node).__name__}", [p.expr(node.a), p.expr(node.b)])


def _chain(node: Any, p: Printer) -> Doc:
    """Write an infix operator; operands nested to the left are walked in a loop."""
    spine = []
    while (rule := _INFIX.get(type(node))) is not None and _rebuilt(rule[2], node):
        spine.append((node, rule))
        node = node.a
    last = spine[-1][0]
    doc = operand(last.a, last.b, p)
    for n, (symbol, strength, _) in reversed(spine):
        doc = infix(doc, symbol, operand(n.b, n.a, p), strength)
    return doc


@EXPR.on(s.Not)
def _not(node: s.Not, p: Printer) -> Doc:
    if isinstance(node.a, s.IntImm):
        return call("T.Not", [p.expr(node.a)])
    return prefix("not ", p.expr(node.a), NOT)


@EXPR.on(s.IntImm)
def _int_imm(node: s.IntImm, p: Printer) -> Doc:
    return call(
        f"T.{node.dtype}",
        [str(bool(node.value)) if node.dtype == "bool" and node.value in (0, 1) else number(int(node.value))],
    )


@EXPR.on(s.FloatImm)
def _float_imm(node: s.FloatImm, p: Printer) -> Doc:
    value = float(node.value)
    return call(f"T.{node.dtype}", [number(value) if value - value == 0 else f'"{value!r}"'])


@EXPR.on(s.StringImm)
def _string_imm(node: s.StringImm, p: Printer) -> Doc:
    return quote(node.value)


def var_declaration(var: s.Var, p: Printer) -> Doc:
    """Write the expression that makes a variable like `var`.

    One that is at least zero says so, unless a tensor type implies it.
    """
    size = isinstance(var, s.SizeVar)
    expected = any(var in f.sizes for f in p.frames)
    kwargs = [("is_size_var", str(size))] if size != expected else []
    if DataType(var.dtype).lanes > 1:
        return call("T.Var", ['""', quote(var.dtype)], kwargs)
    return call(f"T.{var.dtype}", (), kwargs)


@EXPR.on(s.Var)
def _var(node: s.Var, p: Printer) -> Doc:
    p.dialects.add("T")
    return p.declare(node, node.name, lambda: var_declaration(node, p))


@EXPR.on(s.Cast)
def _cast(node: s.Cast, p: Printer) -> Doc:
    return call("T.Cast", [quote(node.dtype), p.expr(node.value)])


@EXPR.on(s.Select)
def _select(node: s.Select, p: Printer) -> Doc:
    return call("T.Select", [p.expr(node.condition), argument(node.true_value, p), argument(node.false_value, p)])


@EXPR.on(s.Let)
def _let(node: s.Let, p: Printer) -> Doc:
    var, value = p.expr(node.var), argument(node.value, p)
    return call("T.Let", [p.expr(node.body)], [("where", mapping([(var, value)]))])


def _lanes(lanes: int) -> str:
    if not isinstance(lanes, ScalableLanes):
        return str(lanes)
    return "T.vscale()" if int(lanes) == 1 else f"T.vscale() * {int(lanes)}"


@EXPR.on(s.Ramp)
def _ramp(node: s.Ramp, p: Printer) -> Doc:
    return call("T.Ramp", [argument(node.base, p), argument(node.stride, p), _lanes(node.lanes)])


@EXPR.on(s.Broadcast)
def _broadcast(node: s.Broadcast, p: Printer) -> Doc:
    return call("T.Broadcast", [argument(node.value, p), _lanes(node.lanes)])


@EXPR.on(s.Shuffle)
def _shuffle(node: s.Shuffle, p: Printer) -> Doc:
    return call(
        "T.Shuffle", [tuple_doc([p.expr(v) for v in node.vectors]), tuple_doc([argument(i, p) for i in node.indices])]
    )


@EXPR.on(s.CallIntrin)
def _call_intrin(node: s.CallIntrin, p: Printer) -> Doc:
    """Write any intrinsic; dialects that know more replace this rule."""
    op = quote(node.op.name) if isinstance(node.op, s.Op) else any_literal(node.op, p)
    args = [any_literal(a, p) for a in node.args]
    if node.attrs or not isinstance(node.op, s.Op):
        kwargs = [("attrs", any_literal(node.attrs, p))] if node.attrs else []
        return call("T.Call", [quote(node.dtype), op, tuple_doc(args)], kwargs)
    return call("T.call_intrin", [quote(node.dtype), op, *[argument(a, p) for a in node.args]])


@EXPR.on(s.Op)
def _op(node: s.Op, p: Printer) -> Doc:
    return call("I.Op.get", [quote(node.name)])


@EXPR.on(Range)
def _range(node: Range, p: Printer, dialect: str = "I") -> Doc:
    docs = slice_docs(node, p) if isinstance(node.min, s.IntImm) and isinstance(node.extent, s.IntImm) else None
    if docs is not None and node.min.dtype == "int32":
        return call(f"{dialect}.Range", docs)
    return call("T.Range.from_min_extent", [argument(node.min, p), argument(node.extent, p)])


# What TVM calls the kinds in a text; they are read back as what they are here.
_ITER_KINDS = {
    "data_par": "DataPar",
    "thread": "ThreadIndex",
    "reduce": "CommReduce",
    "ordered": "Ordered",
    "opaque": "Opaque",
    "unrolled": "Unrolled",
    "vectorized": "Vectorized",
    "parallelized": "Parallelized",
    "tensorized": "Tensorized",
}


@EXPR.on(IterVar)
def _iter_var(node: IterVar, p: Printer) -> Doc:
    dom = "None" if node.dom is None else _range(node.dom, p, "T")
    kind = _ITER_KINDS.get(node.iter_type, node.iter_type)
    return call("T.iter_var", [p.expr(node.var), dom, quote(kind), quote(node.thread_tag)])


@EXPR.on(PointerType)
def _pointer_type(node: PointerType, p: Printer) -> Doc:
    return call("T.PointerType", [p.expr(node.element_type), quote(node.storage_scope)])


# --- ranges as slices -------------------------------------------------------------------------------------------------


def slice_of(start: arithmetic.ExprLike, stop: arithmetic.ExprLike) -> Range:
    """Return the range of a slice; ``a : a + n`` has extent ``n``, whatever `a` and `n` are."""
    if not isinstance(start, s.PrimExpr):
        start = s.as_expr(start, stop.dtype if isinstance(stop, s.PrimExpr) else None)
    if not isinstance(stop, s.PrimExpr):
        stop = s.as_expr(stop, start.dtype)
    if type(stop) is s.Add and (same(stop.a, start) or structural_equal(stop.a, start)):
        return Range.from_min_extent(start, stop.b)
    return Range.from_min_extent(start, arithmetic.sub(stop, start))


def slice_docs(r: Range, p: Printer) -> tuple[Doc, Doc] | None:
    """Return the start and stop of a range as documents, None where a slice would not read back as this range."""
    low, extent = r.min, r.extent
    if isinstance(low, s.IntImm) and isinstance(extent, s.IntImm):
        if low.dtype != extent.dtype:
            return None
        stop = arithmetic.add(low, extent)
        if low.dtype != "int32":
            return (number(low.value), p.expr(stop))
        return (number(low.value), number(stop.value)) if stop.value == low.value + extent.value else None  # type: ignore[attr-defined]
    if low.dtype != extent.dtype:
        return None
    if isinstance(low, s.IntImm) and low.value == 0:
        return (number(0), p.expr(extent))
    stop = arithmetic.add(low, extent)
    if type(stop) is not s.Add or not same(stop.a, low) or not same(stop.b, extent):
        return None
    return (p.expr(low), infix(operand(low, extent, p), "+", operand(extent, low, p), ADD))


def is_unit(r: Range) -> bool:
    """Whether a range is one point, written as its only value."""
    return isinstance(r.extent, s.IntImm) and r.extent.value == 1 and r.extent.dtype == r.min.dtype
