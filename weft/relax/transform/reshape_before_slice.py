"""ReshapeBeforeSlice: part of the columns, taken apart into heads, is a part of the heads."""

from typing import Any

from weft import arith, op
from weft.ir import Call, Expr, Function, IRModule, as_int, function_pass, int64, shape_expr
from weft.relax.core_ops import is_op
from weft.relax.rewriter import all_bindings, rewrite_bindings, use_counts


@function_pass(kind=Function, opt_level=2)
def reshape_before_slice(func: Function, mod: IRModule) -> Function:
    """Split the columns of a tensor before some of them are taken, so that what follows can take them itself.

    A reshape is free, but nothing is fused across it: behind a slice it makes the slice a kernel of its own.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Where a slice of the last dimension is only split into whole rows of it, the tensor
        is reshaped first and the slice is one of the new dimension.
    Before::

        @R.function
        def main(x: R.Tensor((2, 12), "float32")):
            with R.dataflow():
                part = R.strided_slice(x, axes=[1], begin=[4], end=[12])
                y = R.reshape(part, (2, 4, 2))
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 12), "float32")) -> R.Tensor((2, 4, 2), "float32"):
            with R.dataflow():
                part: R.Tensor((2, 8), "float32") = R.strided_slice(x, axes=[1], begin=[4], end=[12])
                lv: R.Tensor((2, 6, 2), "float32") = R.reshape(x, (2, 6, 2))
                y = R.strided_slice(lv, axes=[1], begin=[2], end=[6], assume_inbound=True)
                R.output(y)
            return y
    Cost: Linear.
    Source: None.
    """
    slices = {b.var: b.value for b in all_bindings(func) if is_op(b.value, "strided_slice")}
    if not slices:
        return func
    uses = use_counts(func)
    shaped: dict[tuple[Expr, int], Expr] = {}

    def rule(_binding: object, value: Expr, bb: Any) -> Expr | None:
        if not is_op(value, "reshape"):
            return None
        call: Any = value
        part = slices.get(call.args[0])
        if part is None or uses.get(call.args[0]) != 1:
            return None
        places = _rows_of(part, call)
        if places is None:
            return None
        begin, end, size = places
        source = part.args[0]
        key = (source, size)
        if key not in shaped:
            *outer, width = source.ty.shape
            shaped[key] = bb.emit(
                op.make_call("reshape")(source, shape_expr((*outer, int64(as_int(width) // size), int64(size))))  # type: ignore[operator]
            )
        axis = source.ty.ndim - 1
        return op.make_call("strided_slice")(shaped[key], axes=(axis,), begin=(begin,), end=(end,), assume_inbound=True)

    return rewrite_bindings(func, mod, rule)


def _rows_of(part: Call, reshape: Call) -> tuple[int, int, int] | None:
    """Which rows of how many columns a slice has, where a reshape makes a dimension of them; else None."""
    before, after, source = reshape.args[0].ty.shape, reshape.ty.shape, part.args[0].ty  # type: ignore[attr-defined]
    if before is None or after is None or source.shape is None or len(after) != len(before) + 1:
        return None
    axis = source.ndim - 1
    axes = tuple(part.attrs.get("axes") or ())
    begins: Any = part.attrs.get("begin") or ()
    steps: Any = part.attrs.get("strides") or (1,)
    if len(axes) != 1 or axes[0] % source.ndim != axis or as_int(steps[0]) != 1:
        return None
    begin, width, size = as_int(begins[0]), as_int(source.shape[axis]), as_int(after[-1])
    length = as_int(before[axis])
    if begin is None or not width or not size or length is None or begin < 0:
        return None
    analyzer = arith.Analyzer()
    same = all(a is b or analyzer.can_prove_equal(a, b) for a, b in zip(before[:axis], after[:axis], strict=True))
    if not same or begin % size or length % size or width % size or begin + length > width:
        return None
    return begin // size, (begin + length) // size, size
