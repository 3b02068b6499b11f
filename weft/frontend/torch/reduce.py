"""Reductions over axes, running sums, sorting."""

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.complex_arithmetic import Complex
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten


def _reduced(node: Node, name: str, x: Any, axes: Any, keepdim: bool) -> Any:
    axes = node.axes(axes, len(x.ty.shape))
    return node.op(name, x, axis=tuple(axes), keepdims=keepdim) if axes else x


@aten("sum", "mean", "prod", "amax", "amin", "nansum")
def _reduce(node: Node) -> Any:
    name = node.name.split(".")[1]
    plain = {"amax": "max", "amin": "min", "nansum": "sum"}.get(name, name)
    x, dtype = node["self"], node.dtype
    wide = "int32" if dtype == "bool" else dtype
    x = node.astype(x, wide)
    if name == "nansum" and ir.DataType(dtype).is_float:
        x = node.op("where", node.op("isnan", x), node.scalar(0, dtype), x)
    return _reduced(node, plain, x, node.get("dim"), bool(node.get("keepdim", False)))


@aten("any", "all")
def _any(node: Node) -> Any:
    x = node["self"]
    name = "max" if node.name.startswith("aten.any") else "min"
    found = _reduced(node, name, node.astype(node.truth(x), "uint8"), node.get("dim"), bool(node.get("keepdim", False)))
    return node.op("not_equal", found, node.scalar(0, "uint8"))


@aten("max.dim", "min.dim")
def _extreme(node: Node) -> Any:
    x, name = node["self"], node.name.split(".")[1]
    if not x.ty.shape:
        return [x, node.scalar(0, "int64")]
    axis = node.axis(node["dim"], len(x.ty.shape))
    ordered = node.astype(x, "uint8") if x.ty.dtype == "bool" else x
    values = node.op(name, ordered, axis=(axis,), keepdims=node["keepdim"]) if 0 in node.used else None
    places = node.op(f"arg{name}", ordered, axis=axis, keepdims=node["keepdim"]) if 1 in node.used else None
    return [values, places]


@aten("max", "min")
def _extreme_of_all(node: Node) -> Any:
    name, x = node.name.split(".")[1], node["self"]
    return _reduced(node, name, node.astype(x, "uint8") if x.ty.dtype == "bool" else x, None, False)


@aten("argmax", "argmin")
def _place(node: Node) -> Any:
    x, name = node["self"], node.name.split(".")[1]
    keep = node["keepdim"]
    if node["dim"] is None or not x.ty.shape:
        found = node.op(name, node.reshape(x, [node.product(node.dims(x))]), axis=0)
        return node.reshape(found, node.shape)
    return node.op(name, x, axis=node.axis(node["dim"], len(x.ty.shape)), keepdims=keep)


@aten(
    "var.correction", "var.dim", "var", "std.correction", "std.dim", "std", "var_mean.correction", "std_mean.correction"
)
def _variance(node: Node) -> Any:
    x, dtype = node["self"], node.dtype
    correction = node.get("correction", 1 if node.get("unbiased", True) else 0)
    axes = node.axes(node.get("dim"), len(x.ty.shape))
    keep = bool(node.get("keepdim", False))
    count = node.product([node.dims(x)[axis] for axis in axes])
    mean = node.op("mean", x, axis=tuple(axes), keepdims=True) if axes else x
    offset = node.op("subtract", x, mean)
    offset = node.op("abs", offset) if isinstance(offset, Complex) else offset
    total = _reduced(node, "sum", node.op("multiply", offset, offset), axes, keep) if axes else offset
    degrees = node.op("subtract", node.tensor(count, dtype), node.tensor(correction, dtype))
    found = node.op("divide", total, node.op("maximum", degrees, node.scalar(0, dtype)))
    found = node.op("sqrt", found) if node.name.startswith("aten.std") else found
    if "_mean" not in node.name:
        return found
    return [found, mean if keep or not axes else node.op("squeeze", mean, axis=tuple(axes))]


@aten("logsumexp")
def _log_sum_exp(node: Node) -> Any:
    x = node.astype(node["self"], node.dtype)
    axes = tuple(node.axes(node["dim"], len(x.ty.shape)))
    if not axes:
        return x
    top = node.op("max", x, axis=axes, keepdims=True)
    finite = node.op("where", node.op("isfinite", top), top, node.scalar(0, node.dtype))
    total = node.op("sum", node.op("exp", node.op("subtract", x, finite)), axis=axes, keepdims=True)
    found = node.op("add", node.op("log", total), finite)
    return found if node["keepdim"] else node.op("squeeze", found, axis=axes)


@aten("cumsum", "cumprod")
def _running(node: Node) -> Any:
    x = node.astype(node["self"], node.dtype)
    if not x.ty.shape:
        return x
    return node.op(node.name.split(".")[1], x, axis=node.axis(node["dim"], len(x.ty.shape)))


@aten("topk")
def _topk(node: Node) -> Any:
    x = node["self"]
    if not x.ty.shape:
        return [x, node.scalar(0, "int64")]
    axis = node.axis(node["dim"], len(x.ty.shape))
    if isinstance(node["k"], int):
        found = node.op("topk", x, k=node["k"], axis=axis, largest=node["largest"], dtype="int64")
        return node.fields(found)
    values, places = ordered(node, x, axis, node["largest"])
    cut = {"axes": (axis,), "begin": (0,), "end": (node["k"],)}
    return [node.op("strided_slice", part, **cut) for part in (values, places)]


def ordered(node: Node, x: ir.Expr, axis: int, descending: bool) -> list[Any]:
    """The elements along an axis in their order, and where each was."""
    places = node.op("argsort", x, axis=axis, descending=descending, dtype="int64")
    return [node.op("gather_elements", x, places, axis=axis), places]


@aten("sort")
def _sort(node: Node) -> Any:
    x = node["self"]
    if not x.ty.shape:
        return [x, node.scalar(0, "int64")]
    return ordered(node, x, node.axis(node["dim"], len(x.ty.shape)), node["descending"])


@aten("argsort")
def _argsort(node: Node) -> Any:
    x = node["self"]
    axis = node.axis(node["dim"], len(x.ty.shape))
    return node.op("argsort", x, axis=axis, descending=node["descending"], dtype="int64")


@aten("linalg_vector_norm")
def _vector_norm(node: Node) -> Any:
    x, order = node.op("abs", node.astype(node["self"], node.dtype)), float(node["ord"])
    axes, keep, dtype = node.get("dim"), node["keepdim"], node.dtype
    if order in (np.inf, -np.inf):
        return _reduced(node, "max" if order > 0 else "min", x, axes, keep)
    if order == 0:
        return _reduced(node, "sum", node.astype(node.op("not_equal", x, node.scalar(0, dtype)), dtype), axes, keep)
    if order == 1:
        return _reduced(node, "sum", x, axes, keep)
    if order == 2:
        return node.op("sqrt", _reduced(node, "sum", node.op("multiply", x, x), axes, keep))
    total = _reduced(node, "sum", node.op("power", x, node.scalar(order, dtype)), axes, keep)
    return node.op("power", total, node.scalar(1 / order, dtype))


@aten("dist")
def _distance(node: Node) -> Any:
    apart = node.op("subtract", *(node.tensor(node[k]) for k in ("self", "other")))
    return _vector_norm(node.with_args({"self": apart, "ord": node["p"], "dim": None, "keepdim": False}))


@aten("multilabel_margin_loss_forward")
def _multilabel_margin(node: Node) -> Any:
    """PyTorch's own parts take what stands behind the first -1 for labels of class 0."""
    dims, dtype, none = node.dims(node["self"]), node.dtype, node.scalar(-1, "int64")
    rows, count = [1, 1, *dims][-2:]
    x, labels = (node.reshape(node[name], [rows, count]) for name in ("self", "target"))
    ended = node.op("cumsum", node.astype(node.op("equal", labels, none), "int64"), axis=1)
    labels = node.op("where", node.truth(ended), none, labels)
    each = node.reshape(labels, [rows, count, 1])
    named = node.op("max", node.astype(node.op("equal", each, node.arange(count)), "uint8"), axis=(1,), keepdims=True)
    others = node.op("logical_and", node.op("greater", each, none), node.op("equal", named, node.scalar(0, "uint8")))
    beyond = node.op("where", node.op("less", labels, none), node.tensor(count, "int64"), node.scalar(0, "int64"))
    scores = node.op("gather_elements", x, node.op("maximum", labels, beyond), axis=1)  # which refuses what is no label
    short = node.op("subtract", node.reshape(x, [rows, 1, count]), node.reshape(scores, [rows, count, 1]))
    short = node.op("maximum", node.op("add", short, node.scalar(1, dtype)), node.scalar(0, dtype))
    loss = node.op("sum", node.op("where", others, short, node.scalar(0, dtype)), axis=(1, 2))
    loss = node.op("divide", loss, node.tensor(count, dtype))
    whole = {1: "mean", 2: "sum"}.get(node["reduction"])
    loss = node.op(whole, loss) if whole else node.reshape(loss, dims[:-1])
    return [loss, node.reshape(node.astype(named, dtype), dims)]
