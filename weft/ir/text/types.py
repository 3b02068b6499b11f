"""Print rules of the types that Relax and Relay share (``R``), and of global information (``I``)."""

from typing import Any

from weft.ir import types
from weft.ir.scalar import IntImm, PrimExpr
from weft.ir.text.doc import TERNARY, Doc, Seq, call, flat, tuple_doc
from weft.ir.text.printer import EXPR, Printer, any_literal, quote, type_or_none
from weft.ir.text.scalar import number


def dim(value: PrimExpr, p: Printer) -> Doc:
    """Write a dimension: int64 constants as numbers, and symbolic ones as strings inside a signature."""
    if isinstance(value, IntImm) and value.dtype == "int64":
        return number(value.value)
    doc = p.expr(value)
    return quote(flat(doc)) if p.quote_dims else doc


def _bracketed(values: tuple[PrimExpr, ...], p: Printer) -> Doc:
    docs: list[Any] = []
    for v in values:
        docs += [", ", dim(v, p)] if docs else [dim(v, p)]
    return Seq(TERNARY, ("[", *docs, "]"))


@EXPR.on(types.TensorType)
def _tensor_type(node: types.TensorType, p: Printer) -> Doc:
    p.dialects.add("R")
    args: list[Doc] = []
    kwargs: list[tuple[str, Doc]] = []
    if node.shape is not None:
        args.append(tuple_doc([dim(d, p) for d in node.shape]))
    if node.dtype:
        kwargs.append(("dtype", quote(node.dtype)))
    if node.shape is None and node.ndim >= 0:
        kwargs.append(("ndim", str(node.ndim)))
    if node.vdevice is not None:
        kwargs.append(("vdevice", p.expr(node.vdevice)))
    return call("R.Tensor", args, kwargs) if args or kwargs else "R.Tensor"


@EXPR.on(types.ShapeType)
def _shape_type(node: types.ShapeType, p: Printer) -> Doc:
    p.dialects.add("R")
    if node.values is not None:
        return call("R.Shape", [_bracketed(node.values, p)])
    return call("R.Shape", (), [("ndim", str(node.ndim))]) if node.ndim >= 0 else "R.Shape"


@EXPR.on(types.TupleType)
def _tuple_type(node: types.TupleType, p: Printer) -> Doc:
    p.dialects.add("R")
    return call("R.Tuple", [p.expr(f) for f in node.fields])


@EXPR.on(types.AnyType)
def _any_type(node: types.AnyType, p: Printer) -> Doc:
    p.dialects.add("R")
    return "R.Any"


@EXPR.on(types.PackedFuncType)
def _packed_func_type(node: types.PackedFuncType, p: Printer) -> Doc:
    p.dialects.add("R")
    return "R.PackedFunc"


@EXPR.on(types.PrimType)
def _prim_type(node: types.PrimType, p: Printer) -> Doc:
    p.dialects.add("R")
    if node.value is not None and node.value.dtype == node.dtype:
        return call("R.Prim", (), [("value", dim(node.value, p))])
    return call("R.Prim", [quote(node.dtype)])


@EXPR.on(types.FuncType)
def _func_type(node: types.FuncType, p: Printer) -> Doc:
    p.dialects.add("R")
    kwargs = [] if node.purity else [("purity", "False")]
    if node.params is None:
        return call("R.Callable", (), [("ret", p.expr(node.ret)), *kwargs])
    return call("R.Callable", [tuple_doc([type_or_none(t, p) for t in node.params]), p.expr(node.ret)], kwargs)


@EXPR.on(types.VDevice)
def _vdevice(node: types.VDevice, p: Printer) -> Doc:
    p.dialects.add("I")
    return call("I.vdevice", [any_literal(node.target, p), str(node.vdevice_id), any_literal(node.memory_scope, p)])


@EXPR.on(types.DummyGlobalInfo)
def _dummy_global_info(node: types.DummyGlobalInfo, p: Printer) -> Doc:
    p.dialects.add("I")
    return call("I.dummy_global_info", [])
