"""What flows back through operators that ``gradient_rules`` leaves out: functions of one element, windows, moves.

Pooling is differentiated as what it is over its windows: each position of the window is a slice of the padded data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from weft import error, ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.gradient_rules import fit, like, of_one_element, operators, rule, shape_of

_o = operators

# --- functions of one element: the adjoint times the derivative -------------------------------------------------------


def _one_plus_square(x: ir.Expr) -> Any:
    return _o.add(like(1, x), _o.multiply(x, x))


def _one_minus_square(x: ir.Expr) -> Any:
    return _o.subtract(like(1, x), _o.multiply(x, x))


_DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "acos": lambda x, y: _o.negative(_o.rsqrt(_one_minus_square(x))),
    "acosh": lambda x, y: _o.rsqrt(_o.subtract(_o.multiply(x, x), like(1, x))),
    "asin": lambda x, y: _o.rsqrt(_one_minus_square(x)),
    "asinh": lambda x, y: _o.rsqrt(_one_plus_square(x)),
    "atan": lambda x, y: _o.reciprocal(_one_plus_square(x)),
    "atanh": lambda x, y: _o.reciprocal(_one_minus_square(x)),
    "cosh": lambda x, y: _o.sinh(x),
    "erf": lambda x, y: _o.multiply(like(2 / math.sqrt(math.pi), x), _o.exp(_o.negative(_o.multiply(x, x)))),
    "expm1": lambda x, y: _o.add(y, like(1, x)),
    "log10": lambda x, y: _o.reciprocal(_o.multiply(like(math.log(10), x), x)),
    "log1p": lambda x, y: _o.reciprocal(_o.add(like(1, x), x)),
    "log2": lambda x, y: _o.reciprocal(_o.multiply(like(math.log(2), x), x)),
    "reciprocal": lambda x, y: _o.negative(_o.multiply(y, y)),
    "rsqrt": lambda x, y: _o.multiply(like(-0.5, x), _o.multiply(y, _o.multiply(y, y))),
    "sinh": lambda x, y: _o.cosh(x),
    "tan": lambda x, y: _o.add(like(1, x), _o.multiply(y, y)),
}


for _name, _derivative in _DERIVATIVES.items():
    rule(_name)(of_one_element(lambda x, y, g, derivative=_derivative: _o.multiply(g, derivative(x, y))))


@rule("clip")
def _clip(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    low, high = (float(call.attrs[k]) for k in ("min", "max"))
    inside = _o.logical_and(_o.greater_equal(x, like(low, x)), _o.less_equal(x, like(high, x)))
    return [_o.where(inside, g, like(0, g))]


@rule("nn.leakyrelu")
def _leaky(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    return [_o.where(_o.less(x, like(0, x)), _o.multiply(like(float(call.attrs["alpha"]), g), g), g)]


@rule("linear")
def _linear(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, weight, *bias = call.args
    turned = _o.permute_dims(weight)
    rows = _o.reshape(x, ir.shape_expr((-1, *shape_of(x)[-1:])))
    adjoints = _o.reshape(g, ir.shape_expr((-1, *shape_of(weight)[:1])))
    weights = _o.matmul(_o.permute_dims(bb.emit(adjoints)), rows)
    return [_o.matmul(g, _o.permute_dims(bb.emit(turned))), weights, *(fit(bb, g, b) for b in bias)]


@rule("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def _global_avg_pool(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, layout = call.args[0], call.attrs["layout"]
    axes = [i for i, c in enumerate(layout) if c not in "NC"]
    if any(_sizes(y)[i] != 1 for i in axes):
        raise error.InvalidArgument("the gradient of adaptive pooling is that to one element", found=str(y.ty))
    count = math.prod(_sizes(x)[i] for i in axes)
    return [_o.broadcast_to(_o.divide(g, like(count, g)), ir.shape_expr(shape_of(x)))]


# --- reductions -------------------------------------------------------------------------------------------------------


def _spread(x: ir.Expr, call: ir.Call, value: ir.Expr) -> Any:
    """Give a reduced value its axes back."""
    axes, ndim = call.attrs["axis"], len(shape_of(x))
    if call.attrs["keepdims"] or not ndim:
        return value
    given = (axes,) if isinstance(axes, int) else axes or range(ndim)
    return _o.expand_dims(value, sorted(a % ndim for a in given))


@rule("max", "min")
def _extreme(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    best = _o.equal(x, _spread(x, call, y))
    return [_o.where(best, _spread(x, call, g), like(0, x))]


@rule("prod")
def _prod(y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    return [_o.divide(_o.multiply(_spread(x, call, g), _spread(x, call, y)), x)]


# --- moves ------------------------------------------------------------------------------------------------------------


def _sizes(x: ir.Expr) -> tuple[int, ...]:
    found = tuple(ir.as_int(d) for d in shape_of(x))
    if None in found:
        raise error.InvalidArgument("the gradient needs constant sizes", found=str(x.ty), where=x.span)
    return found  # type: ignore[return-value]


@rule("stack")
def _stack(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    fields = call.args[0].ty.fields
    axis = int(call.attrs["axis"]) % (fields[0].ndim + 1)
    return [ir.Tuple(tuple(_o.squeeze(_slice(g, axis, i, i + 1), [axis]) for i in range(len(fields))))]


def _slice(x: ir.Expr, axis: int, begin: int, end: int) -> Any:
    return _o.strided_slice(x, [axis], [begin], [end], [1])


@rule("strided_slice")
def _strided_slice(_y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    x, a = call.args[0], call.attrs
    sizes, made = _sizes(x), g
    steps = a["strides"] or (1,) * len(a["axes"])
    for axis, begin, step in zip(a["axes"], a["begin"], steps, strict=True):
        made = _put_back(bb.normalize(made, atom=False), axis % len(sizes), sizes, int(begin), int(step))
    return [made]


def _put_back(g: ir.Expr, axis: int, sizes: tuple[int, ...], begin: int, step: int) -> Any:
    """Put what was sliced along one axis back where it was, with zeros around."""
    have, size = _sizes(g), sizes[axis]
    count = have[axis]
    if step < 0:
        g, begin = _o.flip(g, axis), max(0, min(begin if begin >= 0 else begin + size, size - 1)) + step * (count - 1)
        step = -step
    first = min(begin if begin >= 0 else max(begin + size, 0), size)
    ndim = len(sizes)
    if step > 1:  # each element gets zeros behind it
        wide = _o.expand_dims(g, [axis + 1])
        width = [0] * (2 * (ndim + 1))
        width[2 * (axis + 1) + 1] = step - 1
        wide = _o.pad(wide, width)
        shape = (*have[:axis], count * step, *have[axis + 1 :])
        g = _o.reshape(wide, ir.shape_expr(shape))
        count = min(count * step, size - first)
        g = _slice(g, axis, 0, count)
    pads = [0] * (2 * ndim)
    pads[2 * axis : 2 * axis + 2] = [first, size - first - count]
    return _o.pad(g, pads) if any(pads) else g


@rule("nn.pad")
def _pad(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    if call.attrs["pad_mode"] != "constant":
        raise error.InvalidArgument("the gradient of pad is that of constants", found=str(call.attrs["pad_mode"]))
    width = [int(w) for w in call.attrs["pad_width"]]
    ends = [w + n for w, n in zip(width[::2], _sizes(call.args[0]), strict=True)]
    return [_o.strided_slice(g, list(range(len(ends))), width[::2], ends)]


@rule("tile")
def _tile(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, repeats = call.args[0], call.attrs["repeats"]
    sizes, times = _sizes(x), tuple(map(int, repeats if isinstance(repeats, (tuple, list)) else (repeats,)))
    rank = max(len(sizes), len(times))
    sizes, times = (1,) * (rank - len(sizes)) + sizes, (1,) * (rank - len(times)) + times
    parts = _o.reshape(g, ir.shape_expr([d for pair in zip(times, sizes, strict=True) for d in pair]))
    return [_o.reshape(_o.sum(parts, list(range(0, 2 * rank, 2))), ir.shape_expr(shape_of(x)))]


@rule("repeat")
def _repeat(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, times, axis = call.args[0], int(call.attrs["repeats"]), call.attrs["axis"]
    sizes = _sizes(x)
    at = len(sizes) - 1 if axis is None else axis % len(sizes)
    parts = _o.reshape(g, ir.shape_expr((*sizes[: at + 1], times, *sizes[at + 1 :])))
    return [_o.sum(parts, [at + 1])]


@rule("flip")
def _flip(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    return [_o.flip(g, call.attrs["axis"])]


@rule("gather_nd")
def _gather_nd(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x, indices = call.args
    if call.attrs["batch_dims"]:
        raise error.InvalidArgument("the gradient of gather_nd is that without batch_dims")
    return [_o.scatter_nd(_o.zeros_like(x), indices, g, "add"), _o.no_grad(indices)]


@rule("collapse_sum_to", "collapse_sum_like")
def _collapse_sum(_y: ir.Expr, call: ir.Call, g: ir.Expr, _bb: BlockBuilder) -> Any:
    x = call.args[0]
    return [_o.broadcast_to(g, ir.shape_expr(shape_of(x))), _o.no_grad(call.args[1])]


# --- windows ----------------------------------------------------------------------------------------------------------


def _windows(call: ir.Call, y: ir.Expr, fill: float, bb: BlockBuilder) -> tuple[Any, Callable[[Any], Any], list[Any]]:
    """The padded data, what takes its padding off, and for each place of the window (begin, end, stride) by axis.

    Behind the places stand the axes.
    """
    x, a = call.args[0], call.attrs
    layout, rank = a["layout"], len(a["pool_size"])
    if a.get("out_layout") not in (None, "", layout):
        raise error.InvalidArgument("the gradient of pooling keeps the layout", found=str(a["out_layout"]))
    axes = [i for i, c in enumerate(layout) if c not in "NC"]
    sizes, made, pads = _sizes(x), _sizes(y), list(map(int, a["padding"]))
    spans = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip((made[i] for i in axes), a["strides"], a["pool_size"], a["dilation"], strict=True)
    ]
    width = [0] * (2 * len(sizes))
    for i, axis in enumerate(axes):
        width[2 * axis] = pads[i]
        width[2 * axis + 1] = max(spans[i] - sizes[axis] - pads[i], 0)
    padded = bb.normalize(_o.pad(x, width, "constant", fill), atom=False)
    begins = [width[2 * i] for i in range(len(sizes))]
    ends = [b + n for b, n in zip(begins, sizes, strict=True)]
    places = [
        [
            (p * d, p * d + (made[axis] - 1) * s + 1, s)
            for p, d, s, axis in zip(at, a["dilation"], a["strides"], axes, strict=True)
        ]
        for at in itertools.product(*map(range, a["pool_size"]))
    ]
    return padded, lambda g: _o.strided_slice(g, list(range(len(sizes))), begins, ends), [*places, axes[:rank]]


def _at(x: ir.Expr, place: Any, axes: Any) -> Any:
    begins, ends, strides = (list(v) for v in zip(*place, strict=True))
    return _o.strided_slice(x, list(axes), begins, ends, strides)


def _back_at(g: ir.Expr, place: Any, axes: Any, sizes: tuple[int, ...], bb: BlockBuilder) -> Any:
    for axis, (begin, _, step) in zip(axes, place, strict=True):
        g = _put_back(bb.normalize(g, atom=False), axis, sizes, begin, step)
    return g


@rule("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def _max_pool(y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    padded, unpadded, (*places, axes) = _windows(call, y, -math.inf, bb)
    total, left = None, _o.ones_like(g)
    for place in places:  # of several greatest elements of a window the first takes all
        best = bb.emit(_o.multiply(_o.astype(_o.equal(_at(padded, place, axes), y), g.ty.dtype), left))
        left = bb.emit(_o.subtract(left, best))
        part = _back_at(_o.multiply(g, best), place, axes, _sizes(padded), bb)
        total = part if total is None else _o.add(total, part)
    return [unpadded(total)]


@rule("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def _avg_pool(y: ir.Expr, call: ir.Call, g: ir.Expr, bb: BlockBuilder) -> Any:
    padded, unpadded, (*places, axes) = _windows(call, y, 0.0, bb)
    x = call.args[0]
    if call.attrs["count_include_pad"]:
        each = bb.emit(_o.divide(g, like(len(places), g)))
    else:
        inside, _, _ = _windows(ir.Call(call.op, (bb.emit(_o.ones_like(x)),), call.attrs), y, 0.0, bb)
        counts = reduce(_o.add, (_at(inside, place, axes) for place in places))
        each = bb.emit(_o.divide(g, _o.maximum(counts, like(1, g))))
    return [unpadded(reduce(_o.add, (_back_at(each, place, axes, _sizes(padded), bb) for place in places)))]
