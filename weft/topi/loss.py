"""Losses, and what flows back through operators that pick elements."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_expr, as_int, const, if_then_else, int64, select, structural_equal
from weft.te import Tensor, compute
from weft.topi.broadcast import broadcast_to
from weft.topi.index import clamped
from weft.topi.precision import narrowed, widened
from weft.topi.reduce import reduce
from weft.topi.typing import Shape


def collapse_sum(data: Tensor, target_shape: Shape) -> Any:
    """Sum a tensor to a shape that broadcasts to its own."""
    shape = tuple(as_expr(d) for d in target_shape)
    skip = data.ndim - len(shape)
    if skip < 0:
        raise ShapeMismatch("collapse_sum: the target has more dimensions", expected=str(data.ndim), found=str(shape))
    extents: dict[int, Any] = {n: data.shape[n] for n in range(skip)}
    for n, (d, size) in enumerate(zip(shape, data.shape[skip:], strict=True), skip):
        if as_int(d) == 1 and as_int(size) != 1:
            extents[n] = size
        elif as_int(d) != 1 and not structural_equal(d, size):  # which of the two it is, is known at run time
            extents[n] = select(d.equal(1), size, const(1, d.dtype))
    ks = {n: te.reduce_axis((int64(0), extent), f"k{n}") for n, extent in extents.items()}
    wide = widened(data)

    def element(*i: Any) -> Any:
        ones = [n for n in ks if n < skip or as_int(shape[n - skip]) == 1]
        place = [0 if n in ones else i[n - skip] for n in range(data.ndim)]
        value = wide(*[v if n not in ks else ks[n].var if n in ones else v + ks[n].var for n, v in enumerate(place)])
        return te.sum(value, axis=list(ks.values())) if ks else value

    return narrowed(compute(shape, element, name="T_collapse_sum"), data.dtype)


def cross_entropy_with_logits(x: Tensor, y: Tensor) -> Tensor:
    """``-sum(x * y)``, divided by the size of the batch where there is one."""
    product = compute(x.shape, lambda *i: x(*i) * y(*i), name="T_multiply")
    total = reduce("sum", product, range(x.ndim))
    if x.ndim == 1:
        return compute((), lambda: -total(), name="T_cross_entropy")
    return compute((), lambda: -total() / x.shape[0].astype(x.dtype), name="T_cross_entropy")


def _weight_of(weights: Tensor | None, cls: Any, dtype: str) -> Any:
    return const(1, dtype) if weights is None else weights(clamped(cls, weights.shape[0]))


def _weights_of_targets(targets: Tensor, weights: Tensor | None, dtype: str, ignore_index: int) -> Tensor:
    def element(*i: Any) -> Any:
        t = targets(*i)
        return if_then_else(t.equal(const(ignore_index, t.dtype)), const(0, dtype), _weight_of(weights, t, dtype))

    return compute(targets.shape, element, name="T_weights")


def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """Take the weighted negative of each target's prediction: each of them, their sum or their weighted mean.

    Predictions, logarithms of probabilities, are (batch, classes, ...) or (classes,), targets (batch, ...) or ().
    """
    dtype = predictions.dtype
    if reduction not in ("none", "sum", "mean"):
        raise InvalidArgument(f"unknown reduction '{reduction}'", expected="none, sum or mean")

    def element(*i: Any) -> Any:
        t = targets(*i)
        at = clamped(t, predictions.shape[min(predictions.ndim - 1, 1)])
        place = (at,) if predictions.ndim == 1 else (i[0], at, *i[1:])
        taken = -predictions(*place) * _weight_of(weights, t, dtype)
        return if_then_else(t.equal(const(ignore_index, t.dtype)), const(0, dtype), taken)

    each = compute(targets.shape, element, name="nll_loss")
    if reduction == "none":
        return each
    total = reduce("sum", each, range(each.ndim))
    if reduction == "sum":
        return total
    size = reduce("sum", _weights_of_targets(targets, weights, dtype, ignore_index), range(each.ndim))
    return compute((), lambda: total() / size(), name="T_divide")


def nll_loss_backward(
    output_grad: Tensor,
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """Return what flows back to the predictions of :func:`nll_loss`."""
    dtype = predictions.dtype
    each = output_grad if reduction == "none" else broadcast_to(output_grad, targets.shape)
    if reduction == "mean":
        size = reduce("sum", _weights_of_targets(targets, weights, dtype, ignore_index), range(targets.ndim))
        whole = each
        each = compute(targets.shape, lambda *i: whole(*i) / size(), name="T_divide")

    def element(*i: Any) -> Any:
        cls, place = (i[0], ()) if predictions.ndim == 1 else (i[1], (i[0], *i[2:]))
        t = targets(*place)
        hit = t.equal(cls.astype(t.dtype)) & ~t.equal(const(ignore_index, t.dtype))
        return select(hit, -each(*place) * _weight_of(weights, cls, dtype), const(0, dtype))

    return compute(predictions.shape, element, name="nll_loss_backward")


def take_backward(output_grad: Tensor, x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """Return what flows back to a tensor that elements along an axis were taken of."""
    at = (axis or 0) % x.ndim
    ks = [te.reduce_axis((int64(0), d), f"k{n}") for n, d in enumerate(indices.shape)]
    inner = [k.var for k in ks]

    def element(*i: Any) -> Any:
        t = indices(*inner).astype("int64")
        place = select(t < int64(0), t + x.shape[at].astype("int64"), t)
        taken = output_grad(*i[:at], *inner, *i[at + 1 :])
        value = select(place.equal(i[at].astype("int64")), taken, const(0, x.dtype))
        return te.sum(value, axis=ks) if ks else value

    return compute(x.shape, element, name="take_backward")
