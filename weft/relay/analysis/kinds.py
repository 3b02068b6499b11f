"""Kinds: which types may be types of values, and which only stand in others."""

from __future__ import annotations

from typing import Any

from weft.error import InvalidArgument
from weft.ir import Dispatch, IRModule, Type
from weft.relay.adt import TypeData, type_data
from weft.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeKind,
    TypeVar,
)

_NAMES = {v: k for k, v in vars(TypeKind).items() if isinstance(v, int)}
KIND = Dispatch(
    "kind of a Relay type",
    (TensorType, TypeVar, IncompleteType, GlobalTypeVar, TupleType, RefType, FuncType, TypeCall, TypeData),
)


def check_kind(t: Type, mod: IRModule | None = None) -> int:
    """Return the kind of a type.

    Parameters
    ----------
    t : Type
        The type.
    mod : IRModule, optional
        The module whose data types it names; without it their parameters are not counted.

    Returns
    -------
    kind : int
        One of :class:`TypeKind`.

    Raises
    ------
    InvalidArgument
        When it is malformed: parts of another kind than a type of values, data types that the module does not
        define or that are given a wrong number of arguments.
    """
    return KIND(t, mod)


def _expect(t: Type, kind: int, of: Type, mod: IRModule | None) -> None:
    found = check_kind(t, mod)
    if found != kind:
        raise InvalidArgument(
            f"`{t}` cannot stand in `{of}`",
            expected=f"the kind {_NAMES[kind]}",
            found=f"the kind {_NAMES[found]}",
            where=of.span,
        )


@KIND.on(TensorType)
def _tensor(t: TensorType, mod: IRModule | None) -> int:
    return TypeKind.Type


@KIND.on(TypeVar, IncompleteType)
def _variable(t: Any, mod: IRModule | None) -> int:
    return t.kind


@KIND.on(GlobalTypeVar)
def _name(t: GlobalTypeVar, mod: IRModule | None) -> int:
    if mod is not None and type_data(mod, t) is None:
        known = ", ".join(g.name_hint for g in mod.type_definitions)
        raise InvalidArgument(f"the module has no data type '{t.name_hint}'", found=known or "no data types", where=t)
    return t.kind


@KIND.on(TupleType, RefType)
def _compound(t: Any, mod: IRModule | None) -> int:
    for f in t.fields if isinstance(t, TupleType) else (t.value,):
        _expect(f, TypeKind.Type, t, mod)
    return TypeKind.Type


@KIND.on(FuncType)
def _function(t: FuncType, mod: IRModule | None) -> int:
    for part in (*t.type_params, *t.arg_types, t.ret_type):
        _expect(part, TypeKind.Type, t, mod)
    return TypeKind.Type


@KIND.on(TypeCall)
def _call(t: TypeCall, mod: IRModule | None) -> int:
    _expect(t.func, TypeKind.AdtHandle, t, mod)
    for a in t.args:
        _expect(a, TypeKind.Type, t, mod)
    data = type_data(mod, t.func) if mod is not None and isinstance(t.func, GlobalTypeVar) else None
    if data is not None and len(data.type_vars) != len(t.args):
        raise InvalidArgument(
            f"data type '{t.func.name_hint}' has another number of type parameters",  # type: ignore[union-attr]
            expected=str(len(data.type_vars)),
            found=str(len(t.args)),
            where=t.span,
        )
    return TypeKind.Type


@KIND.on(TypeData)
def _data(t: TypeData, mod: IRModule | None) -> int:
    for v in t.type_vars:
        _expect(v, TypeKind.Type, t, mod)
    for field in (f for c in t.constructors for f in c.inputs):
        _expect(field, TypeKind.Type, t, mod)
    return TypeKind.TypeData
