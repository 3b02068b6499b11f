"""Supplies of names that nobody has taken yet."""

from typing import Any

from weft.error import InvalidArgument
from weft.ir.expr import GlobalVar
from weft.ir.module import IRModule
from weft.spelling import counted_name


class UniqueNameSupply:
    """Gives each name once, with a number behind it where it was given before.

    Parameters
    ----------
    prefix : str
        What names begin with, unless a call says otherwise.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._taken: dict[str, int] = {}

    def _full(self, name: str, add_prefix: bool) -> str:
        plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "v"
        return f"{self.prefix}_{plain}" if add_prefix and self.prefix else plain

    def fresh_name(self, name: str, add_prefix: bool = True, add_underscore: bool = True) -> str:
        """Return a name that was not given before, such as ``x``, then ``x_1``, and take it."""
        return counted_name(self._full(name, add_prefix), self._taken, "_" if add_underscore else "")

    def reserve_name(self, name: str, add_prefix: bool = True) -> str:
        """Take a name as it is."""
        full = self._full(name, add_prefix)
        self._taken.setdefault(full, 0)
        return full

    def contains_name(self, name: str, add_prefix: bool = True) -> bool:
        """Whether a name is taken."""
        return self._full(name, add_prefix) in self._taken


NameSupply = UniqueNameSupply


class GlobalVarSupply:
    """Makes variables of functions whose names nobody has taken.

    Parameters
    ----------
    value : UniqueNameSupply, IRModule or list of IRModule, optional
        Where names come from, or modules whose names are taken.
    """

    def __init__(self, value: Any = None) -> None:
        self.name_supply = value if isinstance(value, UniqueNameSupply) else UniqueNameSupply()
        self._known: dict[str, GlobalVar] = {}
        given = [value] if isinstance(value, IRModule) else value
        modules: list[IRModule] = given if isinstance(given, list) else []
        for mod in modules:
            for var in mod.functions:
                self.reserve_global(var)

    def fresh_global(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """Make a variable of a name that was not given before."""
        found = GlobalVar(self.name_supply.fresh_name(name, add_prefix))
        self._known[found.name_hint] = found
        return found

    def unique_global_for(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """Return the variable of a name, made at the first use."""
        full = self.name_supply.reserve_name(name, add_prefix)
        return self._known.setdefault(full, GlobalVar(full))

    def reserve_global(self, global_var: GlobalVar, allow_conflict: bool = False) -> None:
        """Take the name of a variable.

        Raises
        ------
        InvalidArgument
            When another variable has it, unless `allow_conflict` is true.
        """
        name = global_var.name_hint
        if not allow_conflict and self._known.get(name, global_var) is not global_var:
            raise InvalidArgument(f"another function is called '{name}'")
        self.name_supply.reserve_name(name, add_prefix=False)
        self._known[name] = global_var
