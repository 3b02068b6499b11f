"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.ir import Attrs, Expr, IRModule, Node, module_pass, with_deep_stack, with_fields
from weft.relay.expr import Call, Function, GlobalVar, Let, Var, lets
from weft.relay.transform.free import Captures, free_type_variables
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.types import TypeVar
from weft.relay.walk import map_parts, parts, subexpressions, substitute


@module_pass
def lambda_lift(mod: IRModule) -> IRModule:
    """Move local functions into the module; what they capture becomes parameters, or is held by closures.

    Requires: Any form; in A-normal form it stays A-normal.
    Ensures: No local functions, except as the result of functions with the attribute ``Closure``: their parameters are
        what the closure holds. A recursive closure makes itself anew at its start. A function that captures nothing
        goes by its name in the module; one that is only called takes what it captured before its own arguments.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          let %f = fn (%y: Tensor[(2), float32]) { add(%x, %y) };
          let %g = fn (%y: Tensor[(2), float32]) { multiply(%x, %y) };
          (%f, %g(%x))
        }

    After::

        def @main(%x: Tensor[(2), float32]) {
          let %f = @lifted_name1(%x);
          (%f, @lifted_name2(%x, %x))
        }

        def @lifted_name1(%c: Tensor[(2), float32], Closure=1) {
          fn (%y: Tensor[(2), float32]) { add(%c, %y) }
        }

        def @lifted_name2(%c: Tensor[(2), float32], %y: Tensor[(2), float32]) { multiply(%c, %y) }
    Cost: Linear in the size of the functions, plus what each captures.
    Source: Johnsson, Lambda Lifting (1985), the closures of which stay closures; TVM's ``LambdaLift``.
    """
    return with_deep_stack(lambda: _Lifter(mod).module())


def is_closure(func: Function) -> bool:
    """Whether a function of a module makes closures: its body is the code, its parameters what the closure holds."""
    return bool(func.attrs and func.attrs.get("Closure"))


class _Lifter:
    """Lifts the local functions of one module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod, self.captures = mod, Captures()
        self.lifted: dict[GlobalVar, Function] = {}
        self.known: dict[Var, GlobalVar] = {}  # variables of functions that capture nothing
        self.called: dict[Var, Call] = {}  # those of functions that are only called: the name and what is captured
        self.own_types: dict[Var, int] = {}  # how many type parameters those of both kinds have
        self.values = _used_as_values(mod)
        self.memo: dict[Expr, Any] = {}
        self.count = 0

    def module(self) -> IRModule:
        """Lift what is in the functions of the module."""
        functions = {v: self.function(f) if type(f) is Function else f for v, f in self.mod.items()}
        return self.mod.with_functions({**functions, **self.lifted})

    def function(self, func: Function) -> Function:
        if is_primitive(func):
            return func
        code = func.body
        if is_closure(func) and type(code) is Function:
            body = map_parts(code, self.go)
        else:
            body = self.go(code)
        return func if body is code else func.replace(body=body)

    def go(self, e: Any) -> Any:
        """Return an expression without local functions."""
        bindings: list[Any] = []
        chain: list[Let] = []
        while (result := self.memo.get(e)) is None and type(e) is Let:
            bindings.append(self.value(e))
            chain.append(e)
            e = e.body
        if type(e) is Var:
            result = self.known.get(e, e)
        elif result is None:
            result = self.lift(e) if type(e) is Function else self.call(e) or map_parts(e, self.go)
            self.memo[e] = result
        for let, value in zip(reversed(chain), reversed(bindings), strict=True):
            if value is not None:
                result = with_fields(let, value=value, body=result)
            self.memo[let] = result
        return result

    def value(self, let: Let) -> Any:
        """Return the new value of a let; None where its variable is known to stand for something else."""
        if type(let.value) is not Function or is_primitive(let.value):
            return self.go(let.value)
        made = self.memo[let.value] = self.lift(let.value, let.var)
        return None if let.var in self.known or let.var in self.called else made

    def call(self, e: Node) -> Call | None:
        """Return a call of a function that was lifted; None for others."""
        if type(e) is not Call or type(e.op) is not Var:
            return None
        known = self.known.get(e.op)
        target = self.called.get(e.op) if known is None else Call(known, ())
        if target is None:
            return None
        types = (*target.ty_args, *e.ty_args) if len(e.ty_args) == self.own_types[e.op] else ()
        return Call(target.op, (*target.args, *map(self.go, e.args)), e.attrs, types, ty=e.ty, span=e.span)

    def lift(self, func: Function, name: Var | None = None) -> Any:
        """Put a local function into the module; return what makes it: its name, or a call with what it captures."""
        if is_primitive(func):
            return func
        free = self.captures.variables(func)
        captured = self.captured(free, name)
        types = self.type_variables(func, free, captured)
        own = GlobalVar(self.fresh_name())
        self.lifted[own] = func  # its place; the functions in it come behind
        make = Call(own, tuple(captured), ty_args=types, ty=func.ty)
        direct = name is not None and name not in self.values and func not in self.values
        plain = not captured and not types
        if name is not None and (plain or direct):
            self.own_types[name] = len(func.type_params)
            if plain:
                self.known[name] = own
            else:
                self.called[name] = make
        body = self.go(func.body)
        if plain or direct:
            lifted = func.replace(params=(*captured, *func.params), body=body, type_params=types + func.type_params)
            self.lifted[own] = _renamed(lifted, captured)
            return own if plain else make
        again = [name] if name is not None and name in free else []
        if again:
            body = lets([(again[0], make)], body)
        holder = Function(tuple(captured), func.replace(body=body), func.ty, types, Attrs.of(Closure=1))
        self.lifted[own] = _renamed(holder, captured + again)
        return make

    def type_variables(self, func: Function, free: Iterable[Var], captured: list[Var]) -> tuple[TypeVar, ...]:
        """List the type variables that a lifted function needs, for what it captures and calls, too."""
        found: dict[Any, None] = dict(self.captures.type_variables(func))
        for v in free:
            found.update(dict.fromkeys(self.called[v].ty_args if v in self.called else ()))
        found.update((t, None) for t in free_type_variables([v.ty for v in captured]))
        return tuple(t for t in found if t not in func.type_params)

    def captured(self, free: Iterable[Var], name: Var | None) -> list[Var]:
        """List the variables that a lifted function needs, given those that it uses freely."""
        found: dict[Any, None] = {}
        for v in free:
            if v in self.called:
                found.update(dict.fromkeys(self.called[v].args))
            elif v is not name and v not in self.known:
                found[v] = None
        return list(found)

    def fresh_name(self) -> str:
        while True:
            self.count += 1
            name = f"lifted_name{self.count}"
            if name not in self.mod:
                return name


def _used_as_values(mod: IRModule) -> set[Expr]:
    """Find the variables that are used otherwise than by calling them, the functions otherwise than by naming them."""
    found: set[Expr] = set()
    for func in mod.functions.values():
        for e in subexpressions(func) if type(func) is Function else ():
            found.update(p for p in (e.args if type(e) is Call else parts(e)) if type(p) is Var)
            found.update(p for p in ((e.body,) if type(e) is Let else parts(e)) if type(p) is Function)
    return found


def _renamed(func: Function, old: list[Var]) -> Function:
    """Give a lifted function variables of its own in the place of some."""
    new = {v: Var(v.name_hint, v.ty) for v in old}
    body: Any = substitute(func.body, new)
    code = body.body if type(body) is Function else body
    if type(body) is Function and type(code) is Let and code.var in new:
        body = body.replace(body=Let(new[code.var], code.value, code.body, ty=code.ty))
    return func.replace(params=tuple(new.get(p, p) for p in func.params), body=body) if new else func
