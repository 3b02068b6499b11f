"""Passes as TVM's programs write them (``tvm.transform``): a decorator makes a pass of ``fn(mod, ctx)``.

Weft's own passes are made by :func:`weft.ir.module_pass`, which leaves options open; these have none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassContext, PassInstrument, PrintIR, Sequential, TimePasses

__all__ = [
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PrintIR",
    "Sequential",
    "TimePasses",
    "function_pass",
    "function_pass_over",
    "module_pass",
]

ModulePass = Pass


class PassInfo(NamedTuple):
    """What describes a pass; :attr:`Pass.info` has the same fields."""

    opt_level: int
    name: str
    required_pass: Any = None
    traceable: bool = False


class _ObjectPass(Pass):
    """A pass of a class of the user's; what a pass has not is asked of the object."""

    of: Any = None
    required: tuple[str, ...] = ()  # names of passes that a Sequential runs before it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


def pass_decorator(run: Callable[[Callable[..., Any], IRModule], IRModule], method: str) -> Callable[..., Any]:
    """Make the decorator of functions, or of classes with this method, that `run` makes of a module another one."""

    def decorate(
        pass_func: Any = None,
        opt_level: int = 0,
        name: str | None = None,
        required: Any = None,
        traceable: bool = False,
    ) -> Any:
        def make(fn: Any) -> Any:
            def as_pass(body: Callable[..., Any]) -> _ObjectPass:
                made = _ObjectPass(name or fn.__name__, functools.partial(run, body), opt_level, fn.__doc__)
                made.required = tuple(required or ())
                return made

            if not isinstance(fn, type):
                return as_pass(fn)

            @functools.wraps(fn, updated=())
            def construct(*args: Any, **options: Any) -> Pass:
                of = fn(*args, **options)
                made = as_pass(getattr(of, method))
                made.of = of
                return made

            return construct

        return make if pass_func is None else make(pass_func)

    return decorate


def function_pass_over(kind: type) -> Callable[..., Any]:
    """Make the decorator of passes over functions of class `kind`."""

    def run(fn: Callable[..., Any], mod: IRModule) -> IRModule:
        context = PassContext.current()
        return mod.with_functions({v: fn(f, mod, context) if isinstance(f, kind) else f for v, f in mod.items()})

    return pass_decorator(run, "transform_function")


module_pass = pass_decorator(lambda fn, mod: fn(mod, PassContext.current()), "transform_module")
"""``@module_pass(opt_level=0, name=...)`` over ``fn(mod, ctx) -> IRModule``, or a class with ``transform_module``."""
function_pass = function_pass_over(Function)
"""The same over each graph function: ``fn(func, mod, ctx) -> function``, or a class with ``transform_function``."""
