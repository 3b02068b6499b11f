"""Passes over functions that read types: what has none gets them first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.error import WeftError
from weft.ir import IRModule, Pass, Sequential, module_pass
from weft.relay.expr import Function
from weft.relay.infer import infer_module
from weft.relay.transform.to_a_normal_form import is_primitive


def typed_function_pass(fn: Callable[[Function], Function]) -> Any:
    """Turn ``fn(func)`` into a pass over the functions of a module, which have their types."""
    return module_pass(over_typed_functions(fn))


def over_typed_functions(fn: Callable[[Function], Function]) -> Callable[[IRModule], IRModule]:
    """Turn ``fn(func)`` into a function over modules, whose functions get their types first."""

    @functools.wraps(fn)
    def over_module(mod: IRModule) -> IRModule:
        typed = infer_module(mod)
        return typed.with_functions(
            {v: fn(f) if type(f) is Function and not is_primitive(f) else f for v, f in typed.items()}
        )

    return over_module


def with_types(make: Callable[..., Pass]) -> Callable[..., Pass]:
    """Make the face of a pass for programs, which find types on its result; inside of pipelines the pass is bare."""

    @functools.wraps(make)
    def typed(*args: Any, **kwargs: Any) -> Pass:
        bare = make(*args, **kwargs)
        return _Typed([bare, Pass("InferType", _inferred, 0, _inferred.__doc__)], bare.opt_level, bare.name)

    return typed


class _Typed(Sequential):
    """A pass and its types: who asks for the pass by itself gets it at any level."""

    def _run_all(self, mod: IRModule) -> IRModule:
        for p in self.passes:
            mod = p(mod)
        return mod


def _inferred(mod: IRModule) -> IRModule:
    """Infer types, where the program has them: passes of any form take fragments, too."""
    try:
        return infer_module(mod)
    except WeftError:
        return mod
