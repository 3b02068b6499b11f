"""Executors: ways to run Relay programs, with one meaning and one form of arguments and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from weft import ir, runtime
from weft.error import InvalidArgument
from weft.ir import IRModule
from weft.relay.expr import Function, Var
from weft.relay.interpreter import Interpreter
from weft.relay.machine_values import from_machine, to_machine
from weft.relay.transform import infer_type, remove_unused_functions
from weft.relay.vm import VirtualMachine, bind_params
from weft.relay.vm import compile as compile_for_vm
from weft.relay.walk import subexpressions
from weft.runtime import Tensor, arguments_in_order
from weft.target import TargetLike
from weft.tir import custom_datatype


class Executor(ABC):
    """Evaluates expressions in the surroundings of a module.

    Parameters
    ----------
    mod : IRModule
        Functions and data types.
    device : Device, optional
        Where to run.
    target : Target or str
        What to compile for.
    params : mapping of str to array, optional
        Values of parameters of ``main``, by name; they are no longer parameters then.
    """

    def __init__(self, mod: IRModule, device: Any, target: Any, params: Mapping[str, Any] | None) -> None:
        self.mod, self.device, self.target = mod, device, target
        if params:
            self.mod = bind_params(mod, params)

    def evaluate(self, expr: Any = None, binds: Mapping[Var, Any] | None = None) -> Any:
        """Evaluate an expression.

        Parameters
        ----------
        expr : Expr or str, optional
            An expression, or the name of a function of the module; ``main`` by default.
        binds : mapping of Var to value, optional
            Values of variables that are free in the expression.

        Returns
        -------
        Tensor, tuple, ConstructorValue, RefValue or callable
            Of a function or global variable: a Python function that takes its arguments by position or name.
        """
        if binds:
            func = Function(tuple(binds), expr)
            return self.prepare(*self._with(func))(*binds.values())
        if expr is None or isinstance(expr, (str, ir.GlobalVar)):
            name = "main" if expr is None else expr if isinstance(expr, str) else expr.name_hint
            return self._callable(self.mod, name)
        if isinstance(expr, Function):
            return self._callable(*self._with(expr))
        return self.prepare(*self._with(Function((), expr)))()

    def _with(self, func: Function) -> tuple[IRModule, str]:
        """Return the module with one more function, and its name."""
        mod = self.mod.copy()
        name = mod.fresh_name("main")
        mod[name] = func
        return mod, name

    def _callable(self, mod: IRModule, name: str) -> Callable[..., Any]:
        """Return a Python function that runs a function of a module."""
        func = mod[name]
        if not isinstance(func, Function):
            raise InvalidArgument(f"'{name}' is no Relay function", found=type(func).__name__)
        run, params = self.prepare(mod, name), [p.name_hint for p in func.params]
        registered = custom_datatype.registered() and _has_registered_types(func)
        returned = infer_type(mod)[name].ret_type if registered else None  # type: ignore[attr-defined]

        def call(*args: Any, **kwargs: Any) -> Any:
            given = arguments_in_order(name, params, args, kwargs)
            return _as_type(run(*map(_as_bits, given)), returned) if registered else run(*given)

        call.__name__, call.__doc__ = name, f"Run {name}({', '.join(params)})."
        return call

    @abstractmethod
    def prepare(self, mod: IRModule, name: str) -> Callable[..., Any]:
        """Return what runs a function of a module on arguments in the order of its parameters."""


_KINDS: dict[str, type[Executor]] = {}


def register_executor(kind: str) -> Callable[[type[Executor]], type[Executor]]:
    """Make a class what :func:`create_executor` makes of a kind."""

    def register(cls: type[Executor]) -> type[Executor]:
        _KINDS[kind] = cls
        return cls

    return register


@register_executor("debug")
class DebugExecutor(Executor):
    """Runs programs by the interpreter, which is slow and needs no compilation.

    It computes with NumPy, which has no types that a program registered: functions on these are compiled.
    """

    def prepare(self, mod: IRModule, name: str) -> Callable[..., Any]:
        """Return the function as a closure of an interpreter."""
        if custom_datatype.registered() and any(map(_has_registered_types, mod.functions.values())):
            return VMExecutor.prepare(self, mod, name)  # type: ignore[arg-type]
        return Interpreter(mod).function(name)


def _as_bits(value: Any) -> Any:
    """View a tensor of a registered type as what it is kept in."""
    if not isinstance(value, Tensor) or not value.dtype.startswith("custom["):
        return value
    return value._create_view(value.shape, custom_datatype.stored_as(value.dtype))


def _as_type(value: Any, ty: Any) -> Any:
    """View bits as the registered type that they are of."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_as_type, value, ty.fields))
    registered = str(getattr(ty, "dtype", "")).startswith("custom[")
    return value._create_view(value.shape, ty.dtype) if registered else value


def _has_registered_types(func: Any) -> bool:
    """Whether a parameter or what a call names has a type that a program registered."""
    named = (
        e.attrs.get("dtype") if isinstance(e, ir.Call) else getattr(e.ty, "dtype", None)
        for e in subexpressions(func)
        if isinstance(e, (ir.Call, Var))
    )
    return any(str(d).startswith("custom[") for d in named)


@register_executor("vm")
class VMExecutor(Executor):
    """Runs programs on the virtual machine, which takes all of them."""

    def prepare(self, mod: IRModule, name: str) -> Callable[..., Any]:
        """Compile the function and what it needs; return what converts arguments and result."""
        typed = infer_type(remove_unused_functions(entry_functions=(name,))(mod))
        func: Any = typed[name]
        types = [p.ty for p in func.params]
        machine = VirtualMachine(compile_for_vm(typed, self.target), self.device or "cpu")

        def run(*args: Any) -> Any:
            if len(args) != len(types):
                raise InvalidArgument(f"'{name}' takes other arguments", expected=str(len(types)), found=str(len(args)))
            given = [to_machine(a, t) for a, t in zip(args, types, strict=True)]
            return from_machine(machine.invoke(name, *given), func.ret_type, typed, machine.invoke_closure)

        return run


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: runtime.Device | None = None,
    target: TargetLike = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """Make an executor.

    Parameters
    ----------
    kind : str
        ``"debug"`` interprets; ``"vm"`` compiles for the virtual machine; ``"graph"`` and ``"aot"`` compile programs
        without control flow.
    mod : IRModule, optional
        The functions and data types that expressions refer to.
    device : Device, optional
        Where to run; the CPU by default.
    target : Target or str
        What to compile for.
    params : mapping of str to array, optional
        Values of parameters of ``main``.

    Returns
    -------
    Executor
        Its ``evaluate`` gives the value of an expression, or a Python function for a function.
    """
    executor = _KINDS.get(kind)
    if executor is None:
        raise InvalidArgument("there is no such executor", expected=" or ".join(map(repr, _KINDS)), found=repr(kind))
    return executor(mod if mod is not None else IRModule(), device, target, params)
