"""Kinds: which types may be types of values, and which only stand in others."""

from __future__ import annotations

from typing import Any

from weft.error import InvalidArgument
from weft.ir import Dispatch, IRModule, Type
from weft.relay import types
from weft.relay.adt import TypeData, type_data

_NAMES = {v: k for k, v in vars(types.TypeKind).items() if isinstance(v, int)}
_TYPES = (
    types.TensorType,
    types.TypeVar,
    types.IncompleteType,
    types.GlobalTypeVar,
    types.TupleType,
    types.RefType,
    types.FuncType,
    types.TypeCall,
    TypeData,
)
KIND = Dispatch("kind of a Relay type", (*_TYPES, types.TypeRelation))


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


@KIND.on(types.TensorType)
def _tensor(t: types.TensorType, mod: IRModule | None) -> int:
    return types.TypeKind.Type


@KIND.on(types.TypeRelation)
def _relation(t: types.TypeRelation, mod: IRModule | None) -> int:
    return types.TypeKind.Constraint


@KIND.on(types.TypeVar, types.IncompleteType)
def _variable(t: Any, mod: IRModule | None) -> int:
    return t.kind


@KIND.on(types.GlobalTypeVar)
def _name(t: types.GlobalTypeVar, mod: IRModule | None) -> int:
    if mod is not None and type_data(mod, t) is None:
        known = ", ".join(g.name_hint for g in mod.type_definitions)
        raise InvalidArgument(f"the module has no data type '{t.name_hint}'", found=known or "no data types", where=t)
    return t.kind


@KIND.on(types.TupleType, types.RefType)
def _compound(t: Any, mod: IRModule | None) -> int:
    for f in t.fields if isinstance(t, types.TupleType) else (t.value,):
        _expect(f, types.TypeKind.Type, t, mod)
    return types.TypeKind.Type


@KIND.on(types.FuncType)
def _function(t: types.FuncType, mod: IRModule | None) -> int:
    for part in (*t.type_params, *t.arg_types, t.ret_type):
        _expect(part, types.TypeKind.Type, t, mod)
    return types.TypeKind.Type


@KIND.on(types.TypeCall)
def _call(t: types.TypeCall, mod: IRModule | None) -> int:
    _expect(t.func, types.TypeKind.AdtHandle, t, mod)
    for a in t.args:
        _expect(a, types.TypeKind.Type, t, mod)
    data = type_data(mod, t.func) if mod is not None and isinstance(t.func, types.GlobalTypeVar) else None
    if data is not None and len(data.type_vars) != len(t.args):
        raise InvalidArgument(
            f"data type '{t.func.name_hint}' has another number of type parameters",  # type: ignore[union-attr]
            expected=str(len(data.type_vars)),
            found=str(len(t.args)),
            where=t.span,
        )
    return types.TypeKind.Type


@KIND.on(TypeData)
def _data(t: TypeData, mod: IRModule | None) -> int:
    for v in t.type_vars:
        _expect(v, types.TypeKind.Type, t, mod)
    for field in (f for c in t.constructors for f in c.inputs):
        _expect(field, types.TypeKind.Type, t, mod)
    return types.TypeKind.TypeData
