"""EliminateCommonSubexpr: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from weft import ir
from weft.relay.analysis.scopes import Scope, Scopes
from weft.relay.expr import Call, Constant, Function, Let, TupleGetItem, Var
from weft.relay.op.registry import get, has
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import map_parts

_SMALL = 256  # bytes: larger constants are compared by identity


@ir.function_pass(kind=Function)
def eliminate_common_subexpr(func: Function, mod: ir.IRModule, fskip: Callable[[Any], bool] | None = None) -> Function:
    """Compute calls of operators with equal arguments and attributes once, and equal projections.

    Parameters
    ----------
    fskip : callable, optional
        ``fskip(expr)`` says that an expression stays as it is.

    Requires: Any form.
    Ensures: The same form. What a scope computes takes the place of what is equal in it or within it, not beside it.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          let %a = add(%x, 1f);
          let %b = add(%x, 1f);
          multiply(%a, %b)
        }

    After::

        def @main(%x: Tensor[(2), float32]) {
          let %a = add(%x, 1f);
          multiply(%a, %a)
        }
    Cost: Linear, times the depth of scopes.
    Source: TVM's ``EliminateCommonSubexpr``; value numbering.
    """
    if is_primitive(func):
        return func
    scopes = Scopes(func)
    return ir.with_deep_stack(lambda: _Numbering(scopes, fskip).go(func))


class _Numbering:
    """Numbers the values of one function: equal ones are one node."""

    def __init__(self, scopes: Scopes, skip: Callable[[Any], bool] | None) -> None:
        self.scopes, self.skip = scopes, skip
        self.tables: dict[Scope, dict[Hashable, Any]] = {}
        self.memo: dict[ir.Expr, Any] = {}
        self.names: dict[ir.Expr, Var] = {}  # of values whose lets are around
        self.same: dict[Var, Var] = {}  # variables that are left out, and those that stand for them

    def go(self, e: Any) -> Any:
        """Return what stands for an expression."""
        if type(e) is Var:
            return self.same.get(e, e)
        if e in self.memo:
            return self.memo[e]
        if e not in self.scopes.shared:
            result = self.memo[e] = self.lets(e)
            return result
        around, self.names = self.names, {}  # a shared expression does not know which lets are around it
        result = self.memo[e] = self.lets(e)
        self.names = around
        return result

    def lets(self, e: ir.Node) -> Any:
        chain: list[tuple[Let, Any]] = []
        while type(e) is Let and (not chain or e not in self.scopes.shared):
            value = self.go(e.value)
            named = self.names.get(value)
            if named is not None or type(value) is Var:
                self.same[e.var] = named or value
            else:
                chain.append((e, value))
                if self.key(value) is not None:
                    self.names[value] = e.var
            if not chain:
                return self.go(e.body)
            e = e.body
        result = self.go(e) if chain else self.number(e)
        for let, value in reversed(chain):
            self.names.pop(value, None)
            result = ir.with_fields(let, value=value, body=result)
        return result

    def number(self, e: ir.Node) -> Any:
        """Return the value that equals one which is no let, or itself."""
        new = map_parts(e, self.go)
        key = None if self.skip is not None and self.skip(new) else self.key(new)
        if key is None:
            return new
        home: Scope | None = self.scopes.of[e]
        scope = home
        while scope is not None:
            found = self.tables.get(scope, {}).get(key)
            if found is not None and ir.structural_equal(getattr(found, "attrs", None), getattr(new, "attrs", None)):
                return found if e in self.scopes.shared else self.names.get(found, found)
            scope = scope.outer
        self.tables.setdefault(home, {})[key] = new  # type: ignore[arg-type]
        return new

    def key(self, e: ir.Node) -> Hashable:
        """Return what equal values have in common; None for what is never merged."""
        if type(e) is TupleGetItem:
            return ("item", e.tuple_value, e.index)
        if type(e) is not Call or not isinstance(e.op, ir.Op) or not has(e.op.name) or not get(e.op).pure:
            return None
        attrs = ir.structural_hash(e.attrs) if e.attrs else 0
        return (e.op.name, attrs, *map(_argument, e.args))


def _argument(e: ir.Expr) -> Hashable:
    if type(e) is Constant:
        array = e.data.numpy()
        if array.nbytes <= _SMALL:
            return (str(e.data.dtype), array.shape, array.tobytes())
    return e
