"""Unification: what unknown types stand for, and whether a value of one type may go where another is asked for.

``IncompleteType`` is the unknown. Values flow in one direction, from where they are made to where they are used: a
dimension that is known passes where any is asked for, and the reverse (run time checks it). What several values flow
into, and nobody annotated, has the dimensions in which they agree: ``Any`` where one of them is ``Any``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.ir import IntImm, PrimExpr, Type, rebuild, structural_equal
from weft.relay import types as relay_types
from weft.relay.types import Any as AnyDim

_COMPOSITE = (relay_types.TupleType, relay_types.FuncType, relay_types.RefType, relay_types.TypeCall)


class Mismatch(Exception):
    """Two types, parts of the given ones, that do not go together."""

    def __init__(self, found: Type, expected: Type) -> None:
        super().__init__(f"{found} is not {expected}")
        self.found, self.expected = found, expected


class InfiniteType(Mismatch):
    """A type that would be a part of itself."""


class _Failed(Type):
    """The type of what was refused already; it goes with every other, so that a mistake is told once."""


FAILED = _Failed()


class Unifier:
    """What the unknown types of one inference stand for.

    ``widened`` tells that a dimension that was known became ``Any``, so that what followed from it may be out of date.
    """

    __slots__ = ("_closed", "_resolved", "bindings", "widened")

    def __init__(self) -> None:
        self.bindings: dict[relay_types.IncompleteType, Type] = {}
        self.widened = False
        self._closed: dict[int, Type] = {}  # compound types without unknown parts, which are kept alive
        self._resolved: dict[int, tuple[Type, Type]] = {}  # with what is known now

    def head(self, ty: Type) -> Type:
        """Return what a type is, as far as it is known; its parts may be unknown."""
        while type(ty) is relay_types.IncompleteType and ty in self.bindings:
            ty = self.bindings[ty]
        return ty

    def resolve(self, ty: Type) -> Type:
        """Return a type with all that is known put in; the type itself where there is nothing to put in."""
        cls = type(ty)
        if cls is relay_types.TensorType:
            return ty
        if cls is relay_types.IncompleteType:
            bound = self.bindings.get(ty)  # pyright: ignore[reportArgumentType]
            return ty if bound is None else self.resolve(bound)
        if cls not in _COMPOSITE or id(ty) in self._closed:
            return ty
        known = self._resolved.get(id(ty))
        if known is not None:
            return known[1]
        found = rebuild(ty, self.resolve)
        if not any(True for _ in self._unknown(found)):
            self._closed[id(found)] = found
        self._resolved[id(ty)] = (ty, found)
        return found

    def _set(self, unknown: relay_types.IncompleteType, ty: Type) -> None:
        self.bindings[unknown] = ty
        if self._resolved:
            self._resolved.clear()

    def unknown(self, ty: Type) -> relay_types.IncompleteType | None:
        """Return an unknown part of a type, or None."""
        if type(ty) is relay_types.TensorType or id(ty) in self._closed:
            return None
        return next(iter(self._unknown(self.resolve(ty))), None)

    def _unknown(self, ty: Type) -> Iterable[relay_types.IncompleteType]:
        stack: list[Any] = [ty]
        while stack:
            t = stack.pop()
            if type(t) is relay_types.IncompleteType:
                yield t
            elif type(t) in _COMPOSITE and id(t) not in self._closed:
                stack.extend(reversed(relay_types.type_parts(t)))

    def substitute(self, ty: Type, types: Mapping[relay_types.TypeVar, Type]) -> Type:
        """Replace type variables in a type."""
        if type(ty) is relay_types.TensorType or not types:
            return ty
        if type(ty) is relay_types.TypeVar:
            return types.get(ty, ty)
        if type(ty) is relay_types.IncompleteType:
            bound = self.bindings.get(ty)
            return ty if bound is None else self.substitute(bound, types)
        return rebuild(ty, lambda t: self.substitute(t, types)) if type(ty) in _COMPOSITE else ty

    def instantiate(
        self, ty: relay_types.FuncType, type_args: tuple[Type, ...] = ()
    ) -> tuple[relay_types.FuncType, tuple[Type, ...]]:
        """Give type parameters their arguments, unknown ones by default: the type without parameters, and these."""
        if not ty.type_params:
            return ty, ()
        given = type_args or tuple(relay_types.IncompleteType() for _ in ty.type_params)
        types = dict(zip(ty.type_params, given, strict=True))
        args = tuple(self.substitute(a, types) for a in ty.arg_types)
        return relay_types.FuncType(args, self.substitute(ty.ret_type, types)), given

    def flow(self, src: Type, dst: Type) -> Type:
        """Let a value of type `src` go where `dst` is asked for; return `dst`, wide enough for both.

        Raises
        ------
        Mismatch
            Where it may not.
        """
        if src is dst or src is FAILED or dst is FAILED:
            return dst
        if type(dst) is relay_types.IncompleteType:
            return self._into(src, dst)
        if type(src) is relay_types.IncompleteType:
            src, unbound = self._root(src)
            if unbound is None:
                return self.flow(src, dst)
            self._bind(unbound, dst)
            return dst
        rule = _FLOW.get(type(dst))
        if rule is None:
            if not relay_types.types_equal(src, dst):
                raise Mismatch(src, dst)
            return dst
        if type(src) is not type(dst):
            raise Mismatch(src, dst)
        return rule(self, src, dst)

    def _root(self, ty: Type) -> tuple[Type, relay_types.IncompleteType | None]:
        """Return what an unknown type is bound to, or the unbound one that it is linked with."""
        found = self.head(ty)
        return found, found if type(found) is relay_types.IncompleteType else None

    def _into(self, src: Type, dst: relay_types.IncompleteType) -> Type:
        while type(self.bindings.get(dst)) is relay_types.IncompleteType:
            dst = self.bindings[dst]  # type: ignore[assignment]
        bound = self.bindings.get(dst)
        found, unbound = self._root(src)
        if unbound is not None:
            if unbound is not dst:
                self._bind(unbound, dst)
            return dst
        if bound is None:
            self._bind(dst, found)
            return dst
        if found is not bound:
            wide = self.flow(found, bound)
            if wide is not bound:
                self._set(dst, wide)
                self.widened = True
        return dst

    def _bind(self, unknown: relay_types.IncompleteType, ty: Type) -> None:
        if type(ty) is not relay_types.TensorType and self._occurs(unknown, ty):
            raise InfiniteType(unknown, ty)
        self._set(unknown, ty)

    def _occurs(self, unknown: relay_types.IncompleteType, ty: Type) -> bool:
        """Whether an unbound type is a part of another."""
        seen: set[int] = set()
        stack = [ty]
        while stack:
            t = self.head(stack.pop())
            if t is unknown:
                return True
            if type(t) in _COMPOSITE and id(t) not in seen and id(t) not in self._closed:
                seen.add(id(t))
                stack.extend(relay_types.type_parts(t))
        return False


def _tensors(_: Unifier, src: relay_types.TensorType, dst: relay_types.TensorType) -> Type:
    a, b = src.shape or (), dst.shape or ()
    if src.dtype != dst.dtype or len(a) != len(b):
        raise Mismatch(src, dst)
    dims: list[PrimExpr] | None = None
    x: Any
    y: Any
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x is y or type(y) is AnyDim:
            continue
        if type(x) is AnyDim:
            dims = dims or list(b)
            dims[i] = x
        elif not (x.value == y.value if type(x) is type(y) is IntImm else structural_equal(x, y)):
            raise Mismatch(src, dst)
    return dst if dims is None else relay_types.TensorType(tuple(dims), dst.dtype)


def _all(u: Unifier, src: tuple[Type, ...], dst: tuple[Type, ...]) -> tuple[Type, ...]:
    wide = tuple([u.flow(a, b) for a, b in zip(src, dst, strict=True)])
    return dst if all(a is b for a, b in zip(wide, dst, strict=True)) else wide


def _tuples(u: Unifier, src: relay_types.TupleType, dst: relay_types.TupleType) -> Type:
    if len(src.fields) != len(dst.fields):
        raise Mismatch(src, dst)
    fields = _all(u, src.fields, dst.fields)
    return dst if fields is dst.fields else relay_types.TupleType(fields)


def _calls(u: Unifier, src: relay_types.TypeCall, dst: relay_types.TypeCall) -> Type:
    if len(src.args) != len(dst.args):
        raise Mismatch(src, dst)
    u.flow(src.func, dst.func)
    args = _all(u, src.args, dst.args)
    return dst if args is dst.args else relay_types.TypeCall(dst.func, args)


def _cells(u: Unifier, src: relay_types.RefType, dst: relay_types.RefType) -> Type:
    value = u.flow(src.value, dst.value)
    u.flow(dst.value, src.value)
    return dst if value is dst.value else relay_types.RefType(value)


def _functions(u: Unifier, src: relay_types.FuncType, dst: relay_types.FuncType) -> Type:
    if len(src.arg_types) != len(dst.arg_types):
        raise Mismatch(src, dst)
    shared = dict(zip(src.type_params, dst.type_params, strict=False))
    rest = {v: relay_types.IncompleteType() for v in src.type_params[len(dst.type_params) :]}
    types: dict[relay_types.TypeVar, Type] = {**shared, **rest}
    _all(u, dst.arg_types, tuple(u.substitute(a, types) for a in src.arg_types))
    ret = u.flow(u.substitute(src.ret_type, types), dst.ret_type)
    return dst if ret is dst.ret_type else relay_types.FuncType(dst.arg_types, ret, dst.type_params)


def _names(_: Unifier, src: relay_types.GlobalTypeVar, dst: relay_types.GlobalTypeVar) -> Type:
    if src.name_hint != dst.name_hint:
        raise Mismatch(src, dst)
    return dst


def _variables(_: Unifier, src: relay_types.TypeVar, dst: relay_types.TypeVar) -> Type:
    raise Mismatch(src, dst)  # the same one never comes here


_FLOW: dict[type, Any] = {
    relay_types.TensorType: _tensors,
    relay_types.TupleType: _tuples,
    relay_types.TypeCall: _calls,
    relay_types.RefType: _cells,
    relay_types.FuncType: _functions,
    relay_types.GlobalTypeVar: _names,
    relay_types.TypeVar: _variables,
}
