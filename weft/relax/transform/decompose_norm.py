"""DecomposeOpsForInference and DecomposeOpsForTraining: norms, and what means other things in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.op import make_call, normalize_axes
from weft.relax.core_ops import is_op
from weft.relax.rewriter import rewrite_bindings

Decompose = Callable[[ir.Call], "ir.Expr | None"]


def DecomposeOpsForInference(func_name: str | None = None) -> ir.Pass:
    """Make the pass that writes norms, dropout and such with simpler operators, as they are when a model is used.

    Parameters
    ----------
    func_name : str, optional
        The function that is changed; by default all.
    """
    return _decompose("DecomposeOpsForInference", _inference, func_name, DecomposeOpsForInference.__doc__)


def DecomposeOpsForTraining(func_name: str | None = None) -> ir.Pass:
    """Make the same pass for training: a batch norm uses the statistics of the batch, and moves the running ones.

    Parameters
    ----------
    func_name : str, optional
        The function that is changed; by default all.
    """
    return _decompose("DecomposeOpsForTraining", _training, func_name, DecomposeOpsForTraining.__doc__)


def _decompose(name: str, rule: Decompose, func_name: str | None, doc: str | None) -> ir.Pass:
    def over(func: ir.Function, mod: ir.IRModule) -> ir.Function:
        def each(_binding: object, value: ir.Expr, _bb: object) -> ir.Expr | None:
            return rule(value) if isinstance(value, ir.Call) else None

        return rewrite_bindings(func, mod, each)

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Write operators with simpler ones."""
        if func_name is not None:
            mod[func_name]  # it must be there
        asked = {v: func_name in (None, v.name_hint) and isinstance(f, ir.Function) for v, f in mod.items()}
        return mod.with_functions({v: over(f, mod) if asked[v] else f for v, f in mod.items()})  # type: ignore[arg-type]

    return ir.Pass(name, run, 0, doc)


def _inference(call: ir.Call) -> ir.Expr | None:
    if is_op(call, "nn.batch_norm"):
        return _batch_norm(call, call.args[3], call.args[4])
    return _both(call)


def _training(call: ir.Call) -> ir.Expr | None:
    if is_op(call, "nn.rms_norm"):
        return _rms_norm(call)
    if not is_op(call, "nn.batch_norm"):
        return _both(call)
    data, mean, variance = call.args[0], call.args[3], call.args[4]
    ty: Any = data.ty
    axis = call.attrs["axis"] % ty.ndim
    others = [i for i in range(ty.ndim) if i != axis]
    batch = make_call("mean")(data, others), make_call("variance")(data, others)
    momentum = call.attrs["momentum"]

    def moved(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        kept = make_call("multiply")(ir.constant(1 - momentum, ty.dtype), old)
        return make_call("add")(kept, make_call("multiply")(ir.constant(momentum, ty.dtype), new))

    out = _batch_norm(call, *batch).fields[0]
    return ir.Tuple((out, moved(mean, batch[0]), moved(variance, batch[1])))


def _both(call: ir.Call) -> ir.Expr | None:
    if is_op(call, "nn.layer_norm"):
        return _layer_norm(call)
    if is_op(call, "nn.dropout"):
        return ir.Tuple((call.args[0], make_call("ones_like")(call.args[0])))
    return None


def _along(vector: ir.Expr, ndim: int, *axes: int) -> ir.Expr:
    return make_call("expand_dims")(vector, [i for i in range(ndim) if i not in axes])


def _affine(call: Any) -> list[ir.Expr]:
    """Lay the scale and shift of a norm along its axes; along the last ones they broadcast as they are."""
    ndim, vectors = call.args[0].ty.ndim, list(call.args[1:])
    over = normalize_axes("norm", call.attrs["axes"], ndim) if ndim >= 0 else ()
    return [_along(v, ndim, *over) for v in vectors] if over and over[0] != ndim - len(over) else vectors


def _batch_norm(call: ir.Call, mean: ir.Expr, variance: ir.Expr) -> ir.Tuple:
    data, gamma, beta = call.args[:3]
    ty: Any = data.ty
    axis = call.attrs["axis"] % ty.ndim
    out = _normalized(data, _along(mean, ty.ndim, axis), _along(variance, ty.ndim, axis), call.attrs["epsilon"])
    if call.attrs["scale"]:
        out = make_call("multiply")(out, _along(gamma, ty.ndim, axis))
    if call.attrs["center"]:
        out = make_call("add")(out, _along(beta, ty.ndim, axis))
    return ir.Tuple((out, call.args[3], call.args[4]))


def _layer_norm(call: ir.Call) -> ir.Expr:
    (gamma, beta), data, axes = _affine(call), call.args[0], call.attrs["axes"]
    mean, variance = (make_call(n)(data, axes, keepdims=True) for n in ("mean", "variance"))
    out = _normalized(data, mean, variance, call.attrs["epsilon"])
    if call.attrs["scale"]:
        out = make_call("multiply")(out, gamma)
    return make_call("add")(out, beta) if call.attrs["center"] else out


def _rms_norm(call: ir.Call) -> ir.Expr:
    (weight,), data = _affine(call), call.args[0]
    square = make_call("mean")(make_call("multiply")(data, data), call.attrs["axes"], keepdims=True)
    root = make_call("sqrt")(make_call("add")(square, ir.constant(call.attrs["epsilon"], data.ty.dtype)))
    return make_call("multiply")(make_call("divide")(data, root), weight)


def _normalized(data: Any, mean: ir.Expr, variance: ir.Expr, epsilon: float) -> ir.Expr:
    root = make_call("sqrt")(make_call("add")(variance, ir.constant(epsilon, data.ty.dtype)))
    return make_call("divide")(make_call("subtract")(data, mean), root)
