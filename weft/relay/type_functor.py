"""Visitor classes over Relay's types, as users of TVM write them."""

from collections.abc import Mapping
from typing import Any

from weft.ir import Node, Type, children, rebuild
from weft.relay import types
from weft.relay.adt import TypeData

_METHODS: dict[type, str] = {
    types.FuncType: "visit_func_type",
    types.GlobalTypeVar: "visit_global_type_var",
    types.IncompleteType: "visit_incomplete_type",
    types.RefType: "visit_ref_type",
    types.TensorType: "visit_tensor_type",
    types.TupleType: "visit_tuple_type",
    types.TypeCall: "visit_type_call",
    TypeData: "visit_type_data",
    types.TypeRelation: "visit_type_relation",
    types.TypeVar: "visit_type_var",
}


class TypeFunctor:
    """Calls the method of a type's kind."""

    def visit(self, typ: Any) -> Any:
        """Visit a type by the method of its kind."""
        return getattr(self, _METHODS.get(type(typ), "visit_parts"))(typ)

    def visit_parts(self, typ: Type) -> Any:
        """What methods do that are not overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no method for {type(typ).__name__}")


def add_methods(functor: type, methods: Mapping[type, str]) -> None:
    """Give a functor a method of each kind, which says what ``visit_parts`` says."""
    for kind, name in methods.items():

        def method(self: Any, node: Node) -> Any:
            return self.visit_parts(node)

        method.__name__ = name
        method.__doc__ = f"Visit a {kind.__name__}."
        setattr(functor, name, method)


add_methods(TypeFunctor, _METHODS)


class TypeVisitor(TypeFunctor):
    """Visits the types that a type is made of."""

    def visit_parts(self, typ: Type) -> None:
        """Visit what a type is made of."""
        for part in children(typ):
            if type(part) in _METHODS:
                self.visit(part)


class TypeMutator(TypeFunctor):
    """Returns the type with what its methods return in the place of its parts."""

    def visit_parts(self, typ: Type) -> Any:
        """Return the type with new parts."""
        return rebuild(typ, lambda part: self.visit(part) if type(part) in _METHODS else part)
