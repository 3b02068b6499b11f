"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

from typing import Any

from weft.ir import IRModule, module_pass, with_deep_stack
from weft.relay.expr import Call, Function, GlobalVar, Let, Var, lets
from weft.relay.transform.free import Captures
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import map_parts, substitute

__all__ = ["is_closure", "lambda_lift"]


@module_pass
def lambda_lift(mod: IRModule) -> IRModule:
    """Move local functions into the module; what they capture become parameters of a function that makes the closure.

    Requires
        Any form; in A-normal form it stays A-normal.
    Ensures
        No local functions, except as the result of functions with the attribute ``Closure``: their parameters are
        what the closure holds. A recursive closure makes itself anew at its start; a function that captures nothing
        is called by its name.
    Example
        Before::

            def @main(%x: Tensor[(2), float32]) {
              let %f = fn (%y: Tensor[(2), float32]) { add(%x, %y) };
              %f(%x)
            }

        After::

            def @main(%x: Tensor[(2), float32]) {
              let %f = @lifted_name1(%x);
              %f(%x)
            }

            def @lifted_name1(%c: Tensor[(2), float32], Closure=1) {
              fn (%y: Tensor[(2), float32]) { add(%c, %y) }
            }
    Cost
        Linear in the size of the functions, plus what each captures.
    Source
        Johnsson, Lambda Lifting (1985), the closures of which stay closures; TVM's ``LambdaLift``.
    """
    return with_deep_stack(lambda: _Lifter(mod).module())


def is_closure(func: Any) -> bool:
    """Whether a function of a module makes closures: its body is the code, its parameters what the closure holds."""
    return bool(func.attrs and func.attrs.get("Closure"))


class _Lifter:
    """Lifts the local functions of one module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod, self.captures = mod, Captures()
        self.lifted: dict[GlobalVar, Function] = {}
        self.known: dict[Var, GlobalVar] = {}  # variables of functions that capture nothing
        self.memo: dict[int, Any] = {}
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
        while (result := self.memo.get(id(e))) is None and type(e) is Let:
            bindings.append(self.value(e))
            chain.append(e)
            e = e.body
        if type(e) is Var:
            result = self.known.get(e, e)
        elif result is None:
            result = self.lift(e) if type(e) is Function else map_parts(e, self.go)
            self.memo[id(e)] = result
        for let, value in zip(reversed(chain), reversed(bindings), strict=True):
            if value is not None:
                same = value is let.value and result is let.body
                result = let if same else Let(let.var, value, result, ty=let.ty, span=let.span)
            self.memo[id(let)] = result
        return result

    def value(self, let: Let) -> Any:
        """Return the new value of a let; None where its variable is known to stand for something else."""
        if type(let.value) is not Function or is_primitive(let.value):
            return self.go(let.value)
        made = self.memo[id(let.value)] = self.lift(let.value, let.var)
        if type(made) is GlobalVar:
            self.known[let.var] = made
            return None
        return made

    def lift(self, func: Function, name: Var | None = None) -> Any:
        """Put a local function into the module; return what makes it: its name, or a call with what it captures."""
        if is_primitive(func):
            return func
        free = self.captures.variables(func)
        captured = [v for v in free if v is not name and v not in self.known]
        own = GlobalVar(self.fresh_name())
        self.lifted[own] = func  # its place; the functions in it come behind
        type_params = tuple(self.captures.type_variables(func))
        if not captured:
            if name is not None:
                self.known[name] = own
            self.lifted[own] = func.replace(body=self.go(func.body), type_params=type_params + func.type_params)
            return own
        make = Call(own, tuple(captured), ty=func.ty)
        body = self.go(func.body)
        if name is not None and name in free:
            body = lets([(name, make)], body)
        holder = Function(tuple(captured), func.replace(body=body), func.ty, type_params)
        self.lifted[own] = _renamed(holder, [*captured, *([name] if name is not None and name in free else [])])
        return make

    def fresh_name(self) -> str:
        while True:
            self.count += 1
            name = f"lifted_name{self.count}"
            if name not in self.mod:
                return name


def _renamed(holder: Function, old: list[Var]) -> Function:
    """Give a lifted function variables of its own."""
    new = {v: Var(v.name_hint, v.ty) for v in old}
    code: Any = substitute(holder.body, new)
    if type(code.body) is Let and code.body.var in new:
        code = code.replace(body=Let(new[code.body.var], code.body.value, code.body.body, ty=code.body.ty))
    params = tuple(new[p] for p in holder.params)
    return Function(params, code, holder.ret_type, holder.type_params, {"Closure": 1})
