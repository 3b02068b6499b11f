"""What flows back through each operator: ``FPrimalGradient``.

A rule is ``fn(orig_var, orig_call, output_grad, bb) -> [Expr]``: from the value of a call, the call and the adjoint of
its value, the adjoint of each operand. ``no_grad(x)`` stands for none.

Source: Griewank and Walther, 2008; TVM's rules of the same operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import InvalidArgument, UnsupportedOperator
from weft.op import make_call
from weft.registry import Registry
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.infer import same_shape

__all__ = [
    "Gradient",
    "fit",
    "gradient_of",
    "like",
    "of_one_element",
    "operators",
    "register_gradient",
    "register_te_gradient",
    "rule",
    "shape_of",
    "te_gradient_of",
]

Gradient = Callable[[ir.ExprVar, ir.Call, ir.ExprVar, Any], list[ir.Expr]]


def register_gradient(op_name: str, fgradient: Gradient | None = None, level: int = 10) -> Any:
    """Say what flows back through an operator, ``relax.add``; without `fgradient`, a decorator."""
    return ir.register_op_attr(op_name, "FPrimalGradient", fgradient, level)


_RULES: Registry[Gradient] = Registry()
_TE_RULES: dict[str, Callable[..., Any]] = {}


def register_te_gradient(te_grad_name: str, te_grad_func: Callable[..., Any] | None = None) -> Any:
    """Say what flows back through kernels that are called with a name; without the function, a decorator.

    The function takes the adjoint of the result and the operands as te tensors, and returns the operands' adjoints.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _TE_RULES[te_grad_name] = fn
        return fn

    return register if te_grad_func is None else register(te_grad_func)


def te_gradient_of(call: ir.Call, output_grad: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    """Emit what flows back through a ``call_tir_with_grad``, by the function that is registered for it."""
    name = call.attrs["te_grad_name"]
    if name not in _TE_RULES:
        raise UnsupportedOperator(f"no te gradient is called '{name}'", where=call.span, help="register_te_gradient")
    options = dict(call.attrs["te_grad_kwargs"].items) if call.attrs.get("te_grad_kwargs") else {}
    given = call.args[1]
    assert isinstance(given, ir.Tuple)
    made = bb.call_te(_TE_RULES[name], output_grad, *given.fields, primfunc_name_hint=name, **options)
    return bb.emit(made)


@ir.default_op_attr("FPrimalGradient")
def gradient_of(op: ir.Op) -> Gradient | None:
    """Return the rule of an operator that has one here."""
    return _RULES.get(op.name.removeprefix("relax.")) if op.name.startswith("relax.") else None


rule = _RULES.on
"""Say what flows back through operators of these names."""


class _Ops:
    """Operators by their names; those within ``nn`` and ``grad`` by the last part."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return make_call({"no_grad": "grad.no_grad", "conv2d": "nn.conv2d", "pad": "nn.pad"}.get(name, name))


operators = _o = _Ops()


def shape_of(x: ir.Expr) -> tuple[Any, ...]:
    """Return the shape of what is differentiated."""
    if x.ty.shape is None:
        raise InvalidArgument("the shape of what is differentiated is not known", found=str(x.ty), where=x.span)
    return x.ty.shape


def like(value: float, x: ir.Expr) -> ir.Constant:
    """Return a number as a constant of the data type of a tensor."""
    return ir.constant(value, x.ty.dtype)


def fit(bb: BlockBuilder, grad: ir.Expr, x: ir.Expr) -> ir.Expr:
    """Sum an adjoint over what the operand was repeated along."""
    made: Any = bb.normalize(grad, atom=False)
    want = shape_of(x)
    return made if same_shape(shape_of(made), want) else _o.collapse_sum_to(made, ir.shape_expr(want))


@rule("add")
def _add(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    return [fit(bb, g, x) for x in call.args]


@rule("subtract")
def _subtract(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    return [fit(bb, g, call.args[0]), fit(bb, _o.negative(g), call.args[1])]


@rule("multiply")
def _multiply(_z: object, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, y = call.args
    return [fit(bb, _o.multiply(g, y), x), fit(bb, _o.multiply(g, x), y)]


@rule("divide")
def _divide(z: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, y = call.args
    return [fit(bb, _o.divide(g, y), x), fit(bb, _o.divide(_o.multiply(_o.negative(g), z), y), y)]


@rule("power")
def _power(z: Any, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, y = call.args
    less = _o.power(x, _o.subtract(y, like(1, y)))
    left = _o.multiply(_o.multiply(g, y), less)
    return [fit(bb, left, x), fit(bb, _o.multiply(_o.multiply(g, z), _o.log(x)), y)]


@rule("maximum", "minimum")
def _extreme(_z: object, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, y = call.args
    zero = like(0, x)
    below, above = _o.where(_o.less(x, y), zero, g), _o.where(_o.greater_equal(x, y), zero, g)
    left, right = (below, above) if is_op(call, "maximum") else (above, below)
    return [fit(bb, left, x), fit(bb, right, y)]


_FLAT = (
    "equal not_equal greater greater_equal less less_equal zeros_like ones_like full_like zeros ones full "
    "floor ceil round trunc sign floor_divide logical_and logical_or logical_not logical_xor arange one_hot "
    "argmax argmin argsort isnan isinf isfinite"
)


@rule(*_FLAT.split())
def _none(_y: ir.Expr, call: ir.Call, _g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.no_grad(x) for x in call.args]


@rule("triu", "tril")
def _triangle(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [ir.Call(call.op, (g, *call.args[1:]), call.attrs), *map(_o.no_grad, call.args[1:])]


_OF_ONE_ELEMENT: dict[str, Callable[[Any, Any, Any], Any]] = {  # of x, of y = f(x) and of the adjoint of y
    "abs": lambda x, y, g: _o.multiply(g, _o.where(_o.less(x, like(0, x)), _o.negative(like(1, x)), like(1, x))),
    "cos": lambda x, y, g: _o.multiply(_o.negative(g), _o.sin(x)),
    "sin": lambda x, y, g: _o.multiply(g, _o.cos(x)),
    "exp": lambda x, y, g: _o.multiply(g, y),
    "log": lambda x, y, g: _o.divide(g, x),
    "negative": lambda x, y, g: _o.negative(g),
    "square": lambda x, y, g: _o.multiply(_o.multiply(like(2, x), x), g),
    "sigmoid": lambda x, y, g: _o.multiply(_o.multiply(g, y), _o.subtract(like(1, x), y)),
    "sqrt": lambda x, y, g: _o.divide(_o.multiply(like(0.5, x), g), y),
    "tanh": lambda x, y, g: _o.multiply(g, _o.subtract(like(1, x), _o.multiply(y, y))),
    "nn.relu": lambda x, y, g: _o.where(_o.less(x, like(0, x)), like(0, x), g),
}


def of_one_element(flow: Callable[[Any, Any, Any], Any]) -> Gradient:
    """Make the rule of a function of elements: ``flow(x, y, g)`` from x, y = f(x) and the adjoint of y."""
    return lambda y, call, g, _bb: [flow(call.args[0], y, g)]


for _name, _flow in _OF_ONE_ELEMENT.items():
    rule(_name)(of_one_element(_flow))


@rule("nn.silu")
def _silu(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    s = _o.sigmoid(x)
    return [_o.multiply(g, _o.add(s, _o.multiply(y, _o.subtract(like(1, x), s))))]


def _count(call: ir.Call) -> int:
    """Return how many elements a reduction takes for one."""
    shape, axis = shape_of(call.args[0]), call.attrs["axis"]
    places = range(len(shape)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    dims = [ir.as_int(shape[a]) for a in places]
    if any(d is None for d in dims):
        raise InvalidArgument("the gradient of a mean needs constant sizes", found=str(call.args[0].ty))
    return math.prod(d or 0 for d in dims)


def _spread(call: ir.Call, g: ir.Expr) -> ir.Expr:
    """Repeat what was reduced."""
    if not call.attrs["keepdims"] and call.attrs["axis"]:
        g = _o.expand_dims(g, call.attrs["axis"])
    return _o.broadcast_to(g, ir.shape_expr(shape_of(call.args[0])))


@rule("sum")
def _sum(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_spread(call, g)]


@rule("mean")
def _mean(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_spread(call, _o.divide(g, like(_count(call), g)))]


@rule("variance")
def _variance(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, n = call.args[0], _count(call)
    whole = _o.sum(x, call.attrs["axis"], keepdims=True)
    away = _o.subtract(_o.multiply(like(2.0 / n, x), x), _o.multiply(like(2.0 / n / n, x), whole))
    if not call.attrs["keepdims"] and call.attrs["axis"]:
        g = _o.expand_dims(g, call.attrs["axis"])
    return [_o.multiply(g, away)]


@rule("permute_dims")
def _permute_dims(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    axes = call.attrs["axes"]
    if not axes:
        return [_o.permute_dims(g)]
    return [_o.permute_dims(g, axes=[axes.index(i) for i in range(len(axes))])]


@rule("concat")
def _concat(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    axis, at, points = call.attrs["axis"] or 0, ir.int64(0), []
    for ty in call.args[0].ty.fields[:-1]:
        at = at + ty.shape[axis]
        points.append(at)
    return [_o.split(g, points, axis)]


@rule("split")
def _split(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.concat(g, call.attrs["axis"])]


@rule("expand_dims")
def _expand_dims(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.squeeze(g, call.attrs["axis"])]


@rule("squeeze", "flatten", "reshape")
def _reshape(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.reshape(g, ir.shape_expr(shape_of(call.args[0]))), *map(_o.no_grad, call.args[1:])]


@rule("cumsum")
def _cumsum(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, axis = call.args[0], call.attrs["axis"]
    if axis is None:
        total = _o.subtract(_o.sum(g, keepdims=True), _o.cumsum(g))
        grad = _o.reshape(_o.add(total, _o.flatten(g)), ir.shape_expr(shape_of(x)))
    else:
        grad = _o.add(_o.subtract(_o.sum(g, axis, keepdims=True), _o.cumsum(g, axis)), g)
    return [_o.astype(grad, x.ty.dtype) if call.attrs["dtype"] else grad]


@rule("broadcast_to")
def _broadcast_to(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.collapse_sum_to(g, ir.shape_expr(shape_of(call.args[0]))), _o.no_grad(call.args[1])]


@rule("take")
def _take(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, indices = call.args
    return [make_call("grad.take_backward")(g, x, indices, axis=call.attrs["axis"]), _o.no_grad(indices)]


@rule("where")
def _where(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    condition, a, b = call.args
    left, right = _o.where(condition, g, like(0, a)), _o.where(condition, like(0, b), g)
    return [_o.no_grad(condition), fit(bb, left, a), fit(bb, right, b)]


def _swapped(x: ir.Expr) -> ir.Expr:
    """Swap the last two dimensions."""
    n = len(shape_of(x))
    return _o.permute_dims(x, axes=[*range(n - 2), n - 1, n - 2])


@rule("matmul")
def _matmul(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    a, b = call.args
    ranks = len(shape_of(a)) > 1, len(shape_of(b)) > 1
    if all(ranks):
        left, right = _o.matmul(g, _swapped(b)), _o.matmul(_swapped(a), g)
    elif ranks[1]:
        row = _o.expand_dims(g, -2)
        left, right = _o.matmul(row, _swapped(b)), _o.matmul(_o.expand_dims(a, 1), row)
    elif ranks[0]:
        column = _o.expand_dims(g, -1)
        left = _o.matmul(column, _o.expand_dims(b, 0))
        right = _o.squeeze(_o.matmul(_swapped(a), column), axis=-1)
    else:
        left, right = _o.multiply(g, b), _o.multiply(g, a)
    return [fit(bb, left, a), fit(bb, right, b)]


@rule("astype")
def _astype(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.astype(g, call.args[0].ty.dtype)]


@rule("nn.softmax")
def _softmax(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    inner = _o.sum(_o.multiply(g, y), call.attrs["axis"], keepdims=True)
    return [_o.multiply(_o.subtract(g, inner), y)]


@rule("nn.log_softmax")
def _log_softmax(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.subtract(g, _o.multiply(_o.sum(g, call.attrs["axis"], keepdims=True), _o.exp(y)))]


@rule("nn.cross_entropy_with_logits")
def _cross_entropy(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, y = call.args
    if len(shape_of(x)) > 1:
        g = _o.divide(g, like(int(shape_of(x)[0].value), g))
    return [_o.multiply(_o.negative(g), y), _o.multiply(_o.negative(g), x)]


@rule("nn.nll_loss")
def _nll_loss(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    options = {k: call.attrs[k] for k in ("reduction", "ignore_index")}
    back = make_call("grad.nll_loss_backward")(g, *call.args, **options)
    return [back, *(_o.no_grad(a) for a in call.args[1:])]


@rule("nn.conv2d")
def _conv2d(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    data, weight = call.args
    a = call.attrs
    layouts = (a["data_layout"], a["kernel_layout"], a.get("out_layout") or a["data_layout"], a["groups"])
    if layouts != ("NCHW", "OIHW", "NCHW", 1):
        raise InvalidArgument("the gradient of conv2d is that of NCHW, OIHW and one group", found=str(layouts))
    (_, channels, *size), (out_channels, _, *kernel), (_, _, *made) = map(shape_of, (data, weight, y))
    top, left, bottom, right = a["padding"]
    strides, dilation = a["strides"], a["dilation"]
    pads = (top + bottom, left + right)
    spans = [
        (n - 1) * s - p + (k - 1) * d + 1 for n, s, p, k, d in zip(made, strides, pads, kernel, dilation, strict=True)
    ]
    known = [ir.as_int(Analyzer().simplify(n - m)) for n, m in zip(size, spans, strict=True)]
    rest = tuple(n for n in known if n is not None)
    if len(rest) != len(known):
        raise InvalidArgument("the gradient of conv2d needs constant sizes", found=str(data.ty))
    back = make_call("nn.conv2d_transpose")(
        g,
        weight,
        strides=strides,
        padding=a["padding"],
        output_padding=rest,
        dilation=dilation,
        groups=1,
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    turned = _o.conv2d(
        _o.permute_dims(data, axes=[1, 0, 2, 3]),
        _o.permute_dims(g, axes=[1, 0, 2, 3]),
        strides=dilation,
        padding=a["padding"],
        dilation=strides,
    )
    weights = _o.permute_dims(turned, axes=[1, 0, 2, 3])
    if any(rest):
        weights = _o.strided_slice(weights, [0, 1, 2, 3], [0] * 4, [out_channels, channels, *kernel])
    return [back, weights]
