"""IRModule: functions by name, of any dialect, with attributes and global information."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from weft.error import InvalidArgument
from weft.ir.expr import BaseFunc, GlobalVar
from weft.ir.node import _PRINTER, NO_ATTRS, Attrs, ImpliedName, Node
from weft.runtime import Object
from weft.spelling import also_called, unused_name


@Object.register
class IRModule:
    """A set of named functions.

    Passes treat modules as values: they return a new module (:meth:`with_functions`, :meth:`copy`) and leave their
    input as it was. The in-place methods (``mod["f"] = func``, :meth:`update_func`) exist for people who build
    programs by hand; a Relay expression that is no function becomes the body of one there.

    Parameters
    ----------
    functions : mapping of GlobalVar or str to function, optional
        The functions in order.
    attrs : Attrs or mapping, optional
        Module attributes.
    global_infos : mapping of str to tuple of Node, optional
        Lists of global information such as ``{"vdevice": (...)}``.
    type_definitions : mapping of GlobalTypeVar to TypeData, optional
        Algebraic data types of Relay programs.
    """

    __slots__ = ("__weakref__", "_by_name", "attrs", "functions", "global_infos", "type_definitions")

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Any = None,
        global_infos: Mapping[str, tuple[Node, ...]] | None = None,
        *,
        type_definitions: Mapping[Any, Any] | None = None,
    ) -> None:
        self.functions: dict[GlobalVar, BaseFunc] = {}
        self._by_name: dict[str, GlobalVar] = {}
        self.attrs: Attrs = Attrs.of(attrs) if attrs else NO_ATTRS
        self.global_infos: dict[str, tuple[Node, ...]] = dict(global_infos or {})
        self.type_definitions: dict[Any, Any] = dict(type_definitions or {})
        for var, func in (functions or {}).items():
            self[var] = func

    def same_as(self, other: Any) -> bool:
        """Whether another name refers to this very module."""
        return self is other

    @staticmethod
    def from_expr(
        expr: Any,
        functions: Mapping[Any, BaseFunc] | None = None,
        type_defs: Mapping[Any, Any] | None = None,
        *,
        name: str | None = None,
    ) -> IRModule:
        """Make a module of a function, called by its ``global_symbol`` or ``main``, and of others by their names.

        A Relay expression that is no function becomes the body of one, whose parameters are its free variables.
        """
        if isinstance(expr, IRModule):
            return expr
        if not (isinstance(expr, BaseFunc) or hasattr(expr, "in_function")):
            expected = "an IRModule, a function or a Relay expression"
            raise InvalidArgument(
                "no module is made of this", expected=expected, found=f"{type(expr).__name__} {expr!r}"
            )
        made: Any = expr if isinstance(expr, BaseFunc) else expr.in_function()
        named = {name or made.attrs.get("global_symbol") or "main": made}
        return IRModule({**(functions or {}), **named}, type_definitions=type_defs)

    def replace_global_vars(self, replacements: Mapping[GlobalVar | str, GlobalVar | str]) -> IRModule:
        """Return a module whose functions, and references to them, have other variables or names."""
        from weft.ir.walk import substitute  # a floor above

        new = {
            self.get_global_var(str(getattr(old, "name_hint", old))): GlobalVar(n) if isinstance(n, str) else n
            for old, n in replacements.items()
        }
        functions = {new.get(v, v): substitute(f, new) for v, f in self.functions.items()}
        return IRModule(functions, self.attrs, self.global_infos, type_definitions=self.type_definitions)

    def __getitem__(self, key: GlobalVar | str) -> BaseFunc:
        if key in self.type_definitions:
            return self.type_definitions[key]
        return self.functions[self.get_global_var(key if isinstance(key, str) else key.name_hint)]

    def __setitem__(self, key: Any, func: Any) -> None:
        if not isinstance(func, BaseFunc) and hasattr(func, "constructors"):
            self.type_definitions[key] = func
            return
        if not isinstance(func, BaseFunc) and hasattr(func, "in_function"):
            func = func.in_function()
        name = key if isinstance(key, str) else key.name_hint
        old = self._by_name.get(name)
        var = key if not isinstance(key, str) else old if old is not None else func.global_var_class()(name)
        if old is not None and old is not var:
            del self.functions[old]
        self._by_name[name] = var
        self.functions[var] = func

    def __contains__(self, key: object) -> bool:
        return (key if isinstance(key, str) else getattr(key, "name_hint", None)) in self._by_name

    def __delitem__(self, key: GlobalVar | str) -> None:
        del self.functions[self._by_name.pop(key if isinstance(key, str) else key.name_hint)]

    def __len__(self) -> int:
        return len(self.functions)

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __str__(self) -> str:
        return _PRINTER[0](self)

    __repr__ = __str__

    def items(self) -> Iterator[tuple[GlobalVar, BaseFunc]]:
        """Iterate over (global variable, function) in order."""
        return iter(list(self.functions.items()))

    def functions_items(self) -> Iterator[tuple[GlobalVar, BaseFunc]]:
        """Iterate as :meth:`items` does (TVM's name)."""
        return self.items()

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the global variable of a function; an InvalidArgument where there is none of that name.

        One alone in a module, which is called as its ``def``, answers to ``main`` too, as TVM 0.9 calls it.
        """
        var = self._by_name.get(name)
        if var is None and name == "main" and len(self.functions) == 1:
            only, func = cast("tuple[GlobalVar, Any]", next(iter(self.functions.items())))
            var = only if type(func.attrs.get("global_symbol")) is ImpliedName else None
        if var is None:
            raise InvalidArgument(
                f"the module has no function '{name}'", found=", ".join(self._by_name) or "no functions at all"
            )
        return var

    def get_global_vars(self) -> list[GlobalVar]:
        """List the global variables in order."""
        return list(self.functions)

    def get_global_type_vars(self) -> list[Any]:
        """Return the type variables of the data types."""
        return list(self.type_definitions)

    def get_global_type_var(self, name: str) -> Any:
        """Return the type variable of a data type; an InvalidArgument where there is none of that name."""
        for header in self.type_definitions:
            if header.name_hint == name:
                return header
        known = ", ".join(h.name_hint for h in self.type_definitions)
        raise InvalidArgument(f"the module has no data type '{name}'", found=known or "no data types at all")

    def get_type(self, name: str) -> tuple[Any, ...]:
        """Return the type variable of a data type and its constructors: ``rlist, cons, nil = mod.get_type("List")``."""
        header = self.get_global_type_var(name)
        return (header, *self.type_definitions[header].constructors)

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Set a function in place."""
        self[var] = func

    def update(self, other: IRModule) -> None:
        """Take over all functions and data types of another module, in place."""
        self.type_definitions.update(other.type_definitions)
        for var, func in other.items():
            self[var] = func

    def update_global_info(self, name: str, global_info: Any) -> None:
        """Set a list of global information, in place."""
        self.global_infos[name] = tuple(global_info) if isinstance(global_info, (list, tuple)) else (global_info,)

    @also_called(file_to_import="file_name")
    def import_from_std(self, file_name: str) -> None:
        """Put a text of Relay's standard library, such as ``"prelude.rly"``, into this module, in place."""
        importlib.import_module("weft.relay.prelude").import_std(self, file_name)  # a higher floor: only when asked for

    def copy(self) -> IRModule:
        """Return a module with the same functions."""
        return IRModule(self.functions, self.attrs, self.global_infos, type_definitions=self.type_definitions)

    clone = copy

    def with_functions(self, functions: Mapping[Any, BaseFunc]) -> IRModule:
        """Return a module with these functions and this module's attributes.

        This module itself where nothing changed.
        """
        named = {v if isinstance(v, str) else v.name_hint: f for v, f in functions.items()}
        if named.keys() == self._by_name.keys() and all(
            self.functions[self._by_name[n]] is f for n, f in named.items()
        ):
            return self
        return IRModule(functions, self.attrs, self.global_infos, type_definitions=self.type_definitions)

    @also_called(attr_key="key", attr_value="value")
    def with_attr(self, key: str, value: Any) -> IRModule:
        """Return a copy with one attribute set."""
        return self.with_attrs({key: value})

    @also_called(attr_key="key")
    def get_attr(self, key: str) -> Any:
        """Return an attribute, or None."""
        return self.attrs.get(key)

    @also_called(attr_key="key")
    def without_attr(self, key: str) -> IRModule:
        """Return a copy without an attribute."""
        made = self.copy()
        made.attrs = self.attrs.without(key)
        return made

    @also_called(attr_map="attrs")
    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """Return a copy with several attributes set."""
        out = self.copy()
        out.attrs = self.attrs.with_(**dict(attrs))
        return out

    def fresh_name(self, hint: str) -> str:
        """Return `hint`, with a number behind it if a function has that name."""
        return unused_name(hint, self._by_name)

    def script(self, **options: Any) -> str:
        """Return the module as TVMScript."""
        return _PRINTER[0](self, **options)

    astext = Node.astext

    def show(self, **options: Any) -> None:
        """Print the module as TVMScript."""
        print(self.script(**options))
