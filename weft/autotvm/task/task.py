"""Templates by name, and tasks: a template with its arguments and a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from weft import error, ir, te, tir
from weft.autotvm.task.dispatcher import ApplyConfig, DispatchContext
from weft.autotvm.task.space import ConfigSpace, FallbackConfigEntity
from weft.target import Target, TargetLike
from weft.tune.front_end import deserialize_args, serialize_args

__all__ = [
    "FlopCalculationError",
    "MissingTask",
    "TASK_TABLE",
    "Task",
    "TaskTemplate",
    "args_to_workload",
    "compute_flop",
    "create",
    "deserialize_args",
    "get_config",
    "serialize_args",
    "template",
]


class FlopCalculationError(error.WeftError, RuntimeError):
    """The operations of a schedule cannot be counted; a template says them with ``cfg.add_flop``."""


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """Name what a template computes: its task and arguments."""
    return (task_name, *serialize_args(args)) if task_name is not None else serialize_args(args)


class TaskTemplate:
    """What makes a task's schedule and tensors: one function, or one that computes and one that schedules."""

    def __init__(self) -> None:
        self.fcompute: Callable[..., Any] | None = None
        self.fschedule: Callable[..., Any] | None = None
        self.fcustomized: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make them of the arguments."""
        values = deserialize_args(args)
        if self.fcustomized is not None:
            return self.fcustomized(*values, **kwargs)
        if self.fcompute is None or self.fschedule is None:
            raise error.InvalidArgument("a task needs a compute and a schedule function")
        out = self.fcompute(*values, **kwargs)
        return self.fschedule([out]), [out, *_inputs_of(out)]


class MissingTask(TaskTemplate):
    """Stands for a task of a log whose template is not there."""

    def __init__(self, taskname: str) -> None:
        super().__init__()
        self.taskname = taskname

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Say that it is missing."""
        raise error.InvalidArgument(
            f"there is no task '{self.taskname}'", help="import the module that registers its template first"
        )


TASK_TABLE: dict[str, TaskTemplate] = {}


def _inputs_of(out: te.Tensor) -> list[te.Tensor]:
    found, waiting, seen = [], [out], {out}
    while waiting:
        t = waiting.pop(0)
        if isinstance(t.op, te.PlaceholderOp):
            found.append(t)
        new = [i for i in dict.fromkeys(t.op.input_tensors_tuple) if i not in seen]
        seen.update(new)
        waiting += new
    return found


def register(name: str, part: str, func: Callable[..., Any]) -> None:
    """Enter a part of a template: ``fcompute``, ``fschedule`` or ``fcustomized``."""
    entry = TASK_TABLE.setdefault(name, TaskTemplate())
    if getattr(entry, part) is not None:
        raise error.InvalidArgument(f"the task '{name}' is registered already", help="take another name")
    setattr(entry, part, func)


def template(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """Make a function a template of schedules.

    Inside it, :func:`get_config` gives the space, or the configuration that is applied. It returns the schedule and its
    tensors. The decorated function may be called by itself: then the context decides, such as
    ``with apply_history_best(log):``.

    Parameters
    ----------
    task_name : str
        The name for :func:`create`.
    func : callable, optional
        By default a decorator is returned.
    """

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(f)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise error.InvalidArgument("a template takes positional arguments", found=", ".join(kwargs))
            config = DispatchContext.current.query(Target.current(), args_to_workload(args, task_name))
            with ApplyConfig(config):
                return f(*args)

        register(task_name, "fcustomized", f)
        return wrapper

    return decorate(func) if func is not None else decorate


class Task:
    """A template with its arguments.

    Parameters
    ----------
    name : str
    args : sequence
        Of numbers, strings and :func:`serialize_args`'s tensors.
    """

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name, self.args = name, args
        self.kwargs: dict[str, Any] = {}
        self.config_space: Any = None
        self.func: Callable[..., Any] = TASK_TABLE.get(name) or MissingTask(name)
        self.flop: Any = None
        self.target: Any = None
        self.target_host: Any = None

    @property
    def workload(self) -> tuple[Any, ...]:
        """The name and arguments, hashable."""
        return (self.name, *serialize_args(self.args))

    def instantiate(self, config: Any) -> tuple[te.Schedule, Any]:
        """Call the template with a configuration; returns the schedule and its tensors."""
        config.flop = 0
        with ApplyConfig(config):
            sch, tensors = self.func(*self.args, **self.kwargs)
        if not self.flop:
            self.flop = config.flop = config.flop or compute_flop(sch)
        return sch, tensors

    def __getstate__(self) -> dict[str, Any]:
        pickled = error.require("cloudpickle", extra="cloudpickle").dumps(self.func)
        return {**self.__dict__, "func": pickled, "target": str(self.target) if self.target is not None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        func = error.require("cloudpickle", extra="cloudpickle").loads(state["func"])
        target = Target(state["target"]) if state["target"] is not None else None
        self.__dict__.update(state, func=func, target=target)

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def create(task_name: str, args: Sequence[Any], target: TargetLike, target_host: TargetLike | None = None) -> Task:
    """Make a task, with the space that its template defines for a target.

    Parameters
    ----------
    task_name : str
        The name of a template, or a function that :func:`template` returned.
    args : sequence
    target, target_host : Target or str
    """
    task = Task(getattr(task_name, "__name__", task_name) if callable(task_name) else task_name, serialize_args(args))
    task.target, task.target_host = Target(target, host=target_host), target_host
    space = task.config_space = ConfigSpace()
    with ApplyConfig(space), task.target:
        sch, _ = task.func(*task.args)
    task.flop = space.flop or compute_flop(sch)
    return task


def get_config() -> Any:
    """Return the space or configuration of the template that runs; outside of one, that of the context."""
    context = DispatchContext.current
    workload = getattr(context, "workload", None)
    return context.query(Target.current(allow_none=True), workload) or FallbackConfigEntity()


def compute_flop(sch: te.Schedule) -> int:
    """Count the arithmetic operations of a schedule's outputs, one for each operator and element.

    Raises
    ------
    FlopCalculationError
        When there are none, or they are of a kind that is not counted.
    """
    total = 0
    for op in ir.reached(sch.outputs, lambda op: [t.op for t in op.input_tensors_tuple]):
        if isinstance(op, te.ComputeOp):
            if len(op.body) != 1:
                raise FlopCalculationError(f"'{op.name}' computes several values", help="use cfg.add_flop")
            total += _length(op.axis) * _operations(op.body[0])
        elif not isinstance(op, te.PlaceholderOp):
            raise FlopCalculationError(f"'{op.name}' is no compute operation", help="use cfg.add_flop")
    if not total:
        raise FlopCalculationError("there are no operations to be counted", help="use cfg.add_flop")
    return total


def _length(axes: Sequence[Any]) -> int:
    sizes = [a.dom.extent for a in axes]
    if not all(isinstance(s, ir.IntImm) for s in sizes):
        raise FlopCalculationError("an axis has no constant length", help="use cfg.add_flop")
    return math.prod(s.value for s in sizes)


def _operations(expr: ir.PrimExpr) -> int:
    if isinstance(expr, tir.Reduce):
        if len(expr.source) != 1:
            raise FlopCalculationError("a reduction of several values", help="use cfg.add_flop")
        return _length(expr.axis) * (_operations(expr.combiner.result[0]) + _operations(expr.source[0]))
    if isinstance(expr, (tir.ProducerLoad, ir.IntImm, ir.FloatImm, ir.Var)):
        return 0
    if isinstance(expr, tir.Select):
        return _operations(expr.condition) + max(_operations(expr.true_value), _operations(expr.false_value))
    counted = not isinstance(expr, (tir.Cast, tir.Call))
    return counted + sum(_operations(c) for c in ir.children(expr) if isinstance(c, ir.PrimExpr))
