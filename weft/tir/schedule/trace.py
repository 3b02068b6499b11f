"""The record of a schedule.

A list of primitives that prints as Python, saves as JSON and runs again on another function.
"""

from __future__ import annotations

import re
from typing import Any

from weft.error import ScheduleError
from weft.ir import FloatImm, IntImm, Node, PrimExpr, Var, load_json, save_json, substitute, walk
from weft.tir.buffer import Buffer
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.tensorize import TensorIntrin

_LOOK_UPS = frozenset({"get_block", "get_loops", "get_child_blocks", "get_producers", "get_consumers"})


class BlockRV:
    """A handle of a block, good as long as the block exists."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"BlockRV({self.name})"


class LoopRV:
    """A handle of a loop, good as long as the loop exists."""

    __slots__ = ("var",)

    def __init__(self, var: Any) -> None:
        self.var = var

    def __repr__(self) -> str:
        return f"LoopRV({getattr(self.var, 'name', self.var)})"


class Instruction:
    """One primitive: its name, arguments, results, and for a sampling primitive what was drawn."""

    __slots__ = ("args", "decision", "kind", "kwargs", "outputs")

    def __init__(
        self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any, decision: Any = None
    ) -> None:
        self.kind, self.args, self.kwargs, self.outputs, self.decision = kind, args, kwargs, outputs, decision

    @property
    def handles(self) -> list[Any]:
        """The handles that the primitive returned, flat."""
        return _flat(self.outputs)


class Trace:
    """Primitives in the order in which they were applied."""

    def __init__(self, insts: list[Instruction] | None = None) -> None:
        self.insts: list[Instruction] = list(insts or [])

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """What the sampling primitives drew."""
        return {inst: inst.decision for inst in self.insts if inst.decision is not None}

    def pop(self) -> Instruction | None:
        """Take the last primitive away; the schedule keeps what it did."""
        return self.insts.pop() if self.insts else None

    def show(self) -> None:
        """Print the trace."""
        print(self)

    def __len__(self) -> int:
        return len(self.insts)

    def __str__(self) -> str:
        return "\n".join(self.as_python())

    __repr__ = __str__

    def as_python(self) -> list[str]:
        """Return one line of Python a primitive."""
        names: dict[Any, str] = {}
        lines, count = [], 0
        for inst in self.insts:
            parts = [_text(a, names) for a in inst.args] + [f"{k}={_text(v, names)}" for k, v in inst.kwargs.items()]
            if inst.decision is not None:
                parts.append(f"decision={_text(inst.decision, names)}")
            results = []
            for h in inst.handles:
                prefix = "b" if isinstance(h, BlockRV) else "l"
                names[h] = f"{prefix}{count}"
                if isinstance(h, LoopRV):
                    names[h.var] = f"{names[h]}.var"
                results.append(names[h])
                count += 1
            alone = "," if len(results) == 1 and isinstance(inst.outputs, (list, tuple)) else ""
            left = f"{', '.join(results)}{alone} = " if results else ""
            lines.append(f"{left}sch.{inst.kind}({', '.join(parts)})")
        return lines

    def as_json(self) -> list[Any]:
        """Return the trace as lists, strings and numbers.

        Raises
        ------
        ScheduleError
            When an argument is a function, which JSON cannot hold.
        """
        numbers: dict[Any, int] = {}
        result: list[Any] = []
        count = 0
        for inst in self.insts:
            args = [_pack(a, numbers) for a in inst.args]
            kwargs = {k: _pack(v, numbers) for k, v in inst.kwargs.items()}
            for h in inst.handles:
                numbers[h] = count
                if isinstance(h, LoopRV):
                    numbers[h.var] = count
                count += 1
            result.append([inst.kind, args, kwargs, len(inst.handles), inst.decision])
        return result

    @staticmethod
    def apply_json_to_schedule(data: list[Any], sch: Any) -> None:
        """Run a saved trace on a schedule."""
        handles: list[Any] = []
        for kind, args, kwargs, count, decision in data:
            extra = {"decision": decision} if decision is not None else {}
            out = _flat(
                getattr(sch, kind)(
                    *[_unpack(a, handles) for a in args], **{k: _unpack(v, handles) for k, v in kwargs.items()}, **extra
                )
            )
            _check_count(kind, count, out)
            handles += out

    def without_postproc(self) -> Trace:
        """Return the part before ``enter_postproc``."""
        at = next((i for i, inst in enumerate(self.insts) if inst.kind == "enter_postproc"), len(self.insts))
        return Trace(self.insts[:at])

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Return the trace without look-ups whose results nothing uses."""
        kept: list[Instruction] = []
        used: set[BlockRV | LoopRV] = set()
        for inst in reversed(self.without_postproc().insts if remove_postproc else self.insts):
            if inst.kind not in _LOOK_UPS or any(h in used for h in inst.handles):
                kept.append(inst)
                used |= set(_flat([*inst.args, *inst.kwargs.values()]))
        return Trace(kept[::-1])

    def apply_to_schedule(self, sch: Any, remove_postproc: bool = False) -> None:
        """Run the same primitives on another schedule, without those behind ``enter_postproc`` if asked."""
        table: dict[Any, Any] = {}
        for inst in self.insts:
            if remove_postproc and inst.kind == "enter_postproc":
                return
            extra = {"decision": inst.decision} if inst.decision is not None else {}
            out = getattr(sch, inst.kind)(
                *[_translate(a, table) for a in inst.args],
                **{k: _translate(v, table) for k, v in inst.kwargs.items()},
                **extra,
            )
            new = _flat(out)
            _check_count(inst.kind, len(inst.handles), new)
            for old, n in zip(inst.handles, new, strict=True):
                table[old] = n
                if isinstance(old, LoopRV):
                    table[old.var] = n.var


def _check_count(kind: str, expected: int, found: list[Any]) -> None:
    if len(found) != expected:
        raise ScheduleError(
            f"replay: {kind} returned another number of blocks or loops",
            expected=str(expected),
            found=str(len(found)),
            help="the trace belongs to a function of another form",
        )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (BlockRV, LoopRV)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [h for v in value for h in _flat(v)]
    return []


def _text(value: Any, names: dict[Any, str]) -> str:
    if isinstance(value, (BlockRV, LoopRV)):
        return names.get(value, repr(value))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(v, names) for v in value) + "]"
    if isinstance(value, IndexMap):
        return value.as_python()
    if isinstance(value, (IntImm, FloatImm)):
        return repr(value.value)
    if isinstance(value, PrimExpr):
        return _expression_text(value, names)
    return f"{value.name!r}" if isinstance(value, (Buffer, TensorIntrin)) else repr(value)


def _expression_text(value: PrimExpr, names: dict[Any, str]) -> str:
    """Print an expression of loop variables with the handles' names: ``l3.var < 2``."""
    found = {v: names[v] for v in _variables(value) if v in names}
    text = str(substitute(value, {v: Var(n.removesuffix(".var"), v.dtype) for v, n in found.items()}))
    for n in found.values():
        text = re.sub(rf"\b{n.removesuffix('.var')}\b", n, text)
    return text


def _variables(value: PrimExpr) -> list[Var]:
    return list(dict.fromkeys(n for n in walk(value) if isinstance(n, Var)))


def _translate(value: Any, table: dict[Any, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_translate(v, table) for v in value)
    if isinstance(value, PrimExpr):
        return substitute(value, {v: table[v] for v in _variables(value) if v in table})
    return table.get(value, value) if isinstance(value, (BlockRV, LoopRV)) else value


def _pack(value: Any, numbers: dict[Any, int]) -> Any:
    if isinstance(value, (BlockRV, LoopRV)):
        return {"rv": numbers[value]}
    if isinstance(value, (list, tuple)):
        return [_pack(v, numbers) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    if isinstance(value, (Buffer, TensorIntrin)):
        return value.name
    if isinstance(value, PrimExpr):
        loops = [v for v in _variables(value) if v in numbers]
        return {"node": save_json((value, *loops)), "loops": [numbers[v] for v in loops]}
    if isinstance(value, Node):
        return {"node": save_json(value)}
    raise ScheduleError("the trace holds an argument that JSON cannot", found=repr(value))


def _unpack(value: Any, handles: list[Any]) -> Any:
    if isinstance(value, dict):
        if "rv" in value:
            return handles[value["rv"]]
        node = load_json(value["node"])
        if "loops" not in value:
            return node
        return substitute(node[0], {v: handles[n].var for v, n in zip(node[1:], value["loops"], strict=True)})
    return [_unpack(v, handles) for v in value] if isinstance(value, list) else value
