"""Partitioning: what lies between products is kept in the data type of inputs, in kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.expr import Call, Constant, Function
from weft.relay.op.annotation import cast_hint, stop_fusion
from weft.relay.quantize.config import current_qconfig
from weft.relay.quantize.forward import TempExpr, forward_op, forward_rewrite, rewriting_pass

_KEY = "FQPartitionRewrite"
Rule = Callable[[Call, list[Any], Any], Any]


class QPartitionExpr(TempExpr):
    """The end of a kernel that starts with a product: more may be fused with it."""

    expr: Any

    def realize(self) -> Any:
        """End the kernel here."""
        return stop_fusion(cast_hint(self.expr, current_qconfig().dtype_input))


def register_partition_function(op_name: str, frewrite: Rule | None = None, level: int = 10) -> Any:
    """Say where an operator stands among kernels; without `frewrite`, a decorator.

    Parameters
    ----------
    frewrite : callable
        ``fn(ref_call, new_args, ctx)``: the call, what stands for its arguments (a ``QPartitionExpr`` where a kernel
        goes on); it returns one, an expression, or None to end the kernels of its arguments.
    """
    return ir.register_op_attr(op_name, _KEY, frewrite, level)


def partition() -> ir.Pass:
    """Make the pass that marks where kernels that start with a product end."""

    def rewrite(func: Function) -> Function:
        """Mark with ``annotation.cast_hint`` and ``annotation.stop_fusion`` where the kernels of products end."""
        return forward_rewrite(func, _KEY)

    return rewriting_pass("QuantizePartition", rewrite)


def _within(x: ir.Expr) -> Any:
    return x.expr if isinstance(x, QPartitionExpr) else x


@register_partition_function("nn.conv2d")
def _starts(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    return QPartitionExpr(forward_op(ref_call, new_args))


def _goes_on(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    (x,) = new_args
    return QPartitionExpr(forward_op(ref_call, (x.expr,))) if isinstance(x, QPartitionExpr) else None


for _name in ("clip", "nn.relu", "nn.max_pool2d"):
    register_partition_function(_name, _goes_on)


@register_partition_function("add")
def _add(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    inside = [isinstance(a, QPartitionExpr) for a in new_args]
    if all(inside):
        return QPartitionExpr(forward_op(ref_call, new_args))
    if any(inside) and any(isinstance(a, Constant) for a in new_args):
        return QPartitionExpr(forward_op(ref_call, map(_within, new_args)))
    return None


@register_partition_function("multiply")
def _multiply(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    if any(isinstance(a, QPartitionExpr) for a in new_args):
        return QPartitionExpr(forward_op(ref_call, new_args))
    return None


@register_partition_function("nn.global_avg_pool2d")
def _ends(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    return forward_op(ref_call, (QPartitionExpr(_within(new_args[0])),))
