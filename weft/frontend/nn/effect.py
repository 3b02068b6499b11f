"""Effects: state that functions take and return, so that programs with side effects stay pure."""

from __future__ import annotations

from typing import Any

from weft import error, ir, relax
from weft.frontend.nn.tensor import builder
from weft.relax.op import null_value


class Effect:
    """State of the runtime that methods change.

    An exported function gets the variables of :meth:`create` as arguments and returns those of :meth:`finalize`;
    ``_initialize_effect`` makes the first values (:meth:`emit_init`).
    """

    def emit_init(self, name_hint: str, builder: relax.BlockBuilder) -> list[Any]:
        """Emit the first values and return their variables."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[relax.Var]:
        """Make the variables by which a function receives the state, and use them from now on."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Any]) -> None:
        """Use these variables from now on."""
        raise NotImplementedError

    def finalize(self) -> list[Any]:
        """Return the variables that hold the state at the end of a function, and forget them."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Change the data type of what is kept."""


class IOEffect(Effect):
    """The order of what programs print: each print takes the state and returns it."""

    effect: Any

    def __init__(self) -> None:
        self.effect = None

    def emit_init(self, name_hint: str, builder: relax.BlockBuilder) -> list[Any]:
        """Emit the null value."""
        return [builder.emit(null_value(), f"{name_hint}.io" if name_hint else "_io")]

    def create(self, name_hint: str) -> list[relax.Var]:
        """Make one variable."""
        self.effect = relax.Var(f"{name_hint}.io" if name_hint else "_io", ir.AnyType())
        return [self.effect]

    def set_state(self, state_vars: list[Any]) -> None:
        """Use this variable."""
        (self.effect,) = state_vars

    def finalize(self) -> list[Any]:
        """Return the variable."""
        state, self.effect = self.effect, None
        return [state]

    def emit_call(self, call: Any) -> None:
        """Emit a call that takes the state and returns it.

        Raises
        ------
        InvalidArgument
            When the module is exported without debugging.
        """
        if self.effect is None:
            raise error.InvalidArgument("printing is not on in this function", help="export with debug=True")
        self.effect = builder().emit(call, "_io")
