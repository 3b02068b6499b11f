"""The record of a schedule.

A list of primitives that prints as Python, saves as JSON and runs again on another function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error
from weft.error import ScheduleError
from weft.ir import Attrs, FloatImm, IntImm, Node, PrimExpr, Var, as_expr, load_json, save_json, substitute
from weft.tir.buffer import Buffer
from weft.tir.schedule.instruction import BlockRV, ExprRV, Instruction, InstructionKind, LoopRV, flat, variables
from weft.tir.schedule.tensorize import TensorIntrin


class Trace:
    """Primitives in the order in which they were applied, and what the sampling ones drew.

    Parameters
    ----------
    insts : sequence of Instruction
        The primitives.
    decisions : dict of Instruction to Any
        What was drawn: the index of a candidate, factors, the index of a place; a replay draws the others.
    """

    def __init__(self, insts: Sequence[Instruction] = (), decisions: Mapping[Instruction, Any] | None = None) -> None:
        self.insts: list[Instruction] = list(insts)
        self.decisions: dict[Instruction, Any] = dict(decisions or {})

    def get_decision(self, inst: Instruction) -> Any:
        """Return what an instruction drew, or None."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add a primitive, and what it drew."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Take the last primitive away; the schedule keeps what it did."""
        inst = self.insts.pop() if self.insts else None
        self.decisions.pop(inst, None)  # type: ignore[arg-type]
        return inst

    def copy(self) -> Trace:
        """Return a trace of the same primitives that grows on its own."""
        return Trace(self.insts, self.decisions)

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print the trace."""
        print(self)

    def __len__(self) -> int:
        return len(self.insts)

    def __str__(self) -> str:
        lines = ["# from tvm import s_tir", "def apply_trace(sch: s_tir.Schedule) -> None:"]
        return "\n".join([*lines, *(f"  {line}" for line in self.as_python() or ["pass"])])

    __repr__ = __str__

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """Return one line of Python a primitive, of a schedule that is called ``sch``."""
        names: dict[int, str] = {}
        lines, count = [], 0
        for inst in self._part(remove_postproc):
            count = _name_outputs(inst, names, count)
            lines.append(inst.line(names, self.decisions.get(inst)))
        return lines

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """Return the trace as JSON: ``[[[kind, inputs, attrs, outputs], …], [[index, decision], …]]``.

        Raises
        ------
        ScheduleError
            When an argument is a function, which JSON cannot hold, or a handle that no primitive returned.
        """
        names: dict[int, str] = {}
        insts, decisions, count = [], [], 0
        for i, inst in enumerate(self._part(remove_postproc)):
            inputs, attrs = [_pack(a, names) for a in inst.inputs], [_pack(a) for a in inst.attrs]
            count = _name_outputs(inst, names, count)
            insts.append([inst.kind.name, inputs, attrs, [names.get(id(h), "None") for h in inst.outputs]])
            if inst in self.decisions:
                decisions.append([i, self.decisions[inst]])
        return [insts, decisions]

    @staticmethod
    def apply_json_to_schedule(json_obj: Sequence[Any], sch: Any) -> None:
        """Run a saved trace on a schedule.

        Raises
        ------
        ScheduleError
            When it was not made by :meth:`as_json`, or belongs to a function of another form.
        """
        hints: dict[str, Any] = {"expected": "what Trace.as_json returns", "help": "make the record again"}
        with error.reading("the trace was saved in another form", ScheduleError, **hints):
            insts, decisions = json_obj[0], dict(json_obj[1])
            handles: dict[str, Any] = {}
            for i, (name, inputs, attrs, outputs) in enumerate(insts):
                inputs, attrs = [_unpack(v, handles) for v in inputs], [_unpack(v) for v in attrs]
                inst = Instruction(InstructionKind.get(name), inputs, attrs, [])
                handles.update(_paired(inst.kind, outputs, inst.kind.call(sch, inst.arguments, decisions.get(i))))

    def _part(self, remove_postproc: bool) -> list[Instruction]:
        if not remove_postproc:
            return self.insts
        return self.insts[: next((i for i, s in enumerate(self.insts) if s.kind.name == "EnterPostproc"), len(self))]

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool = False) -> Trace:
        """Return the trace with one thing decided otherwise."""
        return Trace(self._part(remove_postproc), {**self.decisions, inst: decision})

    def without_postproc(self) -> Trace:
        """Return the part before ``enter_postproc``."""
        return Trace(self._part(True), self.decisions)

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Return the trace without primitives that only found or drew what nothing uses."""
        kept: list[Instruction] = []
        used: set[int] = set()
        for inst in reversed(self._part(remove_postproc)):
            if not inst.kind.is_pure or any(id(h) in used for h in inst.outputs):
                kept.append(inst)
                used |= {id(h) for h in flat(list(inst.arguments.values()))}
        return Trace(kept[::-1], {inst: self.decisions[inst] for inst in kept if inst in self.decisions})

    def apply_to_schedule(
        self, sch: Any, remove_postproc: bool = False, decision_provider: Callable[..., Any] | None = None
    ) -> None:
        """Run the same primitives on another schedule, without those behind ``enter_postproc`` if asked.

        ``decision_provider(inst, inputs, attrs, decision)`` may decide otherwise.
        """
        table: dict[int, Any] = {}
        for inst in self._part(remove_postproc):
            arguments = {n: _translate(a, table) for n, a in inst.arguments.items()}
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                inputs = [_translate(a, table) for a in inst.inputs]
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            for old, new in _paired(inst.kind, inst.outputs, inst.kind.call(sch, arguments, decision)):
                if old is not None:
                    table[id(old)] = new
                if isinstance(old, LoopRV) and isinstance(old.var, Var):
                    table[id(old.var)] = new.var


def _paired(kind: InstructionKind, old: Sequence[Any], new: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(old) != len(new):
        raise ScheduleError(
            f"replay: {kind.method} returned another number of blocks or loops",
            expected=str(len(old)),
            found=str(len(new)),
            help="the trace belongs to a function of another form",
        )
    return list(zip(old, new, strict=True))


def _name_outputs(inst: Instruction, names: dict[int, str], count: int) -> int:
    """Name the handles that a primitive returned, ``b0``, ``l1``, ``v2``, and return the next number."""
    for i, h in enumerate(inst.outputs, count):
        if h is None:
            continue
        names[id(h)] = f"{'b' if isinstance(h, BlockRV) else 'l' if isinstance(h, LoopRV) else 'v'}{i}"
        if isinstance(h, LoopRV) and isinstance(h.var, Var):
            names[id(h.var)] = f"{names[id(h)]}.var"
    return count + len(inst.outputs)


def _translate(value: Any, table: Mapping[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_translate(v, table) for v in value)
    if id(value) in table:
        return table[id(value)]
    if isinstance(value, PrimExpr):
        return substitute(value, {v: as_expr(table[id(v)]) for v in variables(value) if id(v) in table})
    return value


def _pack(value: Any, names: Mapping[int, str] | None = None) -> Any:
    """Write an argument down: an input, whose strings are names unless they are quoted, where `names` are given."""
    if isinstance(value, (list, tuple)):
        return [_pack(v, names) for v in value]
    if isinstance(value, (dict, Attrs)):
        return {"pairs": [[_pack(k), _pack(v, names)] for k, v in value.items()]}
    if names is not None and id(value) in names:
        return names[id(value)]
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    if isinstance(value, (Buffer, TensorIntrin)):
        value = value.name
    if isinstance(value, str) and names is not None:
        return f'"{value}"'
    if value is None and names is not None:
        return "None"
    if value is None or isinstance(value, (bool, int, float, str)):
        return int(value) if isinstance(value, ExprRV) else value
    if isinstance(value, PrimExpr):
        loops = [v for v in variables(value) if id(v) in (names or {})]
        return {"node": save_json((value, *loops)), "loops": [(names or {})[id(v)] for v in loops]}
    if isinstance(value, Node):
        return {"node": save_json(value)}
    raise ScheduleError("the trace holds an argument that JSON cannot", found=repr(value))


def _unpack(value: Any, handles: Mapping[str, Any] | None = None) -> Any:
    if isinstance(value, list):
        return [_unpack(v, handles) for v in value]
    if isinstance(value, dict) and "pairs" in value:
        return {_unpack(k): _unpack(v, handles) for k, v in value["pairs"]}
    if isinstance(value, dict):
        node = load_json(value["node"])
        if "loops" not in value:
            return node
        loops = [(handles or {})[n.removesuffix(".var")].var for n in value["loops"]]
        return substitute(node[0], dict(zip(node[1:], loops, strict=True)))
    if handles is None or not isinstance(value, str) or value == "None":
        return None if value == "None" and handles is not None else value
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    if value not in handles:
        raise ScheduleError("the trace uses a handle that nothing in it returned", found=value)
    return handles[value]
