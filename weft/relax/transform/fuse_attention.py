"""FuseAttention: products around a softmax, as exporters write attention, become one operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft import arith, ir, op
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, DataflowVar, Var
from weft.relax.rewriter import all_bindings, rewrite_bindings, use_counts

_HEADS_LAST = (0, 2, 1, 3)
_PARTS_FIRST = (2, 0, 3, 1, 4)
_ABSENT: Any = None
_NOTHING = -1e30
"""Scores filled with less than this get no weight whatever is added to them."""


@ir.function_pass(kind=ir.Function, opt_level=2)
def fuse_attention(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Replace ``softmax(q @ k.T * scale + mask) @ v`` by one operator that reads q, k and v where they lie.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Products of float32 tensors with heads of constant sizes, whose scores nothing else
        uses, are ``nn.attention_heads``, or ``nn.attention_past`` where keys and values are those of a cache and new
        ones joined. Transposes, reshapes to heads, slices of a joint product and repeated heads of keys and values that
        only lead there are left without a use. Weights may be replaced by 0 where the one mask that is added to finite
        scores hides all keys, or where they are no numbers, which is taken to mean the same: scores that are NaN
        themselves stay visible, as in PyTorch's attention, which exporters write so.
    Before::

        @R.function
        def main(q: R.Tensor((1, 2, 3, 4), "float32"), k: R.Tensor((1, 2, 5, 4), "float32"),
                 v: R.Tensor((1, 2, 5, 4), "float32")):
            with R.dataflow():
                kt = R.permute_dims(k, axes=(0, 1, 3, 2))
                s = R.matmul(q, kt)
                w = R.nn.softmax(s, axis=-1)
                o = R.matmul(w, v)
                R.output(o)
            return o

    After::

        @R.function
        def main(q: R.Tensor((1, 2, 3, 4), "float32"), k: R.Tensor((1, 2, 5, 4), "float32"),
                 v: R.Tensor((1, 2, 5, 4), "float32")) -> R.Tensor((1, 2, 3, 4), "float32"):
            with R.dataflow():
                kt: R.Tensor((1, 2, 4, 5), "float32") = R.permute_dims(k, axes=(0, 1, 3, 2))
                s: R.Tensor((1, 2, 3, 5), "float32") = R.matmul(q, kt)
                w: R.Tensor((1, 2, 3, 5), "float32") = R.nn.softmax(s, axis=-1)
                lv: R.Tensor((1, 3, 2, 4), "float32") = R.nn.attention_heads(
                    q, k, v, num_heads=2, num_key_heads=2, size=4, value_size=4, scale=1.0, unseen="nan"
                )
                o: R.Tensor((1, 2, 3, 4), "float32") = R.permute_dims(lv, axes=(0, 2, 1, 3))
                R.output(o)
            return o
    Cost: Linear.
    Source: Dao et al., 2022, for why scores should never be stored; ONNX Runtime's fusion of the same name.
    """
    state = _Fusion(func)
    return rewrite_bindings(func, mod, state.rule)


@dataclass
class _Scores:
    """What is found between the first product and the softmax."""

    scale: float = 1.0
    masks: list[_Mask] = field(default_factory=list)
    query: Any = None
    key: Any = None


@dataclass
class _Mask:
    """Something added to scores; or, with `fill`, a condition on which they are kept (or not, if `inverted`)."""

    expr: Any
    fill: float | None = None
    inverted: bool = False


@dataclass
class _Operand:
    """A tensor that holds heads: rows of them (three dimensions) from a column on, or heads before positions.

    Each head stands for `shared` in a row.
    """

    tensor: Any
    heads: int
    size: int
    offset: int = 0
    shared: int = 1


@dataclass
class _Fusion:
    """The values of a function by their variables, how often each is used, and the results that are heads-last."""

    func: ir.Function
    values: dict[ir.Expr, ir.Expr] = field(default_factory=dict)
    uses: dict[ir.Expr, int] = field(default_factory=dict)
    heads_last: dict[ir.Expr, ir.Expr] = field(default_factory=dict)
    analyzer: arith.Analyzer = field(default_factory=arith.Analyzer)

    def __post_init__(self) -> None:
        self.values = {b.var: b.value for b in all_bindings(self.func)}
        self.uses = dict(use_counts(self.func))

    def rule(self, binding: Binding, value: Any, bb: BlockBuilder) -> ir.Expr | None:
        """Rewrite one binding."""
        self.values[binding.var] = value
        if is_op(value, "permute_dims") and tuple(value.attrs.get("axes") or ()) == _HEADS_LAST:
            return self.heads_last.get(value.args[0])
        if not is_op(value, "matmul") or value.attrs.get("out_dtype"):
            return None
        return self.fused(binding.var, value, bb)

    def value_of(self, expr: ir.Expr) -> Any:
        """What a variable is bound to; any other expression is itself."""
        return self.values.get(expr)

    def alone(self, expr: ir.Expr) -> bool:
        """Whether an expression is used once."""
        return self.uses.get(expr, 0) == 1

    # --- the whole ---

    def fused(self, var: Var, product: Any, bb: BlockBuilder) -> ir.Expr | None:
        """Return attention in place of its second product, or None where it is none."""
        weights, data = product.args
        softmax, ty, test, uses = self.value_of(weights), product.ty, _ABSENT, 1
        if is_op(softmax, "where") and _number(softmax.args[1]) == 0 and self.alone(weights):
            test, _, weights = softmax.args
            if not self.same_shape(weights, softmax):
                return None
            softmax, uses = self.value_of(weights), 2 if self.alone(test) and self.tests_nan(test, weights) else 1
        if not is_op(softmax, "nn.softmax") or self.uses.get(weights) != uses or not isinstance(ty, ir.TensorType):
            return None
        if ty.shape is None or len(ty.shape) not in (3, 4) or ty.dtype != "float32":
            return None
        if softmax.attrs.get("axis", -1) % len(ty.shape) != len(ty.shape) - 1:
            return None
        scores = self.scores(softmax.args[0], _Scores())
        unseen = "nan" if scores is None or test is None else "zero" if uses == 2 else self.replaced(test, scores.masks)
        if scores is None or unseen is None:
            return None
        q, (k, by), v = self.operand(scores.query, bb), self.keys(scores.key, bb), self.operand(data, bb)
        if q is None or k is None or v is None or not self.agree(q, k, v):
            return None
        mask = self.mask(scores.masks, len(ty.shape), bb)
        if mask is None:
            return None
        bias, fill = mask
        cached = self.cached(k, v, bb)
        past: tuple[Any, ...] = ()
        if cached is not None:
            k, v, past = cached
        out = bb.emit(
            op.make_call("nn.attention_past" if past else "nn.attention_heads")(
                q.tensor,
                k.tensor,
                v.tensor,
                *past,
                *([bias] if bias is not None else []),
                num_heads=q.heads,
                num_key_heads=k.heads,
                size=q.size,
                value_size=v.size,
                offsets=(q.offset, k.offset, v.offset),
                scale=scores.scale * by,
                fill=fill,
                unseen=unseen,
            )
        )
        if len(ty.shape) == 3:
            return op.make_call("reshape")(out, ir.shape_expr(ty.shape))
        turned = op.make_call("permute_dims")(out, axes=_HEADS_LAST)
        if not isinstance(var, DataflowVar):
            return turned
        first = bb.emit(turned)
        self.heads_last[first] = out
        return first

    def agree(self, q: _Operand, k: _Operand, v: _Operand) -> bool:
        """Whether heads and batches of the operands belong together."""
        batches = [x.tensor.ty.shape[0] for x in (q, k, v)]
        return (
            q.shared == 1
            and k.heads == v.heads
            and q.heads % k.heads == 0
            and k.shared == v.shared
            and (k.shared == q.heads // k.heads or (k.shared == 1 and k.heads == 1))
            and q.size == k.size
            and min(q.size, v.size) > 0
            and all(self.same(b, batches[0]) for b in batches[1:])
        )

    def tests_nan(self, test: ir.Expr, weights: ir.Expr) -> bool:
        """Whether a test is one for weights that are no numbers, as those of finite scores are where no key is seen."""
        value = self.value_of(test)
        return is_op(value, "isnan") and value.args[0] is weights

    def replaced(self, test: Any, masks: list[_Mask]) -> str | None:
        """How queries without a key fare if weights are 0 where `test` holds; None if it asks for anything else."""
        if isinstance(test, ir.Constant):
            return None if test.data.numpy().any() else "nan"
        value = self.value_of(test)
        if not is_op(value, "equal") or len(masks) != 1 or masks[0].fill is not None:
            return None
        for top, number in (value.args, value.args[::-1]):
            found = self.value_of(top)
            if _number(number) == -np.inf and is_op(found, "max") and found.args[0] is masks[0].expr:
                axes, last = found.attrs.get("axis"), found.args[0].ty.ndim - 1
                if found.attrs.get("keepdims") and axes is not None and [int(a) % (last + 1) for a in axes] == [last]:
                    return "zero"
        return None

    def same(self, a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
        """Whether two extents are provably equal."""
        return a is b or self.analyzer.can_prove_equal(a, b)

    # --- scores ---

    def scores(self, expr: ir.Expr, found: _Scores) -> _Scores | None:
        """Go from the softmax back to the first product."""
        value = self.value_of(expr)
        if not isinstance(value, ir.Call) or not self.alone(expr):
            return None
        if is_op(value, "matmul"):
            found.query, by = self.unscaled(value.args[0])
            found.key, also = self.unscaled(value.args[1])
            found.scale *= by * also
            return None if value.attrs.get("out_dtype") else found
        data, factor = self.scaled_once(value)
        if data is not None:
            found.scale *= factor
            return self.scores(data, found) if self.same_shape(data, value) else None
        if found.scale != 1.0:
            return None  # a scaled mask
        for data, mask in self.masked(value):
            if self.same_shape(data, value):
                inner = self.scores(data, _Scores())
                if inner is not None:
                    inner.masks = [mask, *inner.masks]
                    return inner
        return None

    def same_shape(self, a: ir.Expr, b: ir.Expr) -> bool:
        """Whether two tensors provably have one shape."""
        x, y = getattr(a.ty, "shape", None), getattr(b.ty, "shape", None)
        return x is not None and y is not None and len(x) == len(y) and all(map(self.same, x, y))

    def masked(self, value: Any) -> list[tuple[Any, _Mask]]:
        """List the ways to see a value as masked scores."""
        if is_op(value, "add"):
            a, b = value.args
            return [(a, _Mask(b)), (b, _Mask(a))]
        if is_op(value, "where"):
            test, a, b = value.args
            found = []
            if _number(b) is not None:
                found.append((a, _Mask(test, _number(b))))
            if _number(a) is not None:
                found.append((b, _Mask(test, _number(a), True)))
            return found
        return []

    def scaled_once(self, value: Any) -> tuple[Any, float]:
        """Split a product with a number, or a quotient by one, into the tensor and the factor; None for others."""
        if is_op(value, "multiply") or is_op(value, "divide"):
            by = _number(value.args[1])
            if by:
                return value.args[0], by if is_op(value, "multiply") else 1.0 / by
            by = _number(value.args[0])
            if by is not None and is_op(value, "multiply"):
                return value.args[1], by
        return None, 1.0

    def unscaled(self, expr: ir.Expr) -> tuple[Any, float]:
        """Leave out products with numbers."""
        factor, value = 1.0, self.value_of(expr)
        while isinstance(value, ir.Call):
            data, by = self.scaled_once(value)
            if data is None or not self.same_shape(data, value):
                break
            expr, factor, value = data, factor * by, self.value_of(data)
        return expr, factor

    def mask(self, masks: list[_Mask], ndim: int, bb: BlockBuilder) -> tuple[ir.Expr | None, float | None] | None:
        """Make one bias of all masks, and what it fills in if it is a condition; None where they do not join."""
        added: list[ir.Expr] = []
        kept: list[_Mask] = []
        for m in masks:
            if m.fill is None:
                if not isinstance(m.expr, ir.Constant) or m.expr.data.numpy().any():
                    added.append(m.expr)
            elif m.fill <= _NOTHING:  # no score shows beside it
                zero, fill = ir.constant(0.0, "float32"), ir.constant(m.fill, "float32")
                both = (fill, zero) if m.inverted else (zero, fill)
                added.append(bb.emit(op.make_call("where")(m.expr, *both)))
            else:
                kept.append(m)
        if len(kept) > 1 or (kept and added):
            return None
        if kept:
            test = bb.emit(op.make_call("logical_not")(kept[0].expr)) if kept[0].inverted else kept[0].expr
            return self.four_dims(test, ndim, bb), kept[0].fill
        bias = added[0] if added else None
        for other in added[1:]:
            bias = bb.emit(op.make_call("add")(bias, other))
        return (None if bias is None else self.four_dims(bias, ndim, bb)), None

    def four_dims(self, bias: Any, ndim: int, bb: BlockBuilder) -> ir.Expr:
        """Give a bias of (batch, queries, keys) a dimension for heads."""
        shape = bias.ty.shape
        if ndim == 4 or len(shape) < 3:
            return bias
        return bb.emit(op.make_call("reshape")(bias, ir.shape_expr((shape[0], ir.int64(1), *shape[1:]))))

    # --- operands ---

    def operand(self, expr: ir.Expr, bb: BlockBuilder) -> _Operand | None:
        """See (batch, heads, positions, size), or (batch, positions, size), as heads in place."""
        shape = getattr(expr.ty, "shape", None)
        if shape is None or ir.as_int(shape[-1]) is None or expr.ty.dtype != "float32":
            return None
        if len(shape) == 3:
            return _Operand(expr, 1, ir.as_int(shape[2]) or 0)
        value = self.value_of(expr)
        if is_op(value, "permute_dims") and tuple(value.attrs.get("axes") or ()) == _HEADS_LAST:
            return self.rows(value.args[0], bb)
        repeated = self.repeated(value)
        if repeated is not None:
            inner, times = repeated
            found = self.operand(inner, bb)
            return None if found is None or found.shared != 1 else replace(found, shared=times)
        joint = self.part_of_joint(value)
        if joint is not None:
            return joint
        heads = ir.as_int(shape[1])
        return None if heads is None else _Operand(expr, heads, ir.as_int(shape[3]) or 0)

    def cached(self, k: _Operand, v: _Operand, bb: BlockBuilder) -> tuple[_Operand, _Operand, tuple[Any, Any]] | None:
        """See keys and values as those of the past, which are returned apart, before new ones."""
        parts = [self.joined(x) for x in (k, v)]
        if parts[0] is None or parts[1] is None:
            return None
        (past_key, key), (past_value, value) = parts[0], parts[1]
        new = [self.operand(key, bb), self.operand(value, bb)]
        if any(x is None or x.heads != k.heads or x.shared != 1 for x in new):
            return None
        before, after = [(a.ty.shape[2], b.ty.shape[2]) for a, b in ((past_key, past_value), (key, value))]
        if not (self.same(*before) and self.same(*after)):
            return None
        return new[0], new[1], (past_key, past_value)  # type: ignore[return-value]

    def joined(self, operand: _Operand) -> tuple[Any, Any] | None:
        """Find the two tensors, heads before positions, that are joined along the positions."""
        value = self.value_of(operand.tensor)
        if not is_op(value, "concat") or value.attrs.get("axis") not in (2, -2) or operand.tensor.ty.ndim != 4:
            return None
        fields = value.args[0] if isinstance(value.args[0], ir.Tuple) else self.value_of(value.args[0])
        if not isinstance(fields, ir.Tuple) or len(fields.fields) != 2:
            return None
        known = [getattr(f.ty, "shape", None) is not None for f in fields.fields]
        return (fields.fields[0], fields.fields[1]) if all(known) else None

    def keys(self, expr: ir.Expr, bb: BlockBuilder) -> tuple[_Operand | None, float]:
        """See transposed keys as heads in place, and by what number they were multiplied before they were turned."""
        value = self.value_of(expr)
        axes = tuple(value.attrs.get("axes") or ()) if is_op(value, "permute_dims") else None
        if axes in ((0, 1, 3, 2), (0, 2, 1)):
            inner, by = self.unscaled(value.args[0])
            return self.operand(inner, bb), by
        return (self.rows(value.args[0], bb) if axes == (0, 2, 3, 1) else None), 1.0

    def rows(self, expr: ir.Expr, bb: BlockBuilder) -> _Operand | None:
        """See (batch, positions, heads, size) as rows of all heads, perhaps of a wider tensor."""
        batch, positions, *last = expr.ty.shape
        heads, size = (ir.as_int(d) for d in last)
        if heads is None or size is None:
            return None
        value = self.value_of(expr)
        flat = value.args[0] if is_op(value, "reshape") else None
        if flat is None or getattr(flat.ty, "ndim", 0) != 3 or not self.same_shape_of(flat, batch, positions):
            shape = ir.shape_expr((batch, positions, ir.int64(heads * size)))
            return _Operand(bb.emit(op.make_call("reshape")(expr, shape)), heads, size)
        source, begin = self.slice_of(flat)
        return _Operand(source, heads, size, begin)

    def same_shape_of(self, flat: Any, batch: ir.PrimExpr, positions: ir.PrimExpr) -> bool:
        """Whether a tensor has rows for these positions."""
        shape = flat.ty.shape
        return shape is not None and self.same(shape[0], batch) and self.same(shape[1], positions)

    def slice_of(self, flat: Any) -> tuple[Any, int]:
        """Find of what tensor a part of rows is the columns from where on; of itself from 0 on otherwise."""
        value = self.value_of(flat)
        if is_op(value, "strided_slice"):
            attrs = value.attrs
            begins = [ir.as_int(b) for b in attrs.get("begin", ())]
            steps = [ir.as_int(s) for s in attrs.get("strides") or (1,)]
            if tuple(attrs.get("axes") or ()) in ((2,), (-1,)) and begins[0] is not None and begins[0] >= 0:
                if steps == [1] and ir.as_int(value.args[0].ty.shape[2]) is not None:
                    return value.args[0], begins[0]
        if isinstance(value, ir.TupleGetItem):
            split = self.value_of(value.tuple_value)
            if is_op(split, "split") and split.attrs["axis"] % 3 == 2:
                widths = [ir.as_int(t.shape[2]) for t in split.ty.fields[: value.index]]
                if None not in widths and ir.as_int(split.args[0].ty.shape[2]) is not None:
                    return split.args[0], sum(w for w in widths if w is not None)
        return flat, 0

    def part_of_joint(self, value: Any) -> _Operand | None:
        """See one of (parts, batch, heads, positions, size) as rows of all parts and heads."""
        index = _number(value.args[1]) if is_op(value, "take") and value.attrs.get("axis") == 0 else None
        turned = self.value_of(value.args[0]) if index is not None else _ABSENT
        if index is None or not is_op(turned, "permute_dims") or tuple(turned.attrs.get("axes") or ()) != _PARTS_FIRST:
            return None
        shaped = self.value_of(turned.args[0])
        if not is_op(shaped, "reshape") or getattr(shaped.args[0].ty, "ndim", 0) != 3:
            return None
        batch, positions, *last = shaped.ty.shape
        parts, heads, size = (ir.as_int(d) for d in last)
        if parts is None or heads is None or size is None or not self.same_shape_of(shaped.args[0], batch, positions):
            return None
        return _Operand(shaped.args[0], heads, size, int(index) % parts * heads * size)

    def repeated(self, value: Any) -> tuple[Any, int] | None:
        """Find heads that are repeated, each for a group of queries, and how often."""
        if is_op(value, "repeat") and value.attrs.get("axis") == 1:
            return value.args[0], int(value.attrs["repeats"])
        wide = self.value_of(value.args[0]) if is_op(value, "reshape") else _ABSENT
        if not is_op(wide, "broadcast_to") or getattr(wide.ty, "ndim", 0) != 5:
            return None
        unit = self.value_of(wide.args[0])
        times, heads = ir.as_int(wide.ty.shape[2]), ir.as_int(wide.ty.shape[1])
        if times is None or heads is None or ir.as_int(value.ty.shape[1]) != heads * times:
            return None
        if not (is_op(unit, "expand_dims") or is_op(unit, "reshape")) or getattr(unit.args[0].ty, "ndim", 0) != 4:
            return None
        narrow, before = unit.ty.shape, unit.args[0].ty.shape
        if ir.as_int(narrow[2]) != 1 or not all(map(self.same, (*narrow[:2], *narrow[3:]), before)):
            return None
        return unit.args[0], times


def _number(expr: ir.Expr) -> float | None:
    """The value of a constant of one element."""
    if not isinstance(expr, ir.Constant) or int(np.prod(expr.data.shape)) != 1:
        return None
    return float(expr.data.numpy().reshape(()))
