"""A computation to be scheduled: its tensors, the operations between them, and how much they compute."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from weft import error, ir, te, tir
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.workload_registry import workload_key_to_tensors
from weft.ffi import get_global_func


class LayoutRewriteOption(IntEnum):
    """What may be done to the layout of weights."""

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2

    @staticmethod
    def get_target_default(target: Any, in_relay_integration: bool = False) -> LayoutRewriteOption:
        """Return what is usual for a target."""
        if "cpu" not in target.kind.keys:
            return LayoutRewriteOption.NO_REWRITE
        if in_relay_integration:
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE


class ComputeDAG:
    """A computation.

    Parameters
    ----------
    compute_or_sche : sequence of Tensor, Schedule or str
        The inputs and outputs; a schedule, whose stages are taken as they are; or the key of a workload.
    """

    def __init__(self, compute_or_sche: Any) -> None:
        self._schedule: te.Schedule | None = None
        if isinstance(compute_or_sche, str):
            self.tensors = list(workload_key_to_tensors(compute_or_sche))
        elif isinstance(compute_or_sche, te.Schedule):
            self._schedule = compute_or_sche
            outputs = [op.output(i) for op in compute_or_sche.outputs for i in range(op.num_outputs)]
            inputs = [s.op.output(0) for s in compute_or_sche.stages if isinstance(s.op, te.PlaceholderOp)]
            self.tensors = [*inputs, *outputs]
        else:
            self.tensors = list(compute_or_sche)
            if not all(isinstance(t, te.Tensor) for t in self.tensors):
                raise error.InvalidArgument("a computation is a list of tensors", found=repr(compute_or_sche))
        read = {t for op in self._reached() for t in op.input_tensors_tuple}
        self.outputs = [t for t in self.tensors if not isinstance(t.op, te.PlaceholderOp) and t not in read]
        for op in self.ops:
            _check_axes(op)
        self.flop_ct = float(sum(_flops(op) for op in self.ops))

    @staticmethod
    def of_kernel(args: Sequence[Any]) -> ComputeDAG | None:
        """Take the parameters of a kernel; None where a size is not known, or an operation has no steps."""
        if not all(isinstance(t, te.Tensor) and all(isinstance(d, ir.IntImm) for d in t.shape) for t in args):
            return None
        try:
            made = ComputeDAG(args)
        except error.InvalidArgument:
            return None
        return made if all(isinstance(op, (te.ComputeOp, te.PlaceholderOp)) for op in made.ops) else None

    def _reached(self) -> list[Any]:
        return list(ir.reached((t.op for t in self.tensors), lambda op: [t.op for t in op.input_tensors_tuple]))

    @property
    def ops(self) -> list[Any]:
        """The operations, producers first."""
        return [s.origin_op for s in self.fresh_schedule().stages] if self.outputs else []

    @property
    def reduces(self) -> bool:
        """Whether there is a reduction, without which there is little to tune."""
        return any(isinstance(b, tir.Reduce) for op in self.ops for b in getattr(op, "body", ()))

    @property
    def init_state(self) -> State:
        """The loops before any step."""
        return self.get_init_state()

    def get_init_state(self) -> State:
        """Return the loops before any step; each call returns another object."""
        return State(self)

    def fresh_schedule(self) -> te.Schedule:
        """Return a schedule without any step; one that was given has its own stages."""
        return self._schedule or te.create_schedule([t.op for t in self.outputs])

    def apply_steps_from_state(
        self, state: State, layout_rewrite: LayoutRewriteOption = LayoutRewriteOption.NO_REWRITE
    ) -> tuple[te.Schedule, list[te.Tensor]]:
        """Return the schedule of a state, and the tensors; layouts stay as they are."""
        return State(self, state.transform_steps).schedule, self.tensors

    def print_python_code_from_state(self, state: State) -> str:
        """Return the steps of a state as Python, on a schedule ``s``."""
        tensors = State(self)
        taken = []
        for stage in tensors.stages:
            axes = [f"{stage.op.name}_{i.name}".replace(".", "_") for i in stage.iters]
            if axes:
                op = str(stage.op.name).replace(".", "_")
                taken.append(f"{', '.join(axes)} = tuple({op}.op.axis) + tuple({op}.op.reduce_axis)")
        return "\n".join([*taken, State(self, state.transform_steps).as_python()])

    def infer_bound_from_state(self, state: Any) -> State:
        """Return a state with the ranges of all loops."""
        return (state if isinstance(state, State) else State(self, state.transform_steps)).with_bounds()

    def hash_key(self) -> Any:
        """Name the computation by what it computes; a global function ``auto_scheduler.compute_dag.hash_func`` may."""
        own = get_global_func("auto_scheduler.compute_dag.hash_func", allow_missing=True)
        return hashlib.md5(str(self).encode()).hexdigest() if own is None else own(str(self))

    def workload_key(self) -> str:
        """Return the key of a workload that has no function: the hash and the shapes."""
        shapes = [int(d) for t in self.tensors for d in t.shape if isinstance(d, ir.IntImm)]
        return json.dumps([self.hash_key(), *shapes])

    def __str__(self) -> str:
        lines = []
        for op in self.ops:
            if isinstance(op, te.PlaceholderOp):
                lines.append(f"{op.name} = PLACEHOLDER [{', '.join(map(str, op.output(0).shape))}]")
                continue
            if not isinstance(op, te.ComputeOp):
                lines.append(f"{op.name} = {type(op).__name__} [{', '.join(i.op.name for i in op.input_tensors)}]")
                continue
            indices = ", ".join(a.var.name for a in op.axis)
            for body in op.body:
                reduce = isinstance(body, tir.Reduce)
                value, sign = (_combined(body), "") if reduce else (str(body), "=")
                lines.append(f"{op.name}({indices}) {sign}{' ' if sign else ''}{value}")
        return "\n".join(lines) + "\n"

    def __getstate__(self) -> dict[str, Any]:
        return {"tensors": self.tensors, "schedule": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["tensors"])

    def __hash__(self) -> int:
        return hash(self.hash_key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputeDAG) and self.hash_key() == other.hash_key()


_SIGNS: dict[type[Any], str] = {tir.Add: "+=", tir.Mul: "*=", tir.Max: "max=", tir.Min: "min="}


def _combined(body: tir.Reduce) -> str:
    result = body.combiner.result[body.value_index]
    sign = _SIGNS.get(type(result), "reduce=")
    return f"{sign} {body.source[body.value_index]}"


def _check_axes(op: Any) -> None:
    names = [a.var.name for a in (*getattr(op, "axis", ()), *getattr(op, "reduce_axis", ()))]
    if len(set(names)) < len(names):
        raise error.InvalidArgument(f"two axes of '{op.name}' have one name", found=", ".join(names))


def _flops(op: Any) -> float:
    """Count the operations on values of the kind that an operation computes; indices do not count."""
    if not isinstance(op, te.ComputeOp):
        return 0.0
    given = dict(op.attrs).get("FLOP") if op.attrs else None
    if given is not None:
        return float(getattr(given, "value", given))
    elements = _length(op.axis)
    return float(sum(elements * _count(b, ir.DataType(b.dtype).is_float) for b in op.body))


def _length(axes: Sequence[Any]) -> int:
    return math.prod(a.dom.extent.value if isinstance(a.dom.extent, ir.IntImm) else 1 for a in axes)


def _count(expr: ir.PrimExpr, floats: bool) -> float:
    if isinstance(expr, tir.Reduce):
        i = expr.value_index
        return _length(expr.axis) * (_count(expr.combiner.result[i], floats) + _count(expr.source[i], floats))
    if isinstance(expr, (tir.ProducerLoad, ir.IntImm, ir.FloatImm, ir.Var)):
        return 0.0
    if isinstance(expr, tir.Select):
        return _count(expr.condition, floats) + max(_count(expr.true_value, floats), _count(expr.false_value, floats))
    parts = [c for c in ir.children(expr) if isinstance(c, ir.PrimExpr)]
    own = not isinstance(expr, tir.Cast) and any(ir.DataType(p.dtype).is_float == floats for p in parts[:2])
    if isinstance(expr, tir.Call):
        own = str(getattr(expr.op, "name", "")) != "tir.if_then_else"
    return float(own) + sum(_count(p, floats) for p in parts)
