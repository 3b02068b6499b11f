"""FastMath: functions of one element become the operators that may be less exact."""

from typing import Any

from weft.ir import IRModule, Op, module_pass
from weft.relay.expr import Call, Function
from weft.relay.walk import rewrite

_FAST = {"exp": "fast_exp", "erf": "fast_erf", "tanh": "fast_tanh", "nn.softmax": "nn.fast_softmax"}


@module_pass(opt_level=4)
def fast_math(mod: IRModule) -> IRModule:
    """Call ``fast_exp``, ``fast_erf``, ``fast_tanh`` and ``nn.fast_softmax`` in place of the exact operators.

    Requires: Any form.
    Ensures: The same form.
    Before::

        def @main(%x: Tensor[(2), float32]) { exp(%x) }

    After::

        def @main(%x: Tensor[(2), float32]) { fast_exp(%x) }
    Cost: Linear.
    Source: TVM's ``FastMath``.
    """

    def rule(e: Call) -> Any:
        fast = _FAST.get(e.op.name) if type(e) is Call and isinstance(e.op, Op) else None
        return Call(Op.get(fast), e.args, e.attrs, span=e.span, ty=e.ty) if fast else e

    return mod.with_functions({v: rewrite(f, rule) if type(f) is Function else f for v, f in mod.items()})
