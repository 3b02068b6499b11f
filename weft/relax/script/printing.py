"""Print rules of Relax: graph-level expressions, bindings, functions (``R``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import error, ir
from weft.ir.text.doc import TERNARY, Doc, Group, Seq, call, index, mapping, tuple_doc
from weft.ir.text.printer import EXPR, FUNCTION, STMT, Printer, any_literal, quote
from weft.ir.text.scalar import number
from weft.ir.text.types import dim
from weft.op import get_op_def
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding

# --- expressions ------------------------------------------------------------------------------------------------------


@EXPR.on(ir.ExprVar)
def _var(node: ir.ExprVar, p: Printer) -> Doc:
    def value() -> Doc:
        return call("R.Var", [quote(node.name_hint), *([] if node.ty is None else [p.expr(node.ty)])])

    if len(p.frames) == 1 and node.ty is not None:  # a fragment is for people
        return p.declare(node, node.name_hint, lambda: p.expr(node.ty), sign=": ")
    return p.declare(node, node.name_hint, value)


@EXPR.on(ir.Constant)
def _constant(node: ir.Constant, p: Printer) -> Doc:
    data = node.data
    if len(data.shape) or str(data.dtype) not in _SCALARS:
        return p.meta(node, "relax.expr.Constant")
    p.dialects.add("R")
    item = (data.numpy() if hasattr(data, "numpy") else data).item()
    return call("R.const", [any_literal(_SCALARS[str(data.dtype)](item), p), quote(str(data.dtype))])


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    **{f"{s}int{n}": int for s in ("", "u") for n in (8, 16, 32, 64)},
    **dict.fromkeys(("float16", "float32", "float64", "bfloat16"), float),
}


@EXPR.on(ir.ShapeExpr)
def _shape(node: ir.ShapeExpr, p: Printer) -> Doc:
    items = [dim(v, p) for v in node.values]
    return call("R.shape", [Group("[", tuple(items), "]")])


@EXPR.on(ir.PrimValue)
def _prim_value(node: ir.PrimValue, p: Printer) -> Doc:
    value = node.value
    plain = isinstance(value, ir.IntImm) and value.dtype == "int64"
    return call("R.prim_value", [number(value.value) if plain else p.expr(value)])  # type: ignore[attr-defined]


@EXPR.on(ir.ExprStringImm)
def _string(node: ir.ExprStringImm, p: Printer) -> Doc:
    return call("R.str", [quote(node.value)])


@EXPR.on(ir.DataTypeImm)
def _dtype(node: ir.DataTypeImm, p: Printer) -> Doc:
    return call("R.dtype", [quote(node.value)])


@EXPR.on(ir.ExternFunc)
def _extern(node: ir.ExternFunc, p: Printer) -> Doc:
    p.dialects.add("R")
    attrs = [("attrs", any_literal(node.attrs, p))] if node.attrs else []
    typed = [p.expr(node.ty)] if isinstance(node.ty, ir.FuncType) else []
    return call("R.ExternFunc", [quote(node.global_symbol), *typed], attrs)


@EXPR.on(ir.Tuple)
def _tuple(node: ir.Tuple, p: Printer) -> Doc:
    return tuple_doc([p.expr(f) for f in node.fields]) if node.fields else "R.tuple()"


@EXPR.on(ir.TupleGetItem)
def _item(node: ir.TupleGetItem, p: Printer) -> Doc:
    value = p.expr(node.tuple_value)
    if isinstance(node.tuple_value, (ir.ExprVar, ir.TupleGetItem, ir.Call)):
        return index(value, [str(node.index)])
    return call("R.TupleGetItem", [value, str(node.index)])


# --- calls ------------------------------------------------------------------------------------------------------------


@EXPR.on(ir.Call)
def _call(node: ir.Call, p: Printer) -> Doc:
    op = node.op
    if isinstance(op, ir.Op):
        return _op_call(node, op.name.removeprefix("relax."), p)
    if isinstance(op, ir.ExternFunc) and not node.attrs and not op.attrs:
        return call("R.call_packed", [quote(op.global_symbol), *[p.expr(a) for a in node.args]], _type_args(node, p))
    if isinstance(op, ir.GlobalVar) and not node.attrs:
        return call(p.expr(op), [p.expr(a) for a in node.args], _type_args(node, p))
    if isinstance(op, ir.ExprVar) and not node.attrs and not node.ty_args:
        return call(p.expr(op), [p.expr(a) for a in node.args])
    return _generic(node, p)


def _type_args(node: ir.Call, p: Printer) -> list[tuple[str, Doc]]:
    return [("ty_args", tuple_doc([p.expr(t) for t in node.ty_args]))] if node.ty_args else []


def _generic(node: ir.Call, p: Printer) -> Doc:
    """Write a call that no constructor makes."""
    op = quote(node.op.name) if isinstance(node.op, ir.Op) else p.expr(node.op)
    kwargs = [("attrs", any_literal(node.attrs, p))] if node.attrs else []
    return call("R.Call", [op, tuple_doc([p.expr(a) for a in node.args])], [*kwargs, *_type_args(node, p)])


def _op_call(node: ir.Call, name: str, p: Printer) -> Doc:
    p.dialects.add("R")
    rule = _SPELLED.get(name)
    if rule is not None:
        return rule(node, name, p) or _generic(node, p)
    if node.ty_args:
        return _generic(node, p)
    args = [p.expr(a) for a in node.args]
    if name in CORE_OPS:
        return call(f"R.{name}", args, [(k, any_literal(v, p)) for k, v in node.attrs.items])
    try:
        definition = get_op_def(name)
    except error.UnsupportedOperator:
        return _generic(node, p)
    if set(node.attrs.keys()) != set(definition.attrs) or len(args) > len(definition.inputs):
        return _generic(node, p)
    defaults = ir.Attrs.of(definition.defaults)
    given = [(k, node.attrs[k]) for k in definition.attrs]
    return call(
        f"R.{name}", args, [(k, any_literal(v, p)) for k, v in given if not ir.structural_equal(v, defaults[k])]
    )


def _callee(func: ir.Expr, p: Printer) -> Doc:
    return quote(func.global_symbol) if isinstance(func, ir.ExternFunc) and not func.attrs else p.expr(func)


def _out(node: ir.Call, p: Printer) -> tuple[str, Doc]:
    (ty,) = node.ty_args
    if isinstance(ty, ir.TupleType) and len(ty.fields) > 1:
        return ("out_ty", Group("[", tuple([p.expr(f) for f in ty.fields]), "]"))
    return ("out_ty", p.expr(ty))


def _call_tir(node: ir.Call, name: str, p: Printer) -> Doc | None:
    keys = {"call_tir_inplace": {"inplace_indices"}}.get(name, set())
    if len(node.ty_args) != 1 or set(node.attrs.keys()) != keys or not 2 <= len(node.args) <= 3:
        return None
    if len(node.args) == 3 and (name == "call_dps_packed" or not isinstance(node.args[2], ir.ShapeExpr)):
        return None
    args = [_callee(node.args[0], p), p.expr(node.args[1])]
    kwargs = [("inplace_indices", any_literal(node.attrs["inplace_indices"], p))] if keys else []
    kwargs.append(_out(node, p))
    if len(node.args) == 3:
        kwargs.append(("tir_vars", p.expr(node.args[2])))
    return call(f"R.{name}", args, kwargs)


def _packed(node: ir.Call, name: str, p: Printer) -> Doc | None:
    keys = {"inplace_indices"} if name == "call_inplace_packed" else set()
    if set(node.attrs.keys()) != keys or not node.args or not isinstance(node.args[0], ir.ExternFunc):
        return None
    kwargs = [(k, any_literal(node.attrs[k], p)) for k in keys]
    args = [_callee(node.args[0], p), *[p.expr(a) for a in node.args[1:]]]
    return call(f"R.{name}", args, [*kwargs, *_type_args(node, p)])


def _invoke(node: ir.Call, name: str, p: Printer) -> Doc | None:
    if node.attrs or len(node.args) != 2:
        return None
    return call(f"R.{name}", [p.expr(a) for a in node.args], _type_args(node, p))


def _call_builtin(node: ir.Call, name: str, p: Printer) -> Doc | None:
    if node.attrs or len(node.args) != 2 or not isinstance(node.args[0], ir.ExternFunc):
        return None
    return call(f"R.{name}", [_callee(node.args[0], p), p.expr(node.args[1])], _type_args(node, p))


_SPELLED: dict[str, Callable[[ir.Call, str, Printer], Doc | None]] = {
    "call_tir": _call_tir,
    "call_tir_inplace": _call_tir,
    "call_dps_packed": _call_tir,
    "call_inplace_packed": _packed,
    "call_pure_packed": _packed,
    "invoke_closure": _invoke,
    "invoke_pure_closure": _invoke,
    "call_builtin": _call_builtin,
    "call_builtin_with_ctx": _call_builtin,
}


# --- bindings ---------------------------------------------------------------------------------------------------------


def _typed(name: str, ty: Any, p: Printer) -> Doc:
    return name if ty is None else Seq(TERNARY, (name, ": ", p.expr(ty)))


@STMT.on(VarBinding)
def _var_binding(node: VarBinding, p: Printer) -> None:
    var, value = node.var, node.value
    if isinstance(value, ir.If):
        _if(value, var, p)
    elif isinstance(value, ir.Function):
        _function(value, p.define(var, var.name_hint), p, nested=True)
    else:
        doc = p.expr(value)
        p.lines.add(_typed(p.define(var, var.name_hint), var.ty, p), " = ", doc)


@STMT.on(MatchCast)
def _match_cast(node: MatchCast, p: Printer) -> None:
    doc = call("R.match_cast", [p.expr(node.value), p.expr(node.ty)])
    p.lines.add(_typed(p.define(node.var, node.var.name_hint), node.var.ty, p), " = ", doc)


def _if(node: ir.If, var: ir.ExprVar, p: Printer) -> None:
    p.lines.add("if ", p.expr(node.cond), ":")
    name = p.name_of(var, var.name_hint)
    _branch(node.true_branch, name, var, p)
    p.lines.add("else:")
    _branch(node.false_branch, name, var, p)
    p.define(var, var.name_hint)


def _branch(branch: ir.Expr, name: str, var: ir.ExprVar, p: Printer) -> None:
    with p.scope():
        result = branch
        if isinstance(branch, SeqExpr):
            _blocks(branch, p)
            result = branch.body
        p.lines.add(_typed(name, var.ty, p), " = ", p.expr(result))


def _blocks(seq: SeqExpr, p: Printer) -> None:
    for block in seq.blocks:
        p.stmt(block)


@STMT.on(BindingBlock)
def _binding_block(node: BindingBlock, p: Printer) -> None:
    for b in node.bindings:
        p.stmt(b)


@STMT.on(DataflowBlock)
def _dataflow_block(node: DataflowBlock, p: Printer) -> None:
    p.lines.add("with R.dataflow():")
    with p.lines.indented():
        for b in node.bindings:
            p.stmt(b)
        p.lines.add(call("R.output", [p.expr(b.var) for b in node.bindings if not isinstance(b.var, DataflowVar)]))


@STMT.on(SeqExpr)
def _seq(node: SeqExpr, p: Printer) -> None:
    _blocks(node, p)
    p.lines.add(p.expr(node.body))


# --- functions --------------------------------------------------------------------------------------------------------


@FUNCTION.on(ir.ExternFunc)
def _extern_function(node: ir.ExternFunc, name: str, p: Printer) -> None:
    p.lines.add(f"{name} = ", p.expr(node))


@FUNCTION.on(ir.Function)
def _function(func: ir.Function, name: str, p: Printer, *, nested: bool = False) -> None:
    p.dialects.add("R")
    place: list[Any] = []
    p.open_function(place)
    p.frames[-1].sizes.update(_sizes(func))
    params, returns = _signature(func, p)
    attrs = dict(func.attrs.items)
    symbol = attrs.get("global_symbol")
    spelled = name if name.isidentifier() else p.fresh("func")
    options = [] if func.is_pure else [("pure", "False")]
    if not nested:
        if symbol is None:
            options.append(("private", "True"))
        elif symbol == name:
            del attrs["global_symbol"]
        if spelled != name:
            options.append(("name", quote(name)))
    p.lines.add("@", call("R.function", (), options) if options else "R.function")
    p.lines.add(f"def {spelled}", Group("(", tuple(params), ")"), *returns, ":")
    with p.scope():
        p.lines.mark(place)
        if attrs:
            p.lines.add(call("R.func_attr", [mapping([(quote(k), any_literal(v, p)) for k, v in attrs.items()])]))
        body = func.body
        if isinstance(body, SeqExpr):
            _blocks(body, p)
            body = body.body
        p.lines.add("return ", "None" if body is None else p.expr(body))
    p.close_function()


def _sizes(func: ir.Function) -> set[ir.Var]:
    """Return the variables that stand alone as a dimension of a parameter."""
    types = [t for param in func.params if param.ty is not None for t in ir.find(param.ty, ir.TensorType)]
    return {d for t in types for d in t.shape or () if isinstance(d, ir.Var)}


def _signature(func: ir.Function, p: Printer) -> tuple[list[Doc], list[Any]]:
    p.quote_dims = True
    params = [_typed(p.define(v, v.name_hint), v.ty, p) for v in func.params]
    returns = [" -> ", p.expr(func.ret_ty)] if func.ret_ty is not None else []
    p.quote_dims = False
    return params, returns
