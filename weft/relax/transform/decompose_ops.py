"""DecomposeOps: operators that declare how they are made of simpler ones are replaced by those."""

from weft.ir import Attrs, Call, Expr, Function, IRModule, Op, TensorType, TupleGetItem, as_int, function_pass
from weft.op import get_op_def, make_call
from weft.relax.core_ops import CORE_OPS, is_op
from weft.relax.rewriter import rewrite_bindings


@function_pass(kind=Function, opt_level=0)
def decompose_ops(
    func: Function, mod: IRModule, *, whole_attention: bool = False, wide_convolutions: bool = False
) -> Function:
    """Replace operators by their ``decompose`` declaration.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; no operator with a decomposition that applies.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.nn.dropout(x)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                mask = R.ones_like(x)
                y = (x, mask)
                R.output(y)
            return y

    Options:
        ``whole_attention``: leaves attention of float32 heads of constant size, for targets that have a kernel for it.
        ``wide_convolutions``: computes convolutions of float16 on float32 tensors, for targets that convert elements
        whenever they are multiplied: each is read for every tap and every tile of channels, and converted once here.
    Cost: Linear.
    Source: TVM's ``DecomposeOpsForInference``.
    """

    def rule(_binding: object, value: Expr, _bb: object) -> Expr | None:
        if isinstance(value, TupleGetItem):
            return value
        if (
            not isinstance(value, Call)
            or not isinstance(value.op, Op)
            or value.op.name.removeprefix("relax.") in CORE_OPS
        ):
            return None
        if whole_attention and is_op(value, "nn.attention") and _has_kernel(value):
            return None
        if (
            wide_convolutions
            and value.op.name.startswith("relax.nn.conv")
            and getattr(value.ty, "dtype", "") == "float16"
        ):
            return _wide_convolution(value)
        decompose = getattr(get_op_def(value.op), "decompose", None)
        return decompose(*value.args, **dict(value.attrs.items)) if decompose is not None else None

    return rewrite_bindings(func, mod, rule)


def _wide_convolution(call: Call) -> Expr | None:
    """Write a convolution of float16 tensors with operands and sums of float32."""
    types = [a.ty for a in call.args]
    if any(not isinstance(t, TensorType) or t.dtype != "float16" for t in types):
        return None
    cast = make_call("astype")
    wide = Attrs.of(dict(call.attrs.items) | {"out_dtype": "float32"})
    return cast(
        Call(call.op, tuple(cast(a, dtype="float32") for a in call.args), wide, span=call.span), dtype="float16"
    )


def _has_kernel(call: Call) -> bool:
    """Whether an attention is one kernel: its heads are float32 and their sizes known."""
    types = [a.ty for a in call.args[:3]]
    return all(t.shape is not None and t.dtype == "float32" and as_int(t.shape[3]) is not None for t in types)
