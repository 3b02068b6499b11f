"""Subroutines: modules whose calls become calls of one function, instead of being written out each time.

Layers that repeat are compiled once: functions of equal structure, whatever weights they are called with, are one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import count
from typing import Any

from weft import ir, relax
from weft.frontend.nn.exporter import Exporter, expression
from weft.frontend.nn.tensor import Object, Tensor, builder, emit, wrap_nested


class SubroutineMixin:
    """Gives a class the switch ``define_subroutine``.

    A module of a class that sets it to True is a function of the exported program: its tensors, the sizes and the
    effects that it uses, and its parameters are the function's arguments.
    """

    define_subroutine: bool = False

    def _call_subroutine(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module: Any = self
        trace = _Trace(module)
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        inputs = {name: trace.receive(value, name) for name, value in bound.arguments.items()}
        bound.arguments.update(inputs)
        gvar = trace.function(lambda: module.forward(*bound.args, **bound.kwargs))
        return trace.result(gvar)


class _Trace:
    """The function that is made of one call: its parameters, and what the call passes for them."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(module).__name__).lower()
        self.params: list[relax.Var] = []
        self.passed: list[Any] = []
        self.effects: list[tuple[Any, list[Any]]] = []

    def _parameter(self, name: str, value: Any, ty: Any = None) -> relax.Var:
        var = relax.Var(name, ty or value.ty)
        self.params.append(var)
        self.passed.append(value)
        return var

    def receive(self, value: Any, name: str) -> Any:
        """Make parameters for what an argument holds, and return what the method gets for it."""
        if isinstance(value, Tensor):
            return Tensor(_expr=self._parameter(name, value._expr))
        if isinstance(value, Object):
            return type(value)(_expr=self._parameter(name, value._expr), _name=name)
        if isinstance(value, ir.PrimExpr):
            size = value if isinstance(value, ir.Var) else ir.SizeVar(name, "int64")
            self._parameter(name, ir.shape_expr([value]), ir.ShapeType((size,)))
            return size
        if isinstance(value, (list, tuple)):
            return type(value)(self.receive(v, f"{name}_{i}") for i, v in enumerate(value))
        return value

    def function(self, body: Callable[[], Any]) -> Any:
        """Trace the method into a function of the module, or find the function that has its structure."""
        bb = builder()
        weights = list(self.module.named_parameters())
        outer = [p._expr for _, p in weights]
        self._receive_effects()
        try:
            for name, param in weights:
                param._expr = self._parameter(name, param._expr)
            self._receive_sizes()
            with bb.scope(dataflow=True) as inner:
                result = expression(body(), type(self.module).__name__)
                finals = self._finish_effects([*bb.bindings(), result])
                if finals:
                    result = ir.Tuple((result, ir.Tuple(tuple(finals))))
                seq = bb.finish(inner, bb.emit_output(result))
        finally:
            for (_, param), expr in zip(weights, outer, strict=True):
                param._expr = expr
        func: Any = bb.normalize(ir.Function(tuple(self.params), seq, seq.ty, True, ir.Attrs.of()))
        return bb.add_func(func, self.name)

    def _receive_effects(self) -> None:
        """Make parameters for the effects that the calling function has."""
        io = Exporter.active_io()
        for name, effect in [*([("_io", io)] if io is not None else []), *self.module.named_effects()]:
            states = effect.finalize()
            if all(state is not None for state in states):
                self.effects.append((effect, states))
                effect.set_state([self._parameter(name, state) for state in states])

    def _finish_effects(self, body: list[Any]) -> list[Any]:
        """Return the last states of the effects; those that nothing uses are no parameters."""
        used = {node for part in body for node in ir.walk(part)}
        finals: list[Any] = []
        kept: list[tuple[Any, list[Any]]] = []
        for effect, states in self.effects:
            last = effect.finalize()
            received = [i for i, value in enumerate(self.passed) if any(value is state for state in states)]
            if any(self.params[i] in used for i in received):
                kept.append((effect, states))
                finals += last
                continue
            effect.set_state(states)
            for i in reversed(received):
                del self.params[i], self.passed[i]
        self.effects = kept
        return finals

    def _receive_sizes(self) -> None:
        """Pass the sizes that appear in types only within expressions, from which they do not follow."""
        known: set[ir.Var] = set()
        used: dict[ir.Var, None] = {}
        for node in (n for var in self.params for n in ir.walk(var.ty)):
            dims = (
                node.shape if isinstance(node, ir.TensorType) else node.values if isinstance(node, ir.ShapeType) else ()
            )
            known.update(d for d in dims or () if isinstance(d, ir.Var))
            used.update({node: None} if isinstance(node, ir.Var) else {})
        sizes = tuple(v for v in used if v not in known)
        if sizes:
            self._parameter("sizes", ir.ShapeExpr(sizes, ty=ir.ShapeType(sizes, len(sizes))))

    def result(self, gvar: Any) -> Any:
        """Emit the call and return what the method returned."""
        out: Any = emit(ir.Call(gvar, tuple(self.passed)), self.name)
        if not self.effects:
            return wrap_nested(out, self.name)
        after: Any = emit(ir.TupleGetItem(out, 1), "effects")
        position = count(0)
        for effect, states in self.effects:
            effect.set_state([emit(ir.TupleGetItem(after, next(position)), "state") for _ in states])
        return wrap_nested(ir.TupleGetItem(out, 0), self.name)
