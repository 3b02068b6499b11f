"""How Relay's types, patterns and attributes are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weft import ir
from weft.ir import Attrs, Dispatch, FloatImm, IntImm, Node
from weft.relay.adt import Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, TypeData
from weft.relay.op.registry import REQUIRED
from weft.relay.text.literals import NAME
from weft.relay.types import Any as AnyDim
from weft.relay.types import FuncType, GlobalTypeVar, IncompleteType, RefType, TypeCall, TypeKind, TypeVar

if TYPE_CHECKING:
    from weft.relay.text.printer import Printer

TYPE = Dispatch("print a Relay type", (ir.Type,), default=lambda ty, p: p.meta(ty))


def _comma(items: Any, p: Printer) -> str:
    return ", ".join(p.type(t) for t in items)


def dimension(d: Any, p: Printer) -> str:
    """Write a dimension: a number, ``?``, or an expression, which programs keep in the metadata."""
    if isinstance(d, IntImm) and d.dtype == "int64":
        return str(d.value)
    if isinstance(d, AnyDim):
        return "?"
    return p.meta(d) if p.is_program else str(d)


@TYPE.on(ir.TensorType)
def _tensor(ty: ir.TensorType, p: Printer) -> str:
    if ty.shape is None or ty.vdevice is not None:
        return p.meta(ty)
    return f"Tensor[({', '.join(dimension(d, p) for d in ty.shape)}), {ty.dtype}]" if ty.shape else str(ty.dtype)


@TYPE.on(ir.TupleType)
def _tuple(ty: ir.TupleType, p: Printer) -> str:
    return f"({_comma(ty.fields, p)}{',' if len(ty.fields) == 1 else ''})"


@TYPE.on(FuncType)
def _func(ty: FuncType, p: Printer) -> str:
    if ty.type_constraints or any(v.kind != TypeKind.Type for v in ty.type_params):
        return p.meta(ty)
    params = f"[{_comma(ty.type_params, p)}]" if ty.type_params else ""
    return f"fn {params}({_comma(ty.arg_types, p)}) -> {p.type(ty.ret_type)}"


@TYPE.on(RefType)
def _ref(ty: RefType, p: Printer) -> str:
    return f"ref({p.type(ty.value)})"


@TYPE.on(TypeVar)
def _type_var(ty: TypeVar, p: Printer) -> str:
    return p.type_names(ty)


@TYPE.on(GlobalTypeVar)
def _global_type_var(ty: GlobalTypeVar, p: Printer) -> str:
    return ty.name_hint


@TYPE.on(TypeCall)
def _type_call(ty: TypeCall, p: Printer) -> str:
    return f"{p.type(ty.func)}[{_comma(ty.args, p)}]" if ty.args else p.type(ty.func)


@TYPE.on(IncompleteType)
def _incomplete(ty: IncompleteType, p: Printer) -> str:
    return "_"


def definition(data: TypeData, p: Printer) -> str:
    """Write the definition of a data type."""
    params = f"[{_comma(data.type_vars, p)}]" if data.type_vars else ""
    if not data.constructors:
        return f"extern type {data.header.name_hint}{params}"
    rows = [f"  {c.name_hint}{f'({_comma(c.inputs, p)})' if c.inputs else ''},\n" for c in data.constructors]
    return f"type {data.header.name_hint}{params} {{\n{''.join(rows)}}}"


def pattern(node: Pattern, p: Printer) -> str:
    """Write a pattern; its variables are new."""
    match node:
        case PatternVar():
            return p.define(node.var)
        case PatternConstructor():
            inner = ", ".join(pattern(x, p) for x in node.patterns)
            return node.constructor.name_hint + (f"({inner})" if node.patterns else "")
        case PatternTuple():
            return f"({', '.join(pattern(x, p) for x in node.patterns)}{',' if len(node.patterns) == 1 else ''})"
        case PatternWildcard():
            return "_"
        case _:
            return p.foreign(node)


def attributes(attrs: Attrs, p: Printer, defaults: dict[str, Any] | None = None) -> list[str]:
    """Write ``name=value`` for attributes that differ from the defaults; ``name=_`` for one that a call lacks."""
    defaults = defaults or {}
    given = [
        f"{k if NAME.fullmatch(k) else json.dumps(k)}={attribute(v, p)}"
        for k, v in attrs.items
        if k not in defaults or not _same(v, defaults[k])
    ]
    return given + [f"{k}=_" for k, v in defaults.items() if v is not REQUIRED and k not in attrs]


def _same(value: Any, default: Any) -> bool:
    if isinstance(default, list):
        default = tuple(default)
    if type(value) is tuple and type(default) is tuple:
        return len(value) == len(default) and all(map(_same, value, default))
    return type(value) is type(default) and not isinstance(value, Node) and value == default


def attribute(value: Any, p: Printer) -> str:
    """Write the value of an attribute so that it is read back as the same Python value or node."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return json.dumps(str(value))
    if type(value) is int:
        return str(value)
    if isinstance(value, float):
        return f"{value!r}f"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(attribute(v, p) for v in value)}]"
    if isinstance(value, Attrs):
        return f"{{{', '.join(f'{json.dumps(k)}={attribute(v, p)}' for k, v in value.items)}}}"
    if isinstance(value, AnyDim):
        return "?"
    if isinstance(value, (IntImm, FloatImm)):
        return _immediate(value, p)
    return p.meta(value)


def _immediate(value: IntImm | FloatImm, p: Printer) -> str:
    if value.dtype not in ("int32", "int64", "float32", "float64"):
        return p.meta(value)
    bits = str(value.dtype).lstrip("intfloa")
    return f"{value.value}i{bits}" if isinstance(value, IntImm) else f"{value.value!r}f{bits}"
