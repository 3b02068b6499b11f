"""InlinePrimitives: functions that stand for kernels are called where they are known."""

from collections import Counter
from typing import Any

from weft.ir import IRModule, function_pass
from weft.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import parts, rewrite, subexpressions


@function_pass(kind=Function)
def inline_primitives(func: Function, mod: IRModule) -> Function:
    """Put primitive functions, and names of functions, where variables that stand for them are called.

    Requires: Any form.
    Ensures: The same form, less A-normal: calls of primitive functions hold the function itself. Lets of such functions
        that nothing else uses are gone.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          let %f = fn (%y: Tensor[(2), float32], Primitive=1) { add(%y, %y) };
          let %z = %f(%x);
          %z
        }

    After::

        def @main(%x: Tensor[(2), float32]) {
          let %z = fn (%y: Tensor[(2), float32], Primitive=1) { add(%y, %y) }(%x);
          %z
        }
    Cost: Linear.
    Source: TVM's ``InlinePrimitives``.
    """
    if is_primitive(func):
        return func
    known: dict[Var, Any] = {}

    def learn(var: Var, value: Expr) -> None:
        if type(value) in (Var, GlobalVar) or (type(value) is Function and is_primitive(value)):
            known[var] = known.get(value, value) if type(value) is Var else value

    def rule(e: Any) -> Any:
        target: Any = known.get(e.op) if type(e) is Call and type(e.op) is Var else None
        if type(target) not in (Function, GlobalVar):
            return e
        return Call(target, e.args, e.attrs, e.ty_args, ty=e.ty, span=e.span)

    inlined = rewrite(func, rule, on_let=learn)
    if inlined is func:
        return func
    uses = Counter(p for e in subexpressions(inlined) for p in parts(e) if type(p) is Var)
    gone: set[Var] = set()
    for e in reversed([e for e in subexpressions(inlined) if type(e) is Let and e.var in known]):
        if not uses[e.var]:
            gone.add(e.var)
            uses.subtract([e.value] if type(e.value) is Var else [])
    return rewrite(inlined, lambda e: e.body if type(e) is Let and e.var in gone else e)
