"""Instructions of a trace: what kind of primitive was applied, to what, and which handles it returned."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.error import InvalidArgument, ScheduleError
from weft.ir import FloatImm, IntImm, PrimExpr, Var, find, substitute
from weft.tir.buffer import Buffer
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.tensorize import TensorIntrin

_NAMES = {"get_block": "GetSBlock", "reindex": "ReIndex", "rfactor": "RFactor", "unsafe_set_dtype": "UnsafeSetDType"}
_FOLLOWED = {
    "BlockRV",
    "LoopRV",
    "BlockRV | LoopRV",
    "Sequence[BlockRV]",
    "LoopRV | Sequence[BlockRV]",
    "Sequence[Factor]",
    "ir.PrimExpr",
}
_FOLLOWED_BY_NAME = {"ann_val", "new_order"}


class _Handle:
    """What stands for something that a schedule found or drew, and is compared by identity."""

    __slots__ = ()

    def same_as(self, other: Any) -> bool:
        """Whether `other` is this very handle."""
        return self is other


class BlockRV(_Handle):
    """A handle of a block, good as long as the block exists."""

    __slots__ = ("name",)

    def __init__(self, name: Any = None) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"BlockRV({self.name})"


class LoopRV(_Handle):
    """A handle of a loop, good as long as the loop exists."""

    __slots__ = ("var",)

    def __init__(self, var: Any = None) -> None:
        self.var = var

    def __repr__(self) -> str:
        return f"LoopRV({getattr(self.var, 'name', self.var)})"


class ExprRV(int):
    """A number that was drawn: what takes it is followed by the trace, arithmetic on it is a number like any other."""

    same_as = _Handle.same_as


class InstructionKind(_Handle):
    """A primitive of schedules: its name, and how its calls are written down."""

    _all: dict[str, InstructionKind] = {}

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.method, self._fn = fn.__name__, fn
        self.name = _NAMES.get(self.method, "".join(p.capitalize() for p in self.method.split("_")))
        self._all[self.name] = self

    @staticmethod
    def get(name: str) -> InstructionKind:
        """Return the kind of a name, such as ``"GetLoops"``.

        Raises
        ------
        InvalidArgument
            When no primitive is called so.
        """
        kinds = InstructionKind._all
        found = kinds.get("GetSBlock" if name == "GetBlock" else name)
        if found is None:
            raise InvalidArgument(f"no primitive is called '{name}'", expected=", ".join(sorted(kinds)))
        return found

    @property
    def is_pure(self) -> bool:
        """Whether it leaves the function as it is."""
        return self.method.startswith(("get_", "sample_"))

    @functools.cached_property
    def parameters(self) -> dict[str, Any]:
        """The defaults of the parameters, by name."""
        found = list(inspect.signature(self._fn).parameters.values())[1:]
        return {p.name: () if p.kind is p.VAR_POSITIONAL else p.default for p in found if p.name != "decision"}

    @functools.cached_property
    def spread(self) -> str | None:
        """The parameter whose elements are inputs of their own."""
        return next((n for n in self.parameters if n in ("loops_", "ordered_loops", "factors")), None)

    @functools.cached_property
    def input_names(self) -> list[str]:
        """The parameters that take handles or numbers that were drawn, the others being attributes."""
        kinds = self._fn.__annotations__
        return [n for n in self.parameters if kinds[n] in _FOLLOWED or n in _FOLLOWED_BY_NAME]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Name the arguments of a call, with those that are left out."""
        loops = self.spread if self.spread != "factors" else None
        given = {**({loops: tuple(args)} if loops else dict(zip(self.parameters, args, strict=False))), **kwargs}
        return {n: given.get(n, default) for n, default in self.parameters.items()}

    def call(self, sch: Any, arguments: Mapping[str, Any], decision: Any = None) -> list[Any]:
        """Apply the primitive to a schedule and return the new handles."""
        rest = dict(arguments)
        loops = rest.pop(self.spread) if self.spread and self.spread != "factors" else ()
        return returned(
            getattr(sch, self.method)(*loops, **rest, **({} if decision is None else {"decision": decision}))
        )

    def __repr__(self) -> str:
        return f"InstructionKind({self.name})"


class Instruction(_Handle):
    """One primitive that was applied.

    Parameters
    ----------
    kind : InstructionKind
        Which primitive.
    inputs : sequence
        Handles, numbers, strings and None, in the order of the primitive's parameters; several loops and the factors
        of a split one by one.
    attrs : sequence
        The other arguments, in order; those that are left out have the primitive's defaults.
    outputs : sequence
        The handles that it returned.

    Raises
    ------
    ScheduleError
        When the primitive has other parameters.
    """

    __slots__ = ("arguments", "kind", "outputs")

    def __init__(
        self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        names = kind.input_names
        values = _plain(list(inputs))
        if kind.spread:
            at = names.index(kind.spread)
            values = [*values[:at], tuple(values[at:])]
        others = [n for n in kind.parameters if n not in names]
        if len(values) > len(names) or len(attrs) > len(others):
            raise ScheduleError(
                f"{kind.name} takes other arguments",
                expected=f"inputs {names}, attributes {others}",
                found=f"{len(inputs)} inputs, {len(attrs)} attributes",
            )
        given = dict(zip(names, values, strict=False)) | dict(zip(others, _plain(list(attrs)), strict=False))
        missing = [n for n, v in kind.parameters.items() if v is inspect.Parameter.empty and n not in given]
        if missing:
            raise ScheduleError(f"{kind.name} lacks arguments", expected=", ".join(missing))
        self.kind, self.outputs = kind, list(outputs)
        self.arguments: dict[str, Any] = {n: given.get(n, v) for n, v in kind.parameters.items()}

    @classmethod
    def of_call(cls, kind: InstructionKind, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Instruction:
        """Write a call of a primitive down."""
        self = cls.__new__(cls)
        self.kind, self.arguments, self.outputs = kind, kind.bind(args, kwargs), returned(result)
        return self

    def with_arguments(self, arguments: dict[str, Any]) -> Instruction:
        """Return the instruction with other arguments and the same handles."""
        return Instruction.of_call(self.kind, arguments.pop(self.kind.spread or "", ()), arguments, self.outputs)

    @property
    def inputs(self) -> list[Any]:
        """What may be handles, in order."""
        given = ((n, self.arguments[n]) for n in self.kind.input_names)
        return [v for n, value in given for v in (value if n == self.kind.spread else (value,))]

    @property
    def attrs(self) -> list[Any]:
        """The other arguments, in order."""
        return [v for n, v in self.arguments.items() if n not in self.kind.input_names]

    def line(self, names: Mapping[int, str], decision: Any = None) -> str:
        """Write the call as Python, handles by the names given under their ``id``."""
        parts = []
        for name, value in self.arguments.items():
            if name == self.kind.spread and name != "factors":
                parts += [_text(v, names) for v in value]
            elif self.kind.parameters[name] != () or len(value):
                parts.append(f"{name}={_text(value, names)}")
        if decision is not None:
            parts.append(f"decision={_text(decision, names)}")
        several = str(self.kind._fn.__annotations__.get("return")).startswith("list")
        left = ", ".join(names.get(id(h), "_") for h in self.outputs) + (
            "," if several and len(self.outputs) == 1 else ""
        )
        method = self.kind.method.replace("get_block", "get_sblock")
        return f"{left}{' = ' if left else ''}sch.{method}({', '.join(parts)})"

    def __str__(self) -> str:
        return self.line({})

    __repr__ = __str__


def flat(value: object) -> list[Any]:
    """List the handles in what a primitive returned or took."""
    if isinstance(value, (BlockRV, LoopRV, ExprRV)):
        return [value]
    return [h for v in value for h in flat(v)] if isinstance(value, (list, tuple)) else []


def returned(value: object) -> list[Any]:
    """List what a primitive returned: handles, and None for a factor that a split finds."""
    return [h for v in value for h in ([v] if v is None else flat(v))] if isinstance(value, list) else flat(value)


def variables(value: PrimExpr) -> list[Var]:
    """List the variables of an expression, each once."""
    return list(dict.fromkeys(find(value, Var)))


def _plain(value: Any) -> Any:
    """Make Python's numbers of immediates."""
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(v) for v in value)
    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype == "bool" else value.value
    return value.value if isinstance(value, FloatImm) else value


def _text(value: Any, names: Mapping[int, str]) -> str:
    if isinstance(value, (BlockRV, LoopRV)) or id(value) in names:
        return names.get(id(value), "_")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(v, names) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(k, names)}: {_text(v, names)}' for k, v in value.items())}}}"
    if isinstance(value, IndexMap):
        return value.as_python()
    if isinstance(value, (Buffer, TensorIntrin)):
        value = value.name
    value = _plain(value)
    if isinstance(value, PrimExpr):
        return _expression_text(value, names)
    return json.dumps(value) if isinstance(value, str) else repr(value).removesuffix(".0")


def _expression_text(value: PrimExpr, names: Mapping[int, str]) -> str:
    """Print an expression of loop variables with the handles' names: ``l3.var < 2``."""
    found = {v: names[id(v)] for v in variables(value) if id(v) in names}
    text = str(substitute(value, {v: Var(n.removesuffix(".var"), v.dtype) for v, n in found.items()}))
    for n in found.values():
        text = re.sub(rf"\b{n.removesuffix('.var')}\b", n, text)
    return text
