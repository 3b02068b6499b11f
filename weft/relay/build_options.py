"""What ``relay.build`` makes: which executor runs it, on which runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import InvalidArgument

__all__ = ["Executor", "Runtime"]


class _Choice:
    """One of a few names, with options."""

    names: tuple[str, ...] = ()

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        if name not in self.names:
            raise InvalidArgument(f"there is no {type(self).__name__.lower()} '{name}'",
                                  expected=" or ".join(map(repr, self.names)))  # fmt: skip
        self.name, self.options = name, dict(options or {})

    @classmethod
    def of(cls, value: Any) -> Any:
        """Make a choice of its name; a choice itself is returned."""
        return value if isinstance(value, cls) else cls(cls.names[0] if value is None else str(value))

    def __getitem__(self, option: str) -> Any:
        """The value of an option."""
        return self.options[option]

    def __contains__(self, option: str) -> bool:
        """Whether an option is set."""
        return option in self.options

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options})"


class Executor(_Choice):
    """Which executor runs a compiled module.

    Parameters
    ----------
    name : str
        ``"graph"``: a loop over the kernels. ``"aot"``: one native function that calls them.
    options : mapping, optional
        TVM's options of the executor; they are kept and change nothing.
    """

    names = ("graph", "aot")


class Runtime(_Choice):
    """Which runtime a compiled module needs.

    Parameters
    ----------
    name : str
        ``"cpp"``, the native library; the only one.
    options : mapping, optional
        TVM's options of the runtime; they are kept and change nothing.
    """

    names = ("cpp",)
