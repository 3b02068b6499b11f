"""Losses."""

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.relay.op.elementwise import scalar
from weft.relay.op.reduce import number
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import dims, dtype_of, rank


def _cross_entropy(predictions: ir.Expr, targets: ir.Expr) -> ir.Expr:
    return _mean_over_rows(shared("log", predictions), targets, predictions)


def _with_logits(predictions: ir.Expr, targets: ir.Expr) -> ir.Expr:
    return _mean_over_rows(predictions, targets, predictions)


def _mean_over_rows(scores: ir.Expr, targets: ir.Expr, predictions: ir.Expr) -> ir.Expr:
    if rank(predictions) != 2 or rank(targets) != 2:
        raise ShapeMismatch(
            "nn.cross_entropy: predictions and targets are matrices (nn.cross_entropy_with_logits too)",
            expected="2 dimensions",
            found=f"{rank(predictions)} and {rank(targets)}",
            where=predictions.span,
        )
    total = shared("sum", shared("multiply", scores, targets), axis=None, keepdims=False)
    return shared("divide", shared("negative", total), number(dims(predictions)[0], dtype_of(predictions)))


declare(
    "nn.cross_entropy", "predictions targets", expand=_cross_entropy, doc="``-sum(log(predictions) * targets) / rows``."
)
declare(
    "nn.cross_entropy_with_logits",
    "predictions targets",
    expand=_with_logits,
    doc="``-sum(predictions * targets) / rows``, with predictions that are logarithms.",
)


def _nll_loss(
    predictions: ir.Expr, targets: ir.Expr, weights: ir.Expr, reduction: str = "mean", ignore_index: int = -100
) -> ir.Expr:
    """Take the prediction of each target's class, which lies along axis 1."""
    if reduction not in ("mean", "sum", "none"):
        raise InvalidArgument(f"nn.nll_loss: unknown reduction '{reduction}'", expected="mean, sum or none")
    if rank(predictions) != rank(targets) + 1 or rank(predictions) < 1:
        raise ShapeMismatch(
            "nn.nll_loss: predictions have one dimension more than targets",
            expected=str(rank(targets) + 1),
            found=str(rank(predictions)),
            where=predictions.span,
        )
    axis = 1 if rank(predictions) > 1 else 0
    dtype = dtype_of(predictions)
    used = shared("not_equal", targets, scalar(ignore_index, dtype_of(targets)))
    safe = shared("where", used, targets, shared("zeros_like", targets))
    picked = shared("gather_elements", predictions, shared("expand_dims", safe, axis=(axis,)), axis=axis)
    each = shared("take", weights, safe, axis=0, mode="clip")
    weight = shared("where", used, each, scalar(0, dtype))
    loss = shared("negative", shared("multiply", shared("squeeze", picked, axis=(axis,)), weight))
    if reduction == "none":
        return loss
    total = shared("sum", loss, axis=None, keepdims=False)
    if reduction == "sum":
        return total
    return shared("divide", total, shared("sum", weight, axis=None, keepdims=False))


declare(
    "nn.nll_loss",
    "predictions targets weights",
    {"reduction": "mean", "ignore_index": -100},
    expand=_nll_loss,
    doc="The negative weighted prediction of each target's class.",
)
