"""Bindings of Relax programs: what an assignment makes of a value, and whether it has the type that is written."""

from __future__ import annotations

import ast
from typing import Any

from weft import error, ir
from weft.ir.text.parser import Macro, MetaVar, ModuleScope, Parser
from weft.relax.core_ops import as_relax
from weft.relax.expr import DataflowVar, MatchCast, VarBinding
from weft.relax.script.language import Command
from weft.relax.vocabulary import Value


def as_value(p: Parser, value: Value | Command) -> ir.Expr:
    """Return the normal form of a value, ready to be bound."""
    if isinstance(value, Command) and value.kind == "emit_te":
        func, args, hint, kwargs = value.value
        value = p.state.bb.call_te(func, *args, primfunc_name_hint=hint, **kwargs)
    return p.state.bb.normalize(as_relax(value))


def new_var(p: Parser, name: str, ty: ir.Type | None, span: ir.Span) -> ir.ExprVar:
    """Make a variable; inside of a dataflow block one of its own, unless it is an output."""
    outputs = p.state.outputs
    return (ir.ExprVar if outputs is None or name in outputs else DataflowVar)(name, ty, span=span)


def assign(p: Parser, target: ast.expr, value: Any, note: ir.Type | None = None) -> None:
    """Bind the name or names of a target."""
    if isinstance(target, (ast.Tuple, ast.List)):
        _unpack(p, target, value)
        return
    if not isinstance(target, ast.Name):
        raise p.fail(target, "a name must stand before '='", found=ast.unparse(target))
    read_only = value is None or (callable(value) and not isinstance(value, ir.Expr))  # means something while read
    if isinstance(value, MetaVar):
        p.define(target.id, value.value)
    elif isinstance(value, ir.Var) and (value.name == "" or value.name == target.id in p.state.symbols):
        p.define(target.id, _declare(p, target.id, value))
    elif isinstance(value, Command) and value.kind == "match_cast":
        source, ty = value.value
        var = new_var(p, target.id, note or ty, p.span(target))
        p.state.bb.emit_normalized(MatchCast(var, p.state.bb.atom(source), ty, span=p.state.bb.span))
        p.define(target.id, var)
    elif read_only or isinstance(value, (ir.PrimExpr, ModuleScope, ir.Type, ir.VDevice, Macro, dict)):
        p.define(target.id, value)
    else:
        p.define(target.id, bind(p, target, value, note))


def _declare(p: Parser, name: str, value: ir.Var) -> ir.Var:
    """Introduce a symbolic variable, or name the one that the signature introduced."""
    known = p.state.symbols.get(name)
    if known is None:
        known = p.state.symbols[name] = type(value)(name, value.dtype)
    return known


def bind(p: Parser, target: ast.Name, value: Any, note: ir.Type | None) -> ir.ExprVar:
    """Emit the binding of a name to a value, and return its variable."""
    new = as_value(p, value)
    ty = new.ty if not isinstance(new, ir.GlobalVar) else new.ty or ir.AnyType()  # type: ignore[attr-defined]
    if note is not None and not (isinstance(note, ir.AnyType) and isinstance(new, ir.ExprVar)):
        new = checked(p, target, new, note)
        ty = note
    var = new_var(p, target.id, ty, p.span(target))
    p.state.bb.emit_normalized(VarBinding(var, new, span=p.state.bb.span))
    return var


def checked(p: Parser, target: ast.AST, value: ir.Expr, note: ir.Type) -> ir.Expr:
    """Hold an annotation against the inferred type; it decides where nothing was inferred."""
    inferred = value.ty
    if isinstance(value, ir.Call) and (_is_unknown(inferred, p) and not isinstance(note, ir.AnyType)):
        return ir.Call(value.op, value.args, value.attrs, value.ty_args, span=value.span, ty=note)
    if inferred is not None and _contradicts(inferred, note):
        what = "the annotation differs from the type of the value"
        raise error.TypeInferenceError(what, where=p.span(target), expected=str(inferred), found=str(note))
    return value


def _is_unknown(ty: ir.Type | None, p: Parser) -> bool:
    """Whether inference found nothing, or a type in terms of symbols that this function does not know."""
    if ty is None or isinstance(ty, ir.AnyType):
        return True
    known = set(p.state.symbols.values())
    return any(isinstance(n, ir.Var) and n not in known for n in ir.walk(ty))


def _contradicts(a: ir.Type, b: ir.Type) -> bool:
    """Whether no value can have both types."""
    if isinstance(a, ir.AnyType) or isinstance(b, ir.AnyType):
        return False
    if isinstance(a, ir.TensorType) and isinstance(b, ir.TensorType):
        if (a.dtype and b.dtype and a.dtype != b.dtype) or (a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim):
            return True
        pairs = zip(a.shape, b.shape, strict=True) if a.shape is not None and b.shape is not None else ()
        return any(x.value != y.value for x, y in pairs if hasattr(x, "value") and hasattr(y, "value"))  # type: ignore[attr-defined]
    if isinstance(a, ir.TupleType) and isinstance(b, ir.TupleType):
        return len(a.fields) != len(b.fields) or any(
            _contradicts(x, y) for x, y in zip(a.fields, b.fields, strict=True)
        )
    if isinstance(a, ir.PrimType) and isinstance(b, ir.PrimType):
        return a.dtype != b.dtype
    return type(a) is not type(b) and not isinstance(a, ir.FuncType) and not isinstance(b, ir.FuncType)


def _unpack(p: Parser, target: ast.Tuple | ast.List, value: Any) -> None:
    if isinstance(value, ir.Expr) and not isinstance(value, ir.Tuple):
        source = p.state.bb.atom(value)
        ty = source.ty  # type: ignore[attr-defined]
        count = len(ty.fields) if isinstance(ty, ir.TupleType) else len(target.elts)
        values: list[Any] = [ir.TupleGetItem(source, i) for i in range(count)]
    else:
        values = list(value.fields if isinstance(value, ir.Tuple) else value)
    if len(values) != len(target.elts):
        raise p.fail(
            target, "names and values differ in number", expected=str(len(values)), found=str(len(target.elts))
        )
    for t, v in zip(target.elts, values, strict=True):
        assign(p, t, v)
