"""Expressions as nested records, which show every field: for looking at what a program is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft import error, ir
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding

# The record of each class: its name, and its fields. Of expressions follows the type.
_RECORDS: dict[type, tuple[str, tuple[str, ...]]] = {
    ir.Constant: ("Constant", ("data",)),
    ir.Tuple: ("Tuple", ("fields",)),
    DataflowVar: ("DataflowVar", ("name",)),
    ir.ExprVar: ("Var", ("name",)),
    ir.ShapeExpr: ("ShapeExpr", ("values",)),
    ir.GlobalVar: ("GlobalVar", ("name_hint",)),
    ir.Function: ("Function", ("params", "body", "ret_ty", "is_pure", "attrs")),
    ir.Call: ("Call", ("op", "args", "ty_args", "attrs")),
    SeqExpr: ("SeqExpr", ("blocks", "body")),
    ir.If: ("If", ("cond", "true_branch", "false_branch")),
    ir.ExprStringImm: ("StringImm", ("value",)),
    ir.TupleGetItem: ("TupleGetItem", ("tuple_value", "index")),
    ir.ExternFunc: ("ExternFunc", ("global_symbol",)),
    ir.Op: ("Op", ("name",)),
    BindingBlock: ("BindingBlock", ("bindings",)),
    DataflowBlock: ("DataflowBlock", ("bindings",)),
    VarBinding: ("VarBinding", ("var", "value")),
    MatchCast: ("MatchCast", ("var", "value", "ty")),
}
_UNTYPED = (ir.ExternFunc, ir.Op, BindingBlock, VarBinding, MatchCast)
_BARE = {"is_pure", "index", "data"}
"""Fields that are written without quotes."""


class ASTPrinter:
    """Writes expressions as nested records.

    Parameters
    ----------
    indent_str : str
        What each level begins with.
    include_ty_annotations : bool
        Whether expressions show their types.
    include_call_attrs : bool
        Whether calls show their attributes.
    """

    def __init__(
        self, indent_str: str = "    ", include_ty_annotations: bool = True, include_call_attrs: bool = True
    ) -> None:
        self.indent_str = indent_str
        self.include_ty_annotations, self.include_call_attrs = include_ty_annotations, include_call_attrs

    def visit_expr(self, expr: Any) -> str:
        """Return the record of an expression, a binding or a block.

        Raises
        ------
        InvalidArgument
            When it is none of Relax.
        """
        if isinstance(expr, (ir.PrimValue, ir.PrimExpr)):
            value = _scalar(expr.value if isinstance(expr, ir.PrimValue) else expr)
            return self._record("Expr", [("value", f"`{value}`")])
        if isinstance(expr, ir.DataTypeImm):
            return self._record("DataTypeImm", [("value", expr.value), *self._type_field(expr)])
        kind = next((c for c in type(expr).__mro__ if c in _RECORDS), None)
        if kind is None:
            raise error.InvalidArgument("no expression of Relax", found=f"{type(expr).__name__}: {expr}")
        name, fields = _RECORDS[kind]
        values = [(f, self._field(f, getattr(expr, f))) for f in fields if self._is_shown(expr, f)]
        typed = [] if isinstance(expr, _UNTYPED) else self._type_field(expr)
        newline = isinstance(expr, ir.Constant) and bool(expr.data.shape)
        return self._record(name, [*values, *typed], newline)

    def visit_ty_(self, ty: ir.Type) -> str:
        """Return the record of a type, with what is known of its sizes."""
        if isinstance(ty, ir.TensorType) and ty.shape is not None:
            shape = self.visit_expr(ir.shape_expr(ty.shape))
            return self._record("TensorType", [("dtype", ty.dtype), ("shape", shape)])
        if isinstance(ty, ir.TensorType):
            return self._record("TensorType", [("dtype", ty.dtype), ("ndim", str(ty.ndim))])
        if isinstance(ty, ir.ShapeType) and ty.values is not None:
            values = self._list(map(self.visit_expr, ty.values))
            return self._record("ShapeType", [("ndim", str(ty.ndim)), ("values", values)])
        return self._type(ty, self.visit_ty_)

    def visit_type_(self, ty: ir.Type) -> str:
        """Return the record of a type without sizes."""
        if isinstance(ty, ir.TensorType):
            dtype = [("dtype", ty.dtype)] if ty.dtype else []
            return self._record("TensorType", [("ndim", str(ty.ndim)), *dtype])
        return self._type(ty, self.visit_type_)

    def _type(self, ty: ir.Type, inner: Any) -> str:
        fields: list[tuple[str, str]] = []
        if isinstance(ty, ir.ShapeType):
            fields = [("ndim", str(ty.ndim))]
        elif isinstance(ty, ir.PrimType):
            fields = [("dtype", ty.dtype)]
        elif isinstance(ty, ir.TupleType):
            fields = [("fields", self._list(map(inner, ty.fields)))]
        elif isinstance(ty, ir.FuncType):
            params = [] if ty.params is None else [("params", self._list(map(inner, ty.params)))]
            fields = [*params, ("ret", inner(ty.ret)), ("purity", str(bool(ty.purity)))]
        return self._record(type(ty).__name__, fields)

    def _is_shown(self, expr: Any, field: str) -> bool:
        if field == "attrs":
            return bool(expr.attrs) and (self.include_call_attrs or not isinstance(expr, ir.Call))
        return field != "ty_args" or bool(expr.ty_args)

    def _type_field(self, expr: ir.Expr) -> list[tuple[str, str]]:
        ty = ir.AnyType() if isinstance(expr, (ir.ExprStringImm, ir.DataTypeImm)) else expr.ty
        return [("ty", self.visit_ty_(ty))] if self.include_ty_annotations and ty is not None else []

    def _field(self, name: str, value: Any) -> str:
        if name in _BARE:
            return str(value)
        if name == "attrs":
            pairs = (f'"{k}": {_quoted(v)}' for k, v in value.items())
            return self._list(pairs, "{", "}")
        if isinstance(value, tuple):
            return self._list((self._field("", v) for v in value), newline=name == "bindings")
        if isinstance(value, ir.Type):
            return self.visit_ty_(value)
        return f'"{value}"' if isinstance(value, str) else self.visit_expr(value)

    def _record(self, name: str, fields: list[tuple[str, str]], newline: bool = False) -> str:
        return self._list((f"{k}={v}" for k, v in fields), f"{name}(", ")", newline)

    def _list(self, members: Iterable[str], begin: str = "[", end: str = "]", newline: bool = False) -> str:
        """Write members, each on lines of its own unless there is only one that fits the line."""
        items = list(members)
        if not items or (len(items) == 1 and not newline and "\n" not in items[0]):
            return f"{begin}{''.join(items)}{end}"
        lines = ",\n".join(items).split("\n")
        return "\n".join([begin, *(self.indent_str + line for line in lines), end])


def _scalar(value: ir.PrimExpr) -> str:
    if isinstance(value, ir.IntImm) and value.dtype != "int32":
        return f"T.{value.dtype}({bool(value.value) if value.dtype == 'bool' else value.value})"
    return value.name if isinstance(value, ir.Var) else str(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def dump_ast(
    exp: ir.Node, indent_str: str = "    ", include_ty_annotations: bool = True, include_call_attrs: bool = True
) -> str:
    """Return an expression as nested records; the options are those of :class:`ASTPrinter`."""
    return ASTPrinter(indent_str, include_ty_annotations, include_call_attrs).visit_expr(exp)
