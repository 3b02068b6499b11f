"""Annotating: what becomes integers is rounded as these would be, in steps that calibration chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.analysis import free_vars
from weft.relay.expr import Call, Constant, Function, Tuple, Var, const
from weft.relay.op.annotation import simulated_quantize
from weft.relay.quantize.config import QAnnotateKind, current_qconfig, quantize_context
from weft.relay.quantize.forward import TempExpr, forward_op, forward_rewrite, rewriting_pass
from weft.relay.types import scalar_type

_KEY = "FQAnnotateRewrite"
_INPUT, _WEIGHT, _ACTIVATION = QAnnotateKind.INPUT, QAnnotateKind.WEIGHT, QAnnotateKind.ACTIVATION
Rule = Callable[[Call, list[Any], Any], Any]


class QAnnotateExpr(TempExpr):
    """An expression that will be integers: of an input's range, or as wide as an accumulator."""

    expr: Any
    kind: int

    def realize(self) -> Any:
        """Return the expression."""
        return self.expr


def register_annotate_function(op_name: str, frewrite: Rule | None = None, level: int = 10) -> Any:
    """Say how calls of an operator are annotated; without `frewrite`, a decorator.

    Parameters
    ----------
    frewrite : callable
        ``fn(ref_call, new_args, ctx)``: the call, what stands for its arguments (a ``QAnnotateExpr`` where that will be
        integers); it returns one, an expression, or None for the operator on floats.
    """

    def register(fn: Rule) -> Any:
        def guarded(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
            return fn(ref_call, new_args, ctx) if current_qconfig().guard(ref_call) else None

        ir.register_op_attr(op_name, _KEY, guarded, level)
        return fn

    return register if frewrite is None else register(frewrite)


def attach_simulated_quantize(data: ir.Expr, kind: int, sign: bool = True, rounding: str = "round") -> Any:
    """Round an expression as its quantization would; the scale and the limits are variables, one triple for each.

    Parameters
    ----------
    data : Expr
        The expression.
    kind : int
        What it is to its users, a ``QAnnotateKind``.
    """
    known = quantize_context().qnode_map
    key = (data, kind, sign, rounding)
    if key not in known:
        scale, low, high = (Var(name, scalar_type("float32")) for name in ("dom_scale", "clip_min", "clip_max"))
        known[key] = simulated_quantize(data, scale, low, high, kind, sign, rounding)
    return known[key]


def annotate() -> ir.Pass:
    """Make the pass that rounds what will be integers; scales and limits become parameters of the functions."""

    def shared(e: Any) -> Any:
        """Let all users of an accumulator read the same integers of an input's range."""
        return QAnnotateExpr(_quantized(e), _INPUT) if _kind(e) == _ACTIVATION else e

    def rewrite(func: Function) -> Function:
        """Put ``simulated_quantize`` around what products and what follows them read."""
        made = forward_rewrite(func, _KEY, None, shared)
        return made.replace(params=(*made.params, *free_vars(made)))

    return rewriting_pass("QuantizeAnnotate", rewrite)


def _kind(x: ir.Node) -> int | None:
    return x.kind if isinstance(x, QAnnotateExpr) else None


def _quantized(x: ir.Expr) -> Any:
    """Return an expression whose values are those of an input or a weight."""
    e = x.realize() if isinstance(x, QAnnotateExpr) else x
    if _kind(x) in (_INPUT, _WEIGHT):
        return e
    if isinstance(e, Constant):
        return attach_simulated_quantize(e if e.data.dtype == "float32" else const(e.data.numpy(), "float32"), _WEIGHT)
    return attach_simulated_quantize(e, _INPUT)


def _made(ref_call: Call, args: Any, kind: int) -> QAnnotateExpr:
    return QAnnotateExpr(forward_op(ref_call, args), kind)


def _skipped(ref_call: Call) -> bool:
    """Whether a call stays as it is; integers and other floats are no float32 that integers could stand for."""
    return quantize_context().check_to_skip(ref_call) or getattr(ref_call.ty, "dtype", "") != "float32"


def _product(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    dense = getattr(ref_call.op, "name", "") == "nn.dense" and current_qconfig().skip_dense_layer
    return None if dense or _skipped(ref_call) else _made(ref_call, map(_quantized, new_args), _ACTIVATION)


def _multiply(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    if all(_kind(a) is None for a in new_args) or _skipped(ref_call):
        return None
    return _made(ref_call, map(_quantized, new_args), _ACTIVATION)


def _add(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    """Add an accumulator to what has an input's range, whatever the order; a sum is as wide as an accumulator."""
    if all(_kind(a) is None for a in new_args) or _skipped(ref_call):
        return None
    wide = next((a for a in new_args if _kind(a) == _ACTIVATION), None)
    return _made(ref_call, (a if a is wide else _quantized(a) for a in new_args), _ACTIVATION)


def _same(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    kind = _kind(new_args[0])
    return None if kind is None or _skipped(ref_call) else _made(ref_call, new_args, kind)


def _narrow(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    if _kind(new_args[0]) is None or _skipped(ref_call):
        return None
    return _made(ref_call, map(_quantized, new_args), _INPUT)


def _concatenate(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    fields = new_args[0].fields if isinstance(new_args[0], Tuple) else ()
    if all(_kind(f) is None for f in fields) or _skipped(ref_call):
        return None
    return _made(ref_call, (Tuple(tuple(map(_quantized, fields))),), _ACTIVATION)


def _hint(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    """Leave the hint out where nothing will be integers."""
    return _narrow(ref_call, new_args, ctx) or new_args[0]


def _last(ref_call: Call, new_args: list[Any], ctx: Any) -> Any:
    """Quantize nothing behind the mean of a whole image: few numbers, on which all depends."""
    if _kind(new_args[0]) is not None and not _skipped(ref_call):
        quantize_context().stop_quantize()
    return None


_RULES: dict[Rule, str] = {
    _product: "nn.conv1d nn.conv2d nn.dense nn.batch_matmul",
    _multiply: "multiply",
    _add: "add subtract",
    _same: """annotation.stop_fusion clip nn.avg_pool2d nn.batch_flatten nn.relu reshape strided_slice transpose""",
    _narrow: "nn.max_pool1d nn.max_pool2d",
    _concatenate: "concatenate",
    _hint: "annotation.cast_hint",
    _last: "nn.global_avg_pool2d",
}
for _rule, _names in _RULES.items():
    for _name in _names.split():
        register_annotate_function(_name, _rule)
