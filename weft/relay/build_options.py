"""What ``relay.build`` makes: which executor runs it, on which runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.error import InvalidArgument
from weft.spelling import also_called

_TYPES: dict[str, tuple[type, ...]] = {"IntImm": (int, bool), "runtime.String": (str,)}
_FOUND: dict[type, str] = {bool: "IntImm", int: "IntImm", float: "FloatImm", str: "runtime.String"}


class _Choice:
    """One of a few names, with options: per name, what options there are and their types in TVM's words."""

    kinds: ClassVar[dict[str, dict[str, str]]] = {}
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        known = self._options(name)
        for option, value in (options or {}).items():
            if option not in known:
                raise InvalidArgument(
                    f'Attribute "{option}" is not available on this {type(self).__name__}',
                    expected=", ".join(known) or "none",
                )
            if not isinstance(value, _TYPES[known[option]]):
                found = _FOUND.get(type(value), type(value).__name__)
                raise InvalidArgument(
                    f'Attribute "{option}" should have type "{known[option]}" but instead found "{found}"'
                )
        self.name = name
        self.options = {**{k: v for k, v in self.defaults.items() if k in known}, **(options or {})}

    @classmethod
    def _options(cls, name: str) -> dict[str, str]:
        if name not in cls.kinds:
            raise InvalidArgument(f'{cls.__name__} "{name}" is not defined', expected=" or ".join(map(repr, cls.kinds)))
        return cls.kinds[name]

    @classmethod
    def _names(cls) -> list[str]:
        return list(cls.kinds)

    @classmethod
    def _listed(cls, choice: Any) -> dict[str, str]:
        return dict(cls._options(str(choice)))

    @classmethod
    def list_registered(cls) -> list[str]:
        """List the names."""
        return cls._names()

    @classmethod
    @also_called(executor="choice", runtime="choice")
    def list_registered_options(cls, choice: Any) -> dict[str, str]:
        """Return the options of a choice and their types."""
        return cls._listed(choice)

    @classmethod
    def of(cls, value: Any) -> Any:
        """Make a choice of its name; a choice itself is returned."""
        return value if isinstance(value, cls) else cls(next(iter(cls.kinds)) if value is None else str(value))

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

    def __str__(self) -> str:
        return self.name

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

    kinds: ClassVar[dict[str, dict[str, str]]] = {
        "graph": {"link-params": "IntImm"},
        "aot": {
            "link-params": "IntImm",
            "unpacked-api": "IntImm",
            "interface-api": "runtime.String",
            "workspace-byte-alignment": "IntImm",
            "constant-byte-alignment": "IntImm",
        },
    }
    defaults: ClassVar[dict[str, Any]] = {"link-params": False}

    @staticmethod
    def list_executors() -> list[str]:
        """List the names of executors."""
        return Executor._names()

    @staticmethod
    def list_executor_options(executor: Any) -> dict[str, str]:
        """Return the options of an executor and their types."""
        return Executor._listed(executor)


class Runtime(_Choice):
    """Which runtime a compiled module needs.

    Parameters
    ----------
    name : str
        ``"cpp"``, the native library; the only one.
    options : mapping, optional
        TVM's options of the runtime; they are kept and change nothing.
    """

    kinds: ClassVar[dict[str, dict[str, str]]] = {"cpp": {"system-lib": "IntImm"}}
    defaults: ClassVar[dict[str, Any]] = {"system-lib": False}

    @staticmethod
    def list_runtimes() -> list[str]:
        """List the names of runtimes."""
        return Runtime._names()

    @staticmethod
    def list_runtime_options(runtime: Any) -> dict[str, str]:
        """Return the options of a runtime and their types."""
        return Runtime._listed(runtime)
