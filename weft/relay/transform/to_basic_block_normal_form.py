"""ToBasicBlockNormalForm: what several scopes use is named in the scope around them."""

from weft.ir import IRModule, function_pass, with_deep_stack
from weft.relay.analysis.scopes import Scopes
from weft.relay.expr import Call, Constant, Expr, Function, RefCreate, RefRead, RefWrite
from weft.relay.transform.to_a_normal_form import is_primitive, name_values
from weft.relay.walk import subexpressions


@function_pass(kind=Function)
def to_basic_block_normal_form(func: Function, mod: IRModule) -> Function:
    """Bind what is shared across bodies of functions, branches or clauses, where it is computed.

    Requires: Any form.
    Ensures: Each body is a graph of its own: it refers to what other bodies compute by name. Functions with references
        get names for all that may have effects, so that their order stays.
    Before::

        def @main(%x: Tensor[(2), float32], %c: bool) {
          %0 = add(%x, %x);
          if (%c) { multiply(%0, %0) } else { negative(%0) }
        }

    After::

        def @main(%x: Tensor[(2), float32], %c: bool) {
          let %a = add(%x, %x);
          if (%c) { multiply(%a, %a) } else { negative(%a) }
        }
    Cost: Linear.
    Source: TVM's ``ToBasicBlockNormalForm``.
    """
    if is_primitive(func):
        return func
    scopes = Scopes(func)
    ordered = any(isinstance(e, (RefCreate, RefRead, RefWrite)) for e in subexpressions(func))

    def named(e: Expr) -> bool:
        if e in scopes.crossing:
            return type(e) is not Constant
        return ordered and isinstance(e, (RefCreate, RefRead, RefWrite, Call))

    return with_deep_stack(lambda: name_values(func, scopes, named))
