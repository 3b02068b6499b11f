"""CombineParallelMatmul: products of one tensor with several weights become one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.ir import Call, Expr, ExprVar, Function, IntImm, IRModule, TensorType, TupleGetItem, function_pass
from weft.op import make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.dpl.rewrite import replace_bindings
from weft.relax.expr import DataflowBlock, SeqExpr
from weft.relax.ordering import dependencies
from weft.relax.rename import rename_vars
from weft.relax.rewriter import replace_value

__all__ = ["combine_parallel_matmul"]

Check = Callable[[Expr, Sequence[Expr], Sequence[Expr], Mapping[Any, Expr]], bool]


@function_pass(kind=Function)
def combine_parallel_matmul(func: Function, mod: IRModule, check: Check | None = None) -> Function:
    """Multiply a tensor with several weights at once, and split the result.

    Requires
        ``relax.normalized``.
    Ensures
        ``relax.normalized``. Weights are matrices with as many rows and a known number of columns each.
    Example
        Before::

            @R.function
            def main(x: R.Tensor((2, 3), "float32"), q: R.Tensor((3, 4), "float32"), k: R.Tensor((3, 5), "float32")):
                with R.dataflow():
                    a = R.matmul(x, q)
                    b = R.matmul(x, k)
                    R.output(a, b)
                return (a, b)

        After::

            @R.function
            def main(
                x: R.Tensor((2, 3), "float32"), q: R.Tensor((3, 4), "float32"), k: R.Tensor((3, 5), "float32")
            ) -> R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((2, 5), "float32")):
                with R.dataflow():
                    lv: R.Tensor((3, 9), "float32") = R.concat((q, k), axis=1)
                    lv0: R.Tensor((2, 9), "float32") = R.matmul(x, lv)
                    lv1: R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((2, 5), "float32")) = R.split(
                        lv0, indices_or_sections=[4], axis=-1
                    )
                    a: R.Tensor((2, 4), "float32") = lv1[0]
                    b: R.Tensor((2, 5), "float32") = lv1[1]
                    R.output(a, b)
                return (a, b)

    Parameters
    ----------
        ``check``: ``check(x, weights, biases, bindings) -> bool``: whether to join these; there are no biases.
    Cost
        Linear, and for each group linear in the bindings that its weights follow from.
    Source
        TVM's ``CombineParallelMatmul``.
    """
    if not isinstance(func.body, SeqExpr):
        return func
    bb = BlockBuilder(mod)
    renamed: dict[int, Expr] = {}
    blocks: list[Any] = []
    for block in func.body.blocks:
        if renamed:
            bindings = [replace_value(b, rename_vars(b.value, renamed)) for b in block.bindings]
            block = type(block)(tuple(bindings), span=block.span)
        blocks.append(_combine(block, bb, renamed, check) if isinstance(block, DataflowBlock) else block)
    if all(a is b for a, b in zip(blocks, func.body.blocks, strict=True)):
        return func
    body = rename_vars(func.body.body, renamed)
    return func.replace(body=SeqExpr(tuple(blocks), body, span=func.body.span, ty=func.body.ty))


def _combine(block: DataflowBlock, bb: BlockBuilder, renamed: dict[int, Expr], check: Check | None) -> DataflowBlock:
    values = {b.var: b.value for b in block.bindings}
    new: dict[ExprVar, Expr] = {}
    for members in _groups(block):
        calls: list[Any] = [b.value for b in members]
        weights = [c.args[1] for c in calls]
        if check is not None and not check(calls[0].args[0], weights, [], values):
            continue
        joined = make_call("concat")(weights, axis=1)
        first = calls[0]
        both = Call(first.op, (first.args[0], joined), first.attrs, span=first.span)
        ends: list[int] = []
        for w in weights:
            ends.append((ends[-1] if ends else 0) + w.ty.shape[1].value)
        parts = make_call("split")(both, indices_or_sections=ends[:-1], axis=-1)
        new |= {b.var: TupleGetItem(parts, i) for i, b in enumerate(members)}
    return replace_bindings(block, new, bb, renamed) if new else block


def _groups(block: DataflowBlock) -> list[list[Any]]:
    """List products of the same tensor that do not need each other, and whose weights fit."""
    needs = dependencies(block.bindings)
    found: dict[Any, list[int]] = {}
    for i, b in enumerate(block.bindings):
        key = _key(b.value)
        if key is None:
            continue
        group = found.setdefault(key, [])
        if not _reaches(i, set(group), needs):
            group.append(i)
    return [[block.bindings[i] for i in g] for g in found.values() if len(g) > 1]


def _key(value: Any) -> Any:
    """Return what products have in common that can be joined, or None."""
    if not is_op(value, "matmul"):
        return None
    x, w = value.args
    ty = w.ty
    if not isinstance(ty, TensorType) or ty.shape is None or len(ty.shape) != 2 or x.ty.ndim < 2:
        return None
    rows, columns = ty.shape
    if not isinstance(rows, IntImm) or not isinstance(columns, IntImm):
        return None
    return id(x), rows.value, ty.dtype, str(value.attrs.get("out_dtype"))


def _reaches(start: int, wanted: set[int], needs: list[set[int]]) -> bool:
    """Whether a binding needs one of others."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        for j in needs[stack.pop()] - seen:
            if j in wanted:
                return True
            seen.add(j)
            stack.append(j)
    return False
