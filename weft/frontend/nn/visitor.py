"""Mutator: replaces parts of a module."""

from typing import Any

from weft.frontend.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from weft.frontend.nn.effect import Effect
from weft.frontend.nn.module import Module
from weft.frontend.nn.parameter import Parameter


class Mutator:
    """Walks a module and puts what its methods return in the place of what they were given.

    A subclass overrides the methods of what it changes; those here return the same object after visiting its parts.
    ``visit(name, module)`` starts, with the name that the module has in what holds it.

    Examples
    --------
    >>> class Half(Mutator):
    ...     def visit_module(self, name, node):
    ...         return HalfLinear(node) if isinstance(node, Linear) else self.visit(name, node)
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """Visit a module; a container of modules or parameters by the method of its own."""
        return self.visit(name, node)

    visit_moduledict = visit_modulelist = visit_parameterdict = visit_parameterlist = visit_module

    def visit_effect(self, name: str, node: Effect) -> Any:
        """Visit an effect."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """Visit a parameter."""
        return node

    def visit(self, name: str, node: Any) -> Any:
        """Visit the parts of a module, each by the method for its class, and return the module."""
        for key, member in list(node.members()):
            method = next((m for kind, m in _METHODS if isinstance(member, kind)), None)
            if method is None:
                continue
            new = getattr(self, method)(f"{name}.{key}" if name else key, member)
            if new is not member:
                node.replace_member(key, new)
        return node


_METHODS = (
    (ModuleList, "visit_modulelist"),
    (ModuleDict, "visit_moduledict"),
    (ParameterList, "visit_parameterlist"),
    (ParameterDict, "visit_parameterdict"),
    (Module, "visit_module"),
    (Effect, "visit_effect"),
    (Parameter, "visit_param"),
)
