"""Which expressions have effects: they are never dropped, done twice, or done in another order.

Operations on references have effects, and calls of functions whose bodies have, or that are not known; so has a match
that may fail. A function that nobody knows to have effects has none, recursion included.
"""

from collections.abc import Iterable
from typing import Any

from weft import ir
from weft.relay.adt import Constructor, Match
from weft.relay.analysis.scopes import users_first
from weft.relay.expr import Call, Function, Let, RefCreate, RefRead, RefWrite, Var
from weft.relay.op.registry import get, has
from weft.relay.walk import parts, subexpressions


class Effects:
    """Effects of the expressions of a module.

    Parameters
    ----------
    mod : IRModule
        The module.
    roots : iterable of expression, optional
        Where functions that variables stand for are looked up; by default the module's functions.
    """

    def __init__(self, mod: ir.IRModule, roots: Iterable[Any] | None = None) -> None:
        self._globals = {v.name_hint: f for v, f in mod.items()}
        self._bound: dict[Var, Any] = {}
        for root in self._globals.values() if roots is None else roots:
            self._bound.update((e.var, e.value) for e in subexpressions(root) if type(e) is Let)
        self._known: dict[ir.Expr, bool] = {}
        self._functions: dict[Function, bool] = {}

    def any(self, expr: ir.Expr) -> bool:
        """Whether evaluating an expression has effects."""
        for e in reversed(users_first(expr, lambda e: type(e) is not Function and e not in self._known)):
            if e not in self._known:
                below = () if type(e) is Function else parts(e)
                self._known[e] = self._own(e) or any(self._known.get(p, False) for p in below)
        return self._known.get(expr, False)

    def _own(self, e: ir.Node) -> bool:
        """Whether an expression itself, its parts aside, has effects."""
        if type(e) is Call:
            callee = self._callee(e.op)
            return callee is None or (type(callee) is Function and self.of_function(callee))
        return type(e) in (RefCreate, RefRead, RefWrite) or (type(e) is Match and not e.complete)

    def _callee(self, op: Any) -> Any:
        """What a call runs: the function, True for what has no effects, None where that is not known."""
        for _ in range(64):  # names of names
            if isinstance(op, ir.Op):
                return True if not has(op.name) or get(op).pure else None
            if type(op) in (Constructor, Function):
                return op
            op = self._bound.get(op) if type(op) is Var else self._globals.get(getattr(op, "name_hint", ""))
        return None

    def of_function(self, func: Function) -> bool:
        """Whether calling a function has effects."""
        if func not in self._functions:
            self._solve(func)
        return self._functions[func]

    def _solve(self, func: Function) -> None:
        """Find all functions that one calls; those have effects that reach one with effects of its own."""
        found: set[Function] = set()
        callers: dict[Function, list[Function]] = {}
        impure: list[Function] = []
        stack = [func]
        while stack:
            f = stack.pop()
            if f in found:
                continue
            found.add(f)
            if f.attrs and f.attrs.get("Primitive"):
                continue
            for e in subexpressions(f.body, lambda e: type(e) is not Function):
                callee = self._callee(e.op) if type(e) is Call else True
                if callee is None or (type(e) is not Call and self._own(e)):
                    impure.append(f)
                elif type(callee) is Function:
                    callers.setdefault(callee, []).append(f)
                    stack.append(callee)
        marked = ir.reached(impure, lambda f: callers.get(f, ()))
        self._functions.update((f, f in marked) for f in found)
