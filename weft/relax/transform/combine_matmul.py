"""CombineParallelMatmul: products of one tensor with several weights become one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from weft import ir
from weft.ir import Constant, Expr, ExprVar, TensorType
from weft.op import make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.dpl.rewrite import replace_bindings
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import DataflowBlock, SeqExpr
from weft.relax.ordering import dependencies
from weft.relax.rename import rename_block, rename_vars
from weft.relax.rewriter import use_counts
from weft.relax.transform.panels import shape_of

Check = Callable[[Expr, Sequence[Expr], Sequence[Expr], Mapping[Any, Expr]], bool]


@ir.function_pass(kind=ir.Function)
def combine_parallel_matmul(
    func: ir.Function, mod: ir.IRModule, check: Check | None = None, for_attention: bool = False
) -> ir.Function:
    """Multiply a tensor with several weights at once, and split the result.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Weights have as many rows and equal batches, and all but one a known number of
        columns. Where each product is only used to add a vector to its rows, the joined vectors are added before the
        split, and an activation that all of them go through is computed there.
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
                lv0: R.Tensor((2, 9), "float32") = R.matmul(x, lv, out_dtype="float32")
                lv1 = R.split(lv0, indices_or_sections=[4], axis=1)
                a: R.Tensor((2, 4), "float32") = lv1[0]
                b: R.Tensor((2, 5), "float32") = lv1[1]
                R.output(a, b)
            return (a, b)

    Options:
        ``check``: ``check(x, weights, biases, bindings) -> bool``: whether to join these, where biases are the vectors
        that are added, if any. ``for_attention``: only what :func:`fuse_attention` reads where it lies: products with
        constant weights and biases, each of which becomes heads and nothing else.
    Cost: Linear, and for each group linear in the bindings that its weights follow from.
    Source: TVM's ``CombineParallelMatmul``.
    """
    if not isinstance(func.body, SeqExpr):
        return func
    bb, uses, mutable = BlockBuilder(mod), use_counts(func), mutable_variables(func, mod)
    renamed: dict[Expr, Expr] = {}
    blocks: list[Any] = []
    for block in func.body.blocks:
        block = rename_block(block, renamed)
        if isinstance(block, DataflowBlock):
            found = _heads(block, uses) if for_attention else None
            block = _combine(block, bb, renamed, check, uses, found, mutable)
        blocks.append(block)
    body = rename_vars(func.body.body, renamed)
    return func.replace(body=ir.with_fields(func.body, blocks=tuple(blocks), body=body))


def _combine(
    block: DataflowBlock,
    bb: BlockBuilder,
    renamed: dict[Expr, Expr],
    check: Check | None,
    uses: Mapping[Expr, int],
    only: set[Expr] | None,
    mutable: set[ExprVar],
) -> DataflowBlock:
    """Join products of a block; `only` has the variables that may come from a joint one, `mutable` what changes."""
    values = {b.var: b.value for b in block.bindings}
    sums = {v: end for v, end in _sums(block, uses).items() if end[1] not in mutable}
    steps = _activations(block, uses)
    new: dict[ExprVar, Expr] = {}
    gone: set[Expr] = set()
    for members in _groups(block, mutable):
        ends = [sums.get(b.var) for b in members]
        biases = [bias for _, bias in ends if bias is not None] if None not in ends else []  # type: ignore[misc]
        results = [end[0] for end in ends] if biases else [b.var for b in members]  # type: ignore[index]
        calls: list[Any] = [b.value for b in members]
        weights = [c.args[1] for c in calls]
        if only is not None and not all(v in only for v in results):
            continue
        if only is not None and not all(isinstance(v, Constant) for v in (*weights, *biases)):
            continue
        if check is not None and not check(calls[0].args[0], weights, biases, values):
            continue
        first, ty = calls[0], calls[0].ty
        attrs = first.attrs if only is not None else first.attrs.with_(out_dtype=ty.dtype)
        joined = make_call("concat")(weights, axis=weights[0].ty.ndim - 1)
        both = ir.Call(first.op, (first.args[0], joined), attrs, span=first.span)
        if biases:
            gone.update(b.var for b in members)
            both = make_call("add")(both, make_call("concat")(biases, axis=0))
        after = [steps.get(v) for v in results] if only is None else [None]
        if None not in after and len({c.op for _, c in after}) == 1:  # type: ignore[misc]
            gone.update(results)
            step: Any = after[0][1]  # type: ignore[index]
            both, results = ir.Call(step.op, (both,), step.attrs, span=step.span), [v for v, _ in after]  # type: ignore[misc]
        places = list(accumulate(w.ty.shape[-1].value for w in weights[:-1]))
        parts = make_call("split")(both, indices_or_sections=places, axis=ty.ndim - 1 if only is None else -1)
        new |= {v: ir.TupleGetItem(parts, i) for i, v in enumerate(results)}
    if not new:
        return block
    made = replace_bindings(block, new, bb, renamed)
    return type(made)(tuple(b for b in made.bindings if b.var not in gone), span=made.span)


_ACTIVATIONS = frozenset({"relax.nn.relu", "relax.nn.gelu", "relax.nn.silu"})


def _activations(block: DataflowBlock, uses: Mapping[Expr, int]) -> dict[Expr, tuple[ExprVar, ir.Call]]:
    """Of values whose only use is an activation: its result, and its call."""
    calls = [(b.var, b.value) for b in block.bindings if isinstance(b.value, ir.Call)]
    return {
        c.args[0]: (v, c) for v, c in calls if getattr(c.op, "name", "") in _ACTIVATIONS and uses.get(c.args[0]) == 1
    }


def _sums(block: DataflowBlock, uses: Mapping[Expr, int]) -> dict[Expr, tuple[ExprVar, Expr]]:
    """Of products whose only use is to add a vector to their rows: the sum, and the vector."""
    inside = {b.var for b in block.bindings}
    found: dict[Expr, tuple[ExprVar, Expr]] = {}
    for b in block.bindings:
        if not is_op(b.value, "add"):
            continue
        args: Any = b.value.args  # type: ignore[attr-defined]
        for product, bias in (args, args[::-1]):
            if product not in inside or uses.get(product) != 1 or bias in inside:
                continue
            wide, narrow = shape_of(product), shape_of(bias)
            if not wide or narrow is None or len(narrow) != 1 or product.ty.dtype != bias.ty.dtype:
                continue
            if isinstance(narrow[0], ir.IntImm) and narrow[0].value == ir.as_int(wide[-1]):
                found[product] = (b.var, bias)
    return found


def _heads(block: DataflowBlock, uses: Mapping[Expr, int]) -> set[Expr]:
    """The rows of features whose only use is a reshape to heads."""
    reshaped: list[Any] = [b for b in block.bindings if is_op(b.value, "reshape")]
    pairs = [(b.value.args[0], b.var) for b in reshaped]
    return {s for s, made in pairs if uses.get(s) == 1 and [len(shape_of(e) or ()) for e in (s, made)] == [3, 4]}


def _groups(block: DataflowBlock, mutable: set[ExprVar]) -> list[list[Any]]:
    """List products of the same tensor that do not need each other, and whose weights fit and stay as they are."""
    needs = dependencies(block.bindings)
    found: dict[Any, list[int]] = {}
    for i, b in enumerate(block.bindings):
        key = _key(b.value)
        if key is None or not is_mergeable(b.value, b.var, mutable):
            continue
        group = found.setdefault(key, [])
        if not group or set(ir.reached(needs[i], lambda j: needs[j])).isdisjoint(group):
            group.append(i)
    return [[block.bindings[i] for i in g] for g in (_splittable(g, block) for g in found.values()) if len(g) > 1]


def _splittable(group: list[int], block: DataflowBlock) -> list[int]:
    """Put those with a known number of columns first; of the others, one can be what is left behind them."""
    last: Any = {i: block.bindings[i].value.args[1].ty.shape[-1] for i in group}  # type: ignore[attr-defined]
    known = [i for i in group if isinstance(last[i], ir.IntImm)]
    return known + [i for i in group if i not in known][:1]


def _key(value: Any) -> Any:
    """Return what products have in common that can be joined, or None."""
    if not is_op(value, "matmul"):
        return None
    x, w = value.args
    ty = w.ty
    if not isinstance(ty, TensorType) or ty.shape is None or len(ty.shape) < 2 or x.ty.ndim < 2:
        return None
    *batch, rows, _ = ty.shape
    if not all(isinstance(d, ir.IntImm) for d in (*batch, rows)):
        return None
    return x, tuple(ir.as_int(d) for d in (*batch, rows)), ty.dtype, str(value.attrs.get("out_dtype"))
