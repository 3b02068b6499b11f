"""How Relay's types and attributes are written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from weft import ir
from weft.ir import Attrs, Dispatch, FloatImm, IntImm, Node, PrimExpr
from weft.ir.node import plain_text
from weft.ir.text import script
from weft.relay.adt import TypeData
from weft.relay.op.registry import REQUIRED
from weft.relay.text.literals import NAME, TypeNames
from weft.relay.types import Any as AnyDim
from weft.relay.types import FuncType, GlobalTypeVar, IncompleteType, RefType, TypeCall, TypeKind, TypeVar


class TypePrinter:
    """Writes types: names of their variables, and the metadata of what has no form of its own.

    Parameters
    ----------
    type_definitions : iterable of str
        Names of data types, which type variables must not have.
    """

    def __init__(self, type_definitions: Iterable[str] = ()) -> None:
        self.is_program = True  # not a single type, which only people read
        self.metadata: dict[str, list[Any]] = {}
        self._taken_types = tuple(type_definitions)
        self._meta_at: dict[int, str] = {}  # by id: not all values are hashable; the entries of `metadata` are alive
        TypePrinter.reset(self)

    def reset(self) -> None:
        """Forget names, as between two functions."""
        self.type_names = TypeNames(self._taken_types)

    def type(self, ty: ir.Type) -> str:
        """Write a type."""
        return TYPE(ty, self)

    def meta(self, node: Node) -> str:
        """Keep a value apart and refer to it."""
        known = self._meta_at.get(id(node))
        if known is None:
            package = "tir" if isinstance(node, PrimExpr) else type(node).__module__.removeprefix("weft.").split(".")[0]
            key = f"{package}.{type(node).__name__}"
            entries = self.metadata.setdefault(key, [])
            known = self._meta_at[id(node)] = f"meta[{key}][{len(entries)}]"
            entries.append(node)
        return known

    def foreign(self, node: Node) -> str:
        """Write a node that Relay does not know."""
        return plain_text(node) if type(node).__module__.startswith("weft.relay") else script(node)


TYPE = Dispatch("print a Relay type", (ir.Type,), default=lambda ty, p: p.meta(ty))


def _comma(items: Any, p: TypePrinter) -> str:
    return ", ".join(p.type(t) for t in items)


def dimension(d: ir.PrimExpr, p: TypePrinter) -> str:
    """Write a dimension: a number, ``?``, or an expression, which programs keep in the metadata."""
    if isinstance(d, IntImm) and d.dtype == "int64":
        return str(d.value)
    if isinstance(d, AnyDim):
        return "?"
    return p.meta(d) if p.is_program else str(d)


@TYPE.on(ir.TensorType)
def _tensor(ty: ir.TensorType, p: TypePrinter) -> str:
    if ty.shape is None or ty.vdevice is not None:
        return p.meta(ty)
    return f"Tensor[({', '.join(dimension(d, p) for d in ty.shape)}), {ty.dtype}]" if ty.shape else str(ty.dtype)


@TYPE.on(ir.TupleType)
def _tuple(ty: ir.TupleType, p: TypePrinter) -> str:
    return f"({_comma(ty.fields, p)}{',' if len(ty.fields) == 1 else ''})"


@TYPE.on(FuncType)
def _func(ty: FuncType, p: TypePrinter) -> str:
    if ty.type_constraints or any(v.kind != TypeKind.Type for v in ty.type_params):
        return p.meta(ty)
    params = f"[{_comma(ty.type_params, p)}]" if ty.type_params else ""
    return f"fn {params}({_comma(ty.arg_types, p)}) -> {p.type(ty.ret_type)}"


@TYPE.on(RefType)
def _ref(ty: RefType, p: TypePrinter) -> str:
    return f"ref({p.type(ty.value)})"


@TYPE.on(TypeVar)
def _type_var(ty: TypeVar, p: TypePrinter) -> str:
    return p.type_names(ty)


@TYPE.on(GlobalTypeVar)
def _global_type_var(ty: GlobalTypeVar, p: TypePrinter) -> str:
    return ty.name_hint


@TYPE.on(TypeCall)
def _type_call(ty: TypeCall, p: TypePrinter) -> str:
    return f"{p.type(ty.func)}[{_comma(ty.args, p)}]" if ty.args else p.type(ty.func)


@TYPE.on(IncompleteType)
def _incomplete(ty: IncompleteType, p: TypePrinter) -> str:
    return "_"


def definition(data: TypeData, p: TypePrinter) -> str:
    """Write the definition of a data type."""
    params = f"[{_comma(data.type_vars, p)}]" if data.type_vars else ""
    if not data.constructors:
        return f"extern type {data.header.name_hint}{params}"
    rows = [f"  {c.name_hint}{f'({_comma(c.inputs, p)})' if c.inputs else ''},\n" for c in data.constructors]
    return f"type {data.header.name_hint}{params} {{\n{''.join(rows)}}}"


def attributes(attrs: Attrs, p: TypePrinter, defaults: dict[str, Any] | None = None) -> list[str]:
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


def attribute(value: object, p: TypePrinter) -> str:
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
    return p.meta(value)  # type: ignore[arg-type]


def _immediate(value: IntImm | FloatImm, p: TypePrinter) -> str:
    if value.dtype not in ("int32", "int64", "float32", "float64"):
        return p.meta(value)
    bits = str(value.dtype).lstrip("intfloa")
    return f"{value.value}i{bits}" if isinstance(value, IntImm) else f"{value.value!r}f{bits}"
