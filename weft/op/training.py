"""Losses, and operators that only gradients use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.op.attributes import axis, integer, word
from weft.op.infer import index_arg, normalize_axis, same_as, same_dtype, tensor_arg, values_of
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_broadcast_to, demand_indices, demand_same_shape
from weft.topi.loss import collapse_sum, cross_entropy_with_logits, nll_loss, nll_loss_backward, take_backward
from weft.topi.precision import in_float32


def _collapsed(x: Any, shape: Any) -> Any:
    shape = [int(d) for d in shape]
    extra = x.ndim - len(shape)
    ones = [i + extra for i, d in enumerate(shape) if d == 1]
    wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    return wide.sum(axis=(*range(extra), *ones), keepdims=True).reshape(shape).astype(x.dtype)


def _collapse_infer(x: ir.Expr, shape: ir.Expr) -> ir.TensorType:
    ty = tensor_arg("collapse_sum_to", "x", x)
    values = values_of(shape)
    if values is None:
        return ir.TensorType(None, ty.dtype, getattr(shape.ty, "ndim", -1))  # type: ignore[attr-defined]
    if ty.ndim >= 0 and len(values) > ty.ndim:
        raise ShapeMismatch(
            "collapse_sum_to: the target has more dimensions",
            expected=f"at most {ty.ndim}",
            found=str(len(values)),
            where=x.span,
        )
    for d, v in zip(reversed(ty.shape or ()), reversed(values), strict=False):
        demand_broadcast_to("collapse_sum_to: a dimension of the target that is not 1", v, d, x.span)
    return ir.TensorType(values, ty.dtype, len(values), ty.vdevice)


declare(
    "collapse_sum_to",
    "x shape:shape",
    infer=_collapse_infer,
    lower=collapse_sum,
    reference=_collapsed,
    rtol=1e-4,
    doc="Sum to a shape that broadcasts to that of `x`.",
)


def _like_infer(x: ir.Expr, target: ir.Expr) -> ir.TensorType:
    ty, like = tensor_arg("collapse_sum_like", "x", x), tensor_arg("collapse_sum_like", "target", target)
    for d, v in zip(reversed(ty.shape or ()), reversed(like.shape or ()), strict=False):
        demand_broadcast_to("collapse_sum_like: a dimension of the target that is not 1", v, d, x.span)
    return ir.TensorType(like.shape, ty.dtype, like.ndim, ty.vdevice)


declare(
    "collapse_sum_like",
    "x target",
    infer=_like_infer,
    lower=lambda x, target: collapse_sum(x, target.shape),
    reference=lambda x, target: _collapsed(x, target.shape),
    rtol=1e-4,
    doc="Sum to the shape of another tensor, which broadcasts to that of `x`.",
)


def _cross_entropy_infer(predictions: ir.Expr, labels: ir.Expr) -> ir.TensorType:
    op = "nn.cross_entropy_with_logits"
    types = tensor_arg(op, "predictions", predictions), tensor_arg(op, "labels", labels)
    dtype = same_dtype(op, predictions, labels)
    if types[0].ndim >= 0:
        tensor_arg(op, "labels", labels, ndim=types[0].ndim)
    demand_same_shape(f"{op}: the labels", types[0].shape, types[1].shape, predictions.span)
    return ir.TensorType((), dtype, 0)


def _cross_entropy_ref(x: Any, y: Any) -> Any:
    total = -(x.astype(np.float64) * y).sum()
    with np.errstate(all="ignore"):
        return np.asarray(total / x.shape[0] if x.ndim > 1 else total).astype(x.dtype)


declare(
    "nn.cross_entropy_with_logits",
    "predictions labels",
    infer=_cross_entropy_infer,
    lower=in_float32(cross_entropy_with_logits),
    reference=_cross_entropy_ref,
    rtol=1e-3,
    doc="``-sum(predictions * labels)``, divided by the size of the batch.",
)

_REDUCTION = {"reduction": word("mean", "mean", "sum", "none"), "ignore_index": integer(-100)}


def _nll_operands(
    op: str, predictions: ir.Expr, targets: ir.Expr, weights: Sequence[ir.Expr], ignore_index: int
) -> tuple[ir.TensorType, ir.TensorType]:
    """Check predictions (batch, classes, ...) or (classes,), targets without the classes, and weights (classes,)."""
    ty, t = tensor_arg(op, "predictions", predictions, min_ndim=1), index_arg(op, targets, "targets")
    types = [tensor_arg(op, "weights", w, 1) for w in weights]
    if ty.ndim >= 0 and t.ndim >= 0 and t.ndim != max(ty.ndim - 1, 0):
        raise ShapeMismatch(
            f"{op}: 'targets' has the wrong rank", expected=str(ty.ndim - 1), found=str(t.ndim), where=targets.span
        )
    if ty.shape is not None:
        classes = ty.shape[0 if ty.ndim == 1 else 1]
        rest = (*ty.shape[:1], *ty.shape[2:]) if ty.ndim > 1 else ()
        demand_same_shape(f"{op}: the targets", t.shape, rest, targets.span)
        for w in types:
            demand_same_shape(f"{op}: the weights", w.shape, (classes,), targets.span)
        demand_indices(f"{op}: 'targets'", targets, 0, classes, targets.span, but=int(ignore_index))
    return ty, t


def _nll_infer(
    predictions: ir.Expr, targets: ir.Expr, *weights: ir.Expr, reduction: str, ignore_index: int
) -> ir.TensorType:
    ty, t = _nll_operands("nn.nll_loss", predictions, targets, weights, ignore_index)
    return ir.TensorType(t.shape, ty.dtype, t.ndim) if reduction == "none" else ir.TensorType((), ty.dtype, 0)


def _nll_parts(x: Any, t: Any, w: Any, ignore: int) -> tuple[Any, Any]:
    """The prediction and the weight of each target, 0 where it is ignored."""
    classes = x.shape[0 if x.ndim == 1 else 1]
    kept = t != ignore
    safe = np.where(kept, t, 0).astype(np.int64)
    weights = np.where(kept, (np.ones(classes) if w is None else w.astype(np.float64))[safe], 0)
    moved = x.astype(np.float64) if x.ndim == 1 else np.moveaxis(x, 1, 0).astype(np.float64)
    taken = np.take_along_axis(moved, safe[None], 0)[0] if x.ndim > 1 else moved[safe]
    return np.where(kept, taken, 0), weights


def _nll_ref(x: Any, t: Any, w: Any = None, reduction: str = "mean", ignore_index: int = -100) -> Any:
    taken, weights = _nll_parts(x, t, w, ignore_index)
    each = -taken * weights
    with np.errstate(all="ignore"):
        out = each if reduction == "none" else each.sum() / (weights.sum() if reduction == "mean" else 1)
    return np.asarray(out).astype(x.dtype)


declare(
    "nn.nll_loss",
    "predictions targets weights?",
    _REDUCTION,
    infer=_nll_infer,
    lower=nll_loss,
    reference=_nll_ref,
    rtol=1e-3,
    doc="The weighted negative of each target's prediction; targets that are `ignore_index` count nothing.",
)


def _nll_backward_infer(
    output_grad: ir.Expr, predictions: ir.Expr, targets: ir.Expr, *weights: ir.Expr, reduction: str, ignore_index: int
) -> ir.TensorType:
    op = "grad.nll_loss_backward"
    g = tensor_arg(op, "output_grad", output_grad)
    ty, t = _nll_operands(op, predictions, targets, weights, ignore_index)
    demand_same_shape(f"{op}: 'output_grad'", g.shape, t.shape if reduction == "none" else (), output_grad.span)
    return ty


def _nll_backward_ref(g: Any, x: Any, t: Any, w: Any = None, reduction: str = "mean", ignore_index: int = -100) -> Any:
    _, weights = _nll_parts(x, t, w, ignore_index)
    classes = x.shape[0 if x.ndim == 1 else 1]
    with np.errstate(all="ignore"):
        each = np.broadcast_to(g, t.shape) / (weights.sum() if reduction == "mean" else 1) * weights
    hit = np.arange(classes).reshape(-1, *[1] * t.ndim) == t[None]
    out = np.where(hit & (t != ignore_index)[None], -each[None], 0)
    return (out if x.ndim == 1 else np.moveaxis(out, 0, 1)).astype(x.dtype)


declare(
    "grad.nll_loss_backward",
    "output_grad predictions targets weights?",
    _REDUCTION,
    infer=_nll_backward_infer,
    lower=nll_loss_backward,
    reference=_nll_backward_ref,
    rtol=1e-3,
    doc="What flows back to the predictions of ``nn.nll_loss``.",
)


def _take_backward_infer(output_grad: ir.Expr, x: ir.Expr, indices: ir.Expr, axis: int | None) -> ir.TensorType:
    op = "grad.take_backward"
    g, ty, index = tensor_arg(op, "output_grad", output_grad), tensor_arg(op, "x", x), index_arg(op, indices)
    if ty.shape is not None:
        if axis is None and ty.ndim != 1:
            raise InvalidArgument(f"{op}: `axis` is left out", expected="one dimension", found=str(ty), where=x.span)
        at = normalize_axis(op, axis or 0, ty.ndim)
        demand_indices(f"{op}: 'indices'", indices, -ty.shape[at], ty.shape[at], x.span)
        if index.shape is not None:
            shape = (*ty.shape[:at], *index.shape, *ty.shape[at + 1 :])
            demand_same_shape(f"{op}: 'output_grad'", g.shape, shape, output_grad.span)
    return ty


def _take_backward_ref(g: Any, x: Any, indices: Any, axis: int | None) -> Any:
    out = np.zeros(x.shape, np.float64)
    at = (axis or 0) % x.ndim
    moved = np.moveaxis(g.astype(np.float64), range(at, at + indices.ndim), range(indices.ndim))
    np.add.at(np.moveaxis(out, at, 0), indices, moved)
    return out.astype(x.dtype)


declare(
    "grad.take_backward",
    "output_grad x indices",
    {"axis": axis(None, checked=False)},
    infer=_take_backward_infer,
    lower=in_float32(take_backward),
    reference=_take_backward_ref,
    rtol=1e-3,
    doc="What flows back to what ``take`` takes of.",
)

for _name in ("no_grad", "start_checkpoint", "end_checkpoint"):
    declare(
        f"grad.{_name}",
        "x" if "point" in _name else "x:any",
        infer=same_as(f"grad.{_name}") if "point" in _name else lambda x: x.ty,
        lower=lambda x: x,
        reference=lambda x: x,
        decompose=lambda x: x,
        fusion=Fusion.ELEMENTWISE,
        doc="Its operand, with a note for ``Gradient``.",
    )
