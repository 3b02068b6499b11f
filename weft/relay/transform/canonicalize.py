"""CanonicalizeOps and CanonicalizeCast: the forms in which operators fuse best."""

from typing import Any

from weft import ir
from weft.relay.expr import Call, Function
from weft.relay.op.registry import op_call
from weft.relay.transform.simplify_inference import expand_to_axis
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import map_parts, operator_name, rewrite


@typed_function_pass
def canonicalize_ops(func: Function) -> Function:
    """Write the addition of a bias as ``expand_dims`` and ``add``.

    Requires: Any form; types are inferred where there are none.
    Ensures: No ``nn.bias_add``. New expressions have no types.
    Before::

        def @main(%x: Tensor[(2, 3, 4), float32], %b: Tensor[(3), float32]) { nn.bias_add(%x, %b) }

    After::

        def @main(%x: Tensor[(2, 3, 4), float32], %b: Tensor[(3), float32]) {
          add(%x, expand_dims(%b, axis=1))
        }
    Cost: Linear.
    Source: TVM's ``CanonicalizeOps``.
    """

    def rule(e: Any) -> Any:
        if operator_name(e) != "nn.bias_add" or not isinstance(e.args[0].ty, ir.TensorType):
            return e
        bias = expand_to_axis(e.args[1], e.args[0].ty.ndim, int(e.attrs.get("axis", 1)))
        made = op_call("add", e.args[0], bias)
        return Call(made.op, made.args, made.attrs, ty=e.ty, span=e.span)

    return rewrite(func, rule)


@typed_function_pass
def canonicalize_cast(func: Function) -> Function:
    """Give each user of a cast to a wider type a cast of its own, so that it fuses with all of them.

    Requires: Any form; types are inferred where there are none.
    Ensures: The same form; no cast to a wider type has several users.
    Before::

        def @main(%x: Tensor[(2), float16]) {
          %0 = cast(%x, dtype="float32");
          (exp(%0), negative(%0))
        }

    After::

        def @main(%x: Tensor[(2), float16]) {
          (exp(cast(%x, dtype="float32")), negative(cast(%x, dtype="float32")))
        }
    Cost: Linear.
    Source: TVM's ``CanonicalizeCast``.
    """
    taken: set[Call] = set()

    def own(e: Call) -> Any:
        if operator_name(e) != "cast" or not _widens(e):
            return e
        if e in taken:
            return Call(e.op, e.args, e.attrs, ty=e.ty, span=e.span)
        taken.add(e)
        return e

    return rewrite(func, lambda e: map_parts(e, own))


def _widens(e: Call) -> bool:
    source = e.args[0].ty
    return isinstance(source, ir.TensorType) and ir.DataType(e.attrs["dtype"]).bits > ir.DataType(source.dtype).bits
