"""How a loop of a stage runs."""

from __future__ import annotations

from typing import Any

from weft.ir import IterVar, StringImm
from weft.te.tensor_intrin import TensorIntrin


class IterAttr:
    """How a loop runs: its kind, the hardware thread it is bound to, its intrinsic, and pragmas."""

    __slots__ = ("bind_thread", "kind", "pragmas", "tensor_intrin")
    __saved_fields__ = ("bind_thread", "kind", "saved_pragmas", "tensor_intrin")

    def __init__(self) -> None:
        self.kind = "serial"
        self.bind_thread: IterVar | None = None
        self.tensor_intrin: TensorIntrin | None = None
        self.pragmas: list[tuple[str, Any]] = []

    @staticmethod
    def from_saved(
        kind: str,
        saved_pragmas: tuple[tuple[str, Any], ...],
        bind_thread: IterVar | None = None,
        tensor_intrin: TensorIntrin | None = None,
    ) -> IterAttr:
        """Return the attribute that was saved."""
        attr = IterAttr()
        attr.kind, attr.bind_thread, attr.tensor_intrin = kind, bind_thread, tensor_intrin
        attr.pragmas = list(saved_pragmas)
        return attr

    @property
    def saved_pragmas(self) -> tuple[tuple[str, Any], ...]:
        """The pragmas, as they are saved."""
        return tuple(self.pragmas)

    @property
    def pragma_keys(self) -> tuple[StringImm, ...]:
        """The names of the pragmas."""
        return tuple(StringImm(key) for key, _ in self.pragmas)

    @property
    def pragma_values(self) -> tuple[Any, ...]:
        """The values of the pragmas."""
        return tuple(value for _, value in self.pragmas)

    @property
    def iter_type(self) -> int:
        """The kind as one of ``IterVar.Vectorized``, ``Unrolled``, ``Parallelized``, ``Tensorized``, ``DataPar``."""
        return getattr(IterVar, self.kind.capitalize().replace("Parallel", "Parallelized"), IterVar.DataPar)
