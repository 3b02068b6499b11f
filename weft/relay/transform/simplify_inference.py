"""SimplifyInference: layers that differ between training and inference become what they are in inference."""

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.expr import Call, Function, TupleGetItem, Var, const
from weft.relay.op.registry import get, op_call
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import operator_name, rewrite


@typed_function_pass
def simplify_inference(func: Function) -> Function:
    """Decompose normalizations of batches, layers, instances, groups and vectors; dropout becomes its input.

    Requires: Any form; ranks and element types are read from types, which are inferred where there are none.
    Ensures: No such operators, less batch normalizations whose new statistics are used. New expressions have no types.
    Before::

        def @main(%x: Tensor[(2, 3), float32], %g: Tensor[(3), float32], %b: Tensor[(3), float32],
                  %m: Tensor[(3), float32], %v: Tensor[(3), float32]) {
          %0 = nn.batch_norm(%x, %g, %b, %m, %v);
          %0.0
        }

    After::

        def @main(%x: Tensor[(2, 3), float32], %g: Tensor[(3), float32], %b: Tensor[(3), float32],
                  %m: Tensor[(3), float32], %v: Tensor[(3), float32]) {
          %0 = multiply(divide(1f, sqrt(add(%v, 1e-05f))), %g);
          add(multiply(%x, %0), add(multiply(negative(%m), %0), %b))
        }
    Cost: Linear.
    Source: TVM's ``SimplifyInference``.
    """
    named: dict[Var, Any] = {}

    def learn(var: Var, value: ir.Expr) -> None:
        if type(value) is Call:
            named[var] = value

    def rule(e: ir.Node) -> Any:
        if type(e) is not TupleGetItem or e.index:
            return _decomposed(e, e, _WHOLE)
        whole = e.tuple_value
        return _decomposed(e, named.get(whole, whole) if type(whole) is Var else whole, _FIRST)

    return rewrite(func, rule, on_let=learn)


def _decomposed(e: Any, call: Any, table: dict[str, Callable[..., Any]]) -> Any:
    """Return what computes an expression whose value a call gives; the expression itself where nothing is known."""
    name = operator_name(call)
    ty = call.args[0].ty if name in table else None
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return e
    made = table[name](ty, *call.args, **{**get(name).attrs, **dict(call.attrs.items)})
    if made is None or type(made) is not Call:
        return made or e
    return Call(made.op, made.args, made.attrs, ty=made.ty or e.ty, span=made.span or e.span)


def expand_to_axis(bias: ir.Expr, ndim: int, axis: int) -> Any:
    """Give a vector the dimensions of 1 with which it stands beside an axis of a tensor of a rank."""
    after = ndim - (axis % ndim) - 1
    return op_call("expand_dims", bias, axis=1, num_newaxis=after) if after else bias


def _batch_norm(
    ty: ir.TensorType,
    data: ir.Expr,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    *,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    factor = op_call("divide", const(1.0, ty.dtype), op_call("sqrt", op_call("add", var, const(epsilon, ty.dtype))))
    if scale:
        factor = op_call("multiply", factor, gamma)
    shift = op_call("multiply", op_call("negative", mean), factor)
    if center:
        shift = op_call("add", shift, beta)
    factor, shift = (expand_to_axis(v, ty.ndim, axis) for v in (factor, shift))
    return op_call("add", op_call("multiply", data, factor), shift)


def _normalized(data: ir.Expr, axes: tuple[int, ...], epsilon: float, dtype: str) -> Any:
    mean = op_call("mean", data, axis=axes, keepdims=True)
    var = op_call("variance", data, mean, axis=axes, keepdims=True)
    spread = op_call("sqrt", op_call("add", var, const(epsilon, dtype)))
    return op_call("divide", op_call("subtract", data, mean), spread)


def _scaled(out: Any, gamma: Any, beta: Any, ndim: int, axis: int, center: bool, scale: bool) -> Any:
    if scale:
        out = op_call("multiply", out, expand_to_axis(gamma, ndim, axis))
    return op_call("add", out, expand_to_axis(beta, ndim, axis)) if center else out


def _layer_norm(
    ty: ir.TensorType, data: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    return _scaled(_normalized(data, (axis,), epsilon, ty.dtype), gamma, beta, ty.ndim, axis, center, scale)


def _instance_norm(
    ty: ir.TensorType, data: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    rest = [i for i in range(ty.ndim) if i != axis % ty.ndim]
    return _scaled(_normalized(data, tuple(rest[1:]), epsilon, ty.dtype), gamma, beta, ty.ndim, axis, center, scale)


def _group_norm(
    ty: Any, data: Any, gamma: Any, beta: Any, *, num_groups: int, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    axis, shape = axis % ty.ndim, [ir.as_int(d) for d in ty.shape]
    channels = shape[axis]
    if channels is None or None in shape:
        return None
    grouped = (*shape[:axis], num_groups, channels // num_groups, *shape[axis + 1 :])
    axes = tuple(i for i in range(1, ty.ndim + 1) if i != axis)
    out = _normalized(op_call("reshape", data, newshape=grouped), axes, epsilon, ty.dtype)
    return _scaled(op_call("reshape", out, newshape=tuple(shape)), gamma, beta, ty.ndim, axis, center, scale)


def _l2_normalize(ty: ir.TensorType, data: Any, *, eps: float, axis: Any) -> Any:
    total = op_call("sum", op_call("multiply", data, data), axis=axis, keepdims=True)
    return op_call("divide", data, op_call("sqrt", op_call("maximum", total, const(eps, ty.dtype))))


_FIRST: dict[str, Callable[..., Any]] = {"nn.batch_norm": _batch_norm, "nn.dropout": lambda ty, data, **_: data}
_WHOLE: dict[str, Callable[..., Any]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}
