"""What takes programs built by calls: ``with IRBuilder() as b: with T.prim_func(): ...``, whatever their dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir.ambient import Ambient
from weft.ir.expr import BaseFunc

_BUILDERS: Ambient[Any] = Ambient("IRBuilder")


class IRBuilder:
    """Takes what the frames inside of its ``with`` build: one function, or one module."""

    def __init__(self) -> None:
        self.result: Any = None
        self.module: Any = None  # a module under construction
        self.names: dict[Any, str] = {}  # what variables and buffers are called in the end
        self.loose: Callable[[], Any] | None = None  # makes one of the statements that are in no function

    def __enter__(self) -> IRBuilder:
        return _BUILDERS.enter(self)

    def __exit__(self, *exc: object) -> None:
        _BUILDERS.leave(self)

    @staticmethod
    def current() -> IRBuilder:
        """Return the innermost builder.

        Raises
        ------
        InvalidArgument
            When there is none.
        """
        if _BUILDERS.current is None:
            raise InvalidArgument("there is no builder", help="use `with IRBuilder() as builder:`")
        return _BUILDERS.current

    @staticmethod
    def is_in_scope() -> bool:
        """Whether there is a builder."""
        return _BUILDERS.current is not None

    @staticmethod
    def name(s: str, v: Any) -> Any:
        """Call a variable or buffer `s` in the end; return it as it is."""
        IRBuilder.current().names[v] = s
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[Any]) -> list[Any]:
        """Name several."""
        return [IRBuilder.name(name, v) for name, v in zip(s, vs, strict=True)]

    def get(self) -> Any:
        """Return what was built.

        Raises
        ------
        InvalidArgument
            When nothing was.
        """
        if self.result is None and self.loose is not None:
            self.result = self.loose()
        if self.result is None:
            raise InvalidArgument("nothing was built", help="close a function or a module inside of the builder first")
        return self.result

    def add(self, name: str, func: BaseFunc) -> None:
        """Take a function that is complete."""
        if self.module is not None:
            self.module.functions[name] = func
        elif self.result is not None:
            raise InvalidArgument("a builder makes one function", help="build several inside of `with I.ir_module():`")
        else:
            self.result = func
