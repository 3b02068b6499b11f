"""DefuseOps: functions that stand for one kernel become the operators that they are made of."""

from typing import Any

from weft.ir import IRModule, module_pass
from weft.relay.expr import Call, Expr, Function, Var
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import rewrite, substitute


@module_pass
def defuse_ops(mod: IRModule) -> IRModule:
    """Put the bodies of functions with the attribute ``Primitive`` in the place of their calls.

    Requires: Any form.
    Ensures: No call of such a function that stands at the call or is bound by a let; values stay.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          %0 = fn (%p0: Tensor[(2), float32], Primitive=1) -> Tensor[(2), float32] { exp(negative(%p0)) };
          %0(%x)
        }

    After::

        def @main(%x: Tensor[(2), float32]) { exp(negative(%x)) }
    Cost: Linear.
    Source: TVM's ``DefuseOps``.
    """
    bound: dict[Var, Any] = {}

    def rule(e: Expr) -> Any:
        if type(e) is not Call:
            return e
        func: Any = bound.get(e.op) if type(e.op) is Var else e.op
        if type(func) is not Function or not is_primitive(func) or "Compiler" in func.attrs:
            return e
        return substitute(func.body, dict(zip(func.params, e.args, strict=True)))

    return mod.with_functions(
        {
            v: rewrite(f, rule, on_let=bound.__setitem__) if type(f) is Function and not is_primitive(f) else f
            for v, f in mod.items()
        }
    )
