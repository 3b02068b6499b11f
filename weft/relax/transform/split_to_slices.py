"""SplitToSlices: parts of a split that only element-wise operations read become slices, which those read in place."""

from __future__ import annotations

from typing import Any

from weft.ir import Call, Expr, Function, IRModule, TensorType, TupleGetItem, as_int, function_pass
from weft.op import Fusion, make_call
from weft.relax.core_ops import is_op
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.fuse_ops import fusion_kind


@function_pass(kind=Function, opt_level=1)
def split_to_slices(func: Function, mod: IRModule) -> Function:
    """Replace the parts of a split by slices where that leaves no split behind.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. A split is replaced when all of its parts have constant places and every reader of a
        part is element-wise, so that FuseOps puts the slices into the readers' kernels. The split itself is then
        unused.
    Before::

        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            with R.dataflow():
                parts = R.split(x, indices_or_sections=2, axis=1)
                a = parts[0]
                b = parts[1]
                y = R.add(a, b)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 6), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                parts = R.split(x, indices_or_sections=2, axis=1)
                a: R.Tensor((2, 3), "float32") = R.strided_slice(x, axes=[1], begin=[0], end=[3])
                b: R.Tensor((2, 3), "float32") = R.strided_slice(x, axes=[1], begin=[3], end=[6])
                y: R.Tensor((2, 3), "float32") = R.add(a, b)
                R.output(y)
            return y
    Cost: Linear.
    Source: None.
    """
    places = _replaceable(func)
    if not places:
        return func

    def rule(binding: Any, value: Expr, _: object) -> Expr | None:
        if not isinstance(value, TupleGetItem) or value.tuple_value not in places:
            return None
        x, axis, ends = places[value.tuple_value]
        begin = ends[value.index - 1] if value.index else 0
        return make_call("strided_slice")(x, axes=(axis,), begin=(begin,), end=(ends[value.index],))

    return rewrite_bindings(func, mod, rule)


def _replaceable(func: Function) -> dict[Expr, tuple[Expr, int, list[int]]]:
    """Find the splits, by their variable: what is split, the axis, and where each part ends."""
    found: dict[Expr, tuple[Expr, int, list[int]]] = {}
    parts: dict[Expr, Expr] = {}  # a part's variable -> the split's
    for b in all_bindings(func):
        value = b.value
        if is_op(value, "split"):
            ends = _ends(value)
            if ends is not None:
                found[b.var] = (value.args[0], value.attrs["axis"] % value.args[0].ty.ndim, ends)
        elif isinstance(value, TupleGetItem) and value.tuple_value in found:
            parts[b.var] = value.tuple_value
        elif fusion_kind(b) > Fusion.BROADCAST:
            _drop(value, parts, found)
    body: Any = func.body
    _drop(getattr(body, "body", body), parts, found)
    return found


def _drop(value: Expr, parts: dict[Expr, Expr], found: dict[Expr, Any]) -> None:
    """Forget the splits that `value` reads itself, or a part of."""
    for v in variables(value):
        found.pop(parts.get(v, v), None)


def _ends(call: Call) -> list[int] | None:
    """Where the parts of a split end, when all sizes along the axis are known."""
    types = getattr(call.ty, "fields", ())
    if not types or any(not isinstance(t, TensorType) or t.shape is None for t in types):
        return None
    axis, ends, at = call.attrs["axis"] % types[0].ndim, list[int](), 0
    for t in types:
        size = as_int(t.shape[axis])
        if size is None:
            return None
        at += size
        ends.append(at)
    return ends
