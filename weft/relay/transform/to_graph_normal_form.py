"""ToGraphNormalForm: names of intermediate results become edges of a graph."""

from typing import Any

from weft.ir import IRModule, module_pass
from weft.relay.expr import Expr, Function, Let, Var
from weft.relay.transform.effects import Effects
from weft.relay.transform.free import Captures
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import ATOMS, rewrite, subexpressions


@module_pass
def to_graph_normal_form(mod: IRModule) -> IRModule:
    """Put values of lets where their variables stand, as shared expressions.

    Requires: Any form.
    Ensures: No lets, but of values that have effects, of recursive functions, and of values that only functions within
        the body use, who would compute them again at each call.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          let %a = add(%x, %x);
          let %b = multiply(%a, %a);
          %b
        }

    After::

        def @main(%x: Tensor[(2), float32]) {
          %0 = add(%x, %x);
          multiply(%0, %0)
        }
    Cost: Linear.
    Source: TVM's ``ToGraphNormalForm``.
    """
    effects = Effects(mod)
    return mod.with_functions(
        {v: _graph(f, effects) if type(f) is Function and not is_primitive(f) else f for v, f in mod.items()}
    )


def _graph(func: Function, effects: Effects) -> Function:
    captures = Captures()

    def stays(var: Var, value: Expr) -> bool:
        return effects.any(value) or (type(value) is Function and var in captures.variables(value))

    values: dict[Var, Any] = {}
    functions, seen = [func], {func}
    while functions:
        bound: dict[Var, Any] = {}
        used: set[Var] = set()
        for e in subexpressions(functions.pop().body, lambda e: type(e) is not Function):
            if type(e) is Let:
                bound[e.var] = e.value
            elif type(e) is Var:
                used.add(e)
            elif type(e) is Function and e not in seen:
                seen.add(e)
                functions.append(e)
        for var, value in bound.items():
            if isinstance(value, ATOMS) or (var in used and not stays(var, value)):
                values[var] = value
    return rewrite(func, lambda e: e.body if type(e) is Let and e.var in values else e, instead=values)
