"""Patterns of dataflow: trees of constraints that expressions are matched against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.ir import Ambient, Attrs, DataType, Expr, Node, OtherNames, PrimExpr, Type, as_shape
from weft.op import get_op_def
from weft.operators import operator
from weft.relax.core_ops import CORE_OPS
from weft.spelling import also_called

__all__ = [
    "AndPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DataflowVarPattern",
    "DtypePattern",
    "ExprPattern",
    "ExternFuncPattern",
    "FunctionPattern",
    "GlobalVarPattern",
    "NotPattern",
    "OpPattern",
    "OrPattern",
    "PatternSeq",
    "PrimArrPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TupleItemPattern",
    "TuplePattern",
    "TypePattern",
    "UnorderedTuplePattern",
    "VarPattern",
    "WildcardPattern",
    "has_attr",
    "has_dtype",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_expr",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "make_fused_bias_activation_pattern",
    "reject",
    "wildcard",
]

OPEN_CONTEXTS: Ambient[Any] = Ambient("PatternContext")  # patterns and constraints made now belong to the innermost


def _context() -> Any:
    if OPEN_CONTEXTS.current is None:
        raise InvalidArgument(
            "a constraint between patterns belongs to a context",
            help="make it inside of `with PatternContext() as ctx:`",
        )
    return OPEN_CONTEXTS.current


def _called(op: str, *args: DFPattern) -> CallPattern:
    return is_op(op)(*args)


class DFPattern(Node, abstract=True):
    """A pattern. One that occurs twice in a pattern matches the same expression in both places."""

    def __post_init__(self) -> None:
        if OPEN_CONTEXTS.current is not None:
            OPEN_CONTEXTS.current.patterns.append(self)

    def __call__(self, *args: Any, varg_default_wildcard: bool = False, add_constraint: bool = True) -> CallPattern:
        """Match a call of what this matches; further arguments are free with `varg_default_wildcard`.

        Inside of a context the call must occur, unless `add_constraint` is False or it is part of another pattern.
        """
        pattern = CallPattern(self, tuple(args), varg_default_wildcard)
        if OPEN_CONTEXTS.current is not None and not add_constraint:
            OPEN_CONTEXTS.current.patterns.remove(pattern)
        return pattern

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    __add__ = operator(_called, "relax.add")
    __sub__ = operator(_called, "relax.subtract")
    __mul__ = operator(_called, "relax.multiply")
    __truediv__ = operator(_called, "relax.divide")

    def __getitem__(self, index: int | None) -> TupleItemPattern:
        return is_tuple_get_item(self, index)

    def has_attr(self, attrs: dict[str, Any]) -> AttrPattern:
        """Match what this matches, if it is a call or function with these attributes."""
        plain = {k: v.value if isinstance(v, (ir.IntImm, ir.FloatImm, ir.StringImm)) else v for k, v in attrs.items()}
        return AttrPattern(self, Attrs.of(plain))

    def has_dtype(self, dtype: str) -> DtypePattern:
        """Match what this matches, if it is a tensor of this data type."""
        return DtypePattern(self, DataType(dtype))

    def has_shape(self, shape: Any) -> ShapePattern:
        """Match what this matches, if it is a tensor of provably this shape."""
        return ShapePattern(self, as_shape(tuple(shape)))

    def optional(self, option: Any) -> OrPattern:
        """Match this, or ``option(this)``."""
        return OrPattern(option(self), self)

    @also_called(struct_info="ty", ttype="ty")
    def has_ty(self, ty: Type) -> TypePattern:
        """Match what this matches, if its type is this one, or one that this leaves open.

        A tensor's dtype, rank and shape may be left out; variables stand for any dimension, everywhere for the same.
        """
        return TypePattern(self, ty)

    has_struct_info = has_type = has_ty

    def match(self, expr: Expr, var2val: Any = None) -> bool:
        """Whether this matches an expression; see :func:`weft.relax.dpl.match`."""
        return OPERATIONS["match"](self, expr, var2val)

    def extract_matched_expr(self, expr: Expr, var2val: Any = None) -> dict[Any, Any] | None:
        """Return what each part stands for; see :func:`weft.relax.dpl.extract_matches`."""
        return OPERATIONS["extract"](self, expr, var2val)

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand that what `other` matches has this as its argument, at `index` unless that is -1. Also ``a ^ b``."""
        return PatternSeq((self,)).used_by(other, index)

    __xor__ = used_by

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand the same, and that nothing else uses this. Also ``a >> b``."""
        return PatternSeq((self,)).only_used_by(other, index)

    __rshift__ = only_used_by

    def fork_to(self, *others: DFPattern | PatternSeq) -> None:
        """Demand that each of `others` uses this."""
        for other in others:
            self.used_by(other)

    def same_shape_as(self, *others: DFPattern) -> None:
        """Demand that what these match are tensors of provably the same shape as what this matches."""
        _context().same_shape.append((self, *others))

    def dup(self) -> DFPattern:
        """Return a copy, parts included, that matches alike and may match another expression."""
        return _copy(self, {})


def _copy(value: Any, done: dict[DFPattern, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_copy(v, done) for v in value)
    if not isinstance(value, DFPattern):
        return value
    if value not in done:
        done[value] = type(value)(*(_copy(getattr(value, f), done) for f in value.__struct_fields__ if f != "span"))
    return done[value]


OPERATIONS: dict[str, Any] = {}  # what `match` defines: patterns know their methods, matching knows the patterns


class PatternSeq:
    """Patterns of which each uses the one before.

    Parameters
    ----------
    patterns : tuple of DFPattern
    only : tuple of bool
        For each but the last, whether nothing but its successor uses it.
    """

    @also_called(only_use="only")
    def __init__(self, patterns: tuple[DFPattern, ...], only: tuple[bool, ...] = ()) -> None:
        self.patterns, self.only = patterns, only

    def __getitem__(self, index: int) -> DFPattern:
        """One of the patterns."""
        return self.patterns[index]

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand that `other` uses the last pattern, and continue with it."""
        return self._then(other, False, index)

    __xor__ = used_by

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand that `other` alone uses the last pattern, and continue with it."""
        return self._then(other, True, index)

    __rshift__ = only_used_by

    def _then(self, other: DFPattern | PatternSeq, only: bool, index: int) -> PatternSeq:
        seq = other if isinstance(other, PatternSeq) else PatternSeq((other,))
        _context().edges.append((self.patterns[-1], seq.patterns[0], only, index))
        return PatternSeq(self.patterns + seq.patterns, (*self.only, only, *seq.only))

    def dup(self) -> PatternSeq:
        """Return copies of the patterns with the same constraints between them."""
        seq = PatternSeq((self.patterns[0].dup(),))
        for pattern, only in zip(self.patterns[1:], self.only, strict=True):
            seq = seq._then(pattern.dup(), only, -1)
        return seq


class WildcardPattern(DFPattern):
    """Anything."""


class OpPattern(DFPattern):
    """An operator, by its name."""

    name: str


class CallPattern(DFPattern, metaclass=OtherNames):
    """A call."""

    __other_names__ = {"varg_default_wildcard": "more"}

    op: DFPattern
    args: tuple[DFPattern, ...]
    more: bool = False


class _NamedPattern(DFPattern, metaclass=OtherNames, abstract=True):
    """Something of this name, unless that is empty."""

    __other_names__ = {"name_hint": "name"}

    name: str = ""


class VarPattern(_NamedPattern):
    """A variable, of this name unless that is empty."""


class GlobalVarPattern(_NamedPattern):
    """A function of the module, of this name unless that is empty."""


class ExternFuncPattern(DFPattern, metaclass=OtherNames):
    """A packed function, of this global name unless that is empty."""

    __other_names__ = {"global_symbol": "name"}

    name: str = ""


class FunctionPattern(DFPattern):
    """A function with these parameters and this result."""

    params: tuple[DFPattern, ...]
    body: DFPattern


class ExprPattern(DFPattern):
    """An expression that is structurally this one."""

    expr: Expr


class PrimArrPattern(DFPattern):
    """A shape whose dimensions are provably these."""

    shape: tuple[Any, ...]

    def __getitem__(self, index: int) -> PrimExpr:  # type: ignore[override]
        return self.shape[index]


class DataflowVarPattern(_NamedPattern):
    """A variable of a dataflow block, of this name unless that is empty."""


class ConstantPattern(DFPattern):
    """A tensor constant."""


class TuplePattern(DFPattern):
    """A tuple whose elements match."""

    fields: tuple[DFPattern, ...]

    def __getitem__(self, index: int | None) -> TupleItemPattern:
        return is_tuple_get_item(self, None if index is None else range(len(self.fields))[index])


class UnorderedTuplePattern(DFPattern):
    """A tuple whose elements match in some order."""

    fields: tuple[DFPattern, ...]


class TupleItemPattern(DFPattern):
    """An element of a tuple; -1 stands for any."""

    tuple_value: DFPattern
    index: int = -1


class OrPattern(DFPattern):
    """What one of two patterns matches, the first being asked first."""

    left: DFPattern
    right: DFPattern


class AndPattern(DFPattern):
    """What both patterns match."""

    left: DFPattern
    right: DFPattern


class NotPattern(DFPattern, metaclass=OtherNames):
    """What the pattern does not match."""

    __other_names__ = {"to_reject": "reject"}

    reject: DFPattern


class AttrPattern(DFPattern):
    """What the pattern matches and has these attributes."""

    pattern: DFPattern
    attrs: Attrs


class DtypePattern(DFPattern):
    """What the pattern matches and is of this data type."""

    pattern: DFPattern
    dtype: str


class TypePattern(DFPattern, metaclass=OtherNames):
    """What the pattern matches and is of this type."""

    __other_names__ = {"ttype": "ty"}

    pattern: DFPattern
    ty: Type


class ShapePattern(DFPattern):
    """What the pattern matches and is of this shape."""

    pattern: DFPattern
    shape: tuple[Any, ...]


TupleGetItemPattern = TupleItemPattern
DataTypePattern = DtypePattern


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


def is_op(op_name: str) -> OpPattern:
    """Match an operator by its name, ``relax.add``; an UnsupportedOperator where there is none."""
    name = op_name.removeprefix("relax.")
    return OpPattern("relax." + name if name in CORE_OPS else get_op_def(op_name).op.name)


def is_var(name: str = "") -> VarPattern:
    """Match a variable."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """Match a function of the module."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """Match a tensor constant."""
    return ConstantPattern()


def is_dfv(name: str = "") -> DataflowVarPattern:
    """Match a variable of a dataflow block."""
    return DataflowVarPattern(name)


def is_expr(expr: Expr) -> ExprPattern:
    """Match an expression that is structurally `expr`."""
    return ExprPattern(expr)


def is_shape(shape: Iterable[PrimExpr | int]) -> PrimArrPattern:
    """Match a shape with provably these dimensions."""
    return PrimArrPattern(as_shape(tuple(shape)))


def is_tuple(fields: Iterable[DFPattern], unordered: bool = False) -> TuplePattern | UnorderedTuplePattern:
    """Match a tuple; its elements in any order with `unordered`."""
    return UnorderedTuplePattern(tuple(fields)) if unordered else TuplePattern(tuple(fields))


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DtypePattern:
    """Match tensors of a data type."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_attr(attrs: dict[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match calls and functions with these attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def reject(pattern: DFPattern) -> NotPattern:
    """Match what `pattern` does not match."""
    return NotPattern(pattern)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleItemPattern:
    """Match an element of a tuple, at any index if none is given."""
    return TupleItemPattern(tuple_value, -1 if index is None else index)


def _in_tuple(args: Any) -> DFPattern:
    return wildcard() if args is None else TuplePattern(tuple(args)) if isinstance(args, (list, tuple)) else args


def is_call_tir(
    func_name: str, args: DFPattern | Sequence[DFPattern] | None = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """Match ``call_tir`` of a function of the module; `tir_vars` matches the shape of its symbolic arguments."""
    symbols = () if tir_vars is None else (tir_vars,)
    return CallPattern(is_op("relax.call_tir"), (GlobalVarPattern(func_name), _in_tuple(args), *symbols), True)


def is_call_dps_packed(func_name: str, args: DFPattern | Sequence[DFPattern] | None = None) -> CallPattern:
    """Match ``call_dps_packed`` of a packed function."""
    return CallPattern(is_op("relax.call_dps_packed"), (ExternFuncPattern(func_name), _in_tuple(args)), True)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """Match a call of a packed function."""
    return CallPattern(ExternFuncPattern(func_name), tuple(args or ()), args is None)


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None, allow_reshape: bool = False
) -> DFPattern:
    """Match an operator on two arguments, then perhaps the addition of a bias, then perhaps an activation.

    Parameters
    ----------
    op_name : str
        ``relax.nn.conv2d``, for instance.
    with_bias : bool
    activation : str, optional
        An operator of one argument, ``relax.nn.relu``.
    allow_reshape : bool
        Whether the bias is the result of a reshape.
    """
    out = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        bias = is_op("relax.reshape")(wildcard(), varg_default_wildcard=True) if allow_reshape else wildcard()
        out = is_op("relax.add")(out, bias)
    return is_op(activation)(out) if activation else out
