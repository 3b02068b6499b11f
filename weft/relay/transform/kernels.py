"""The TIR functions that passes add to a module of Relay functions."""

from typing import Any

from weft.ir import IRModule, fingerprint
from weft.relay.expr import GlobalVar


class KernelTable:
    """Adds kernels to a module, in place; those of equal structure are one.

    Parameters
    ----------
    mod : IRModule
        The module that a pass is making.
    """

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self._by_structure: dict[str, GlobalVar] = {}
        self._added: dict[Any, GlobalVar] = {}

    def add(self, func: Any, name: str) -> GlobalVar:
        """Put a kernel into the module under that name or one near it, or find one of equal structure."""
        seen = self._added.get(func)
        if seen is not None:
            return seen
        key = fingerprint(func.without_attr("global_symbol"))
        known = self._by_structure.get(key)
        if known is None:
            known = self._by_structure[key] = GlobalVar(self.mod.fresh_name(name))
            self.mod[known] = func.with_attr("global_symbol", known.name_hint)
        self._added[func] = known
        return known
