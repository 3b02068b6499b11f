"""Pooling over windows."""

from typing import Any

from weft import ir
from weft.frontend.torch.linear import each
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten


def _batched(node: Node, x: Any, rank: int) -> Any:
    return node.reshape(x, [1, *node.dims(x)]) if len(x.ty.shape) == rank + 1 else x


def _windows(node: Node, rank: int) -> dict[str, Any]:
    kernel = each(node["kernel_size"], rank)
    padding = each(node["padding"], rank)
    strides, padding = each(node["stride"], rank) if node.get("stride") else kernel, (*padding, *padding)
    return {"pool_size": kernel, "strides": strides, "padding": padding, "ceil_mode": node["ceil_mode"]}


@aten(*(f"max_pool{rank}d{more}" for rank in (1, 2, 3) for more in ("", "_with_indices")))
def _max_pool(node: Node) -> Any:
    rank = int(node.name.split("max_pool")[1][0])
    x = _batched(node, node["self"], rank)
    attrs = {**_windows(node, rank), "dilation": each(node["dilation"], rank)}
    single = len(node["self"].ty.shape) == rank + 1
    if "with_indices" not in node.name or 1 not in node.used:
        out = node.op(f"nn.max_pool{rank}d", x, **attrs)
        out = node.reshape(out, node.dims(out)[1:]) if single else out
        return [out, None] if "with_indices" in node.name else out
    out, places = node.fields(node.op("nn.max_pool_with_indices", x, **attrs))
    plane = node.tensor(node.product(node.dims(x)[2:]), "int64")
    places = node.op("floor_mod", places, plane)  # within its plane, as PyTorch counts
    return [node.reshape(part, node.dims(part)[1:]) if single else part for part in (out, places)]


@aten("max_pool2d_with_indices_backward")
def _max_pool_backward(node: Node) -> Any:
    """Gradients, added up where the greatest elements were."""
    for name in ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode"):
        node.get(name)  # the places say it all
    dims, given = node.shape, node.dims(node["grad_output"])
    lead, plane, windows = node.product(dims[:-2]), node.product(dims[-2:]), node.product(given[-2:])
    grad, places = (node.reshape(node[k], [lead, windows]) for k in ("grad_output", "indices"))
    room = node.full([lead, plane], 0, node.dtype)
    return node.reshape(node.op("scatter_elements", room, places, grad, axis=1, reduction="add"), dims)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(node: Node) -> Any:
    rank = int(node.name.split("avg_pool")[1][0])
    attrs, divisor, padded = _windows(node, rank), node.get("divisor_override"), node["count_include_pad"]
    integral = not ir.DataType(node.dtype).is_float  # whose means are rounded towards zero
    x = node.astype(_batched(node, node["self"], rank), "float64" if integral and divisor is not None else node.dtype)
    out = node.op(f"nn.avg_pool{rank}d", x, **attrs, count_include_pad=padded and divisor is None)
    if divisor is not None:
        total = node.op("multiply", out, _covered(node, x, attrs, rank))
        out = node.op("divide", node.op("round", total) if integral else total, node.scalar(divisor, x.ty.dtype))
        out = node.astype(node.op("trunc", out), node.dtype) if integral else out
    return node.reshape(out, node.dims(out)[1:]) if len(node["self"].ty.shape) == rank + 1 else out


def _covered(node: Node, x: Any, attrs: dict[str, Any], rank: int) -> Any:
    """How many elements of the image lie in each window: the product of what each axis covers."""
    found: Any = node.scalar(1, "int64")
    for axis in range(rank):
        size, windows = node.dims(x)[2 + axis], node.shape[-rank + axis]
        stride, kernel, low = (attrs[k][axis] for k in ("strides", "pool_size", "padding"))
        first = node.op("multiply", node.arange(windows), node.scalar(stride, "int64"))
        first = node.op("subtract", first, node.scalar(low, "int64"))
        end = node.op("minimum", node.op("add", first, node.scalar(kernel, "int64")), node.tensor(size, "int64"))
        covered = node.op("subtract", end, node.op("maximum", first, node.scalar(0, "int64")))
        found = node.op("multiply", found, node.reshape(covered, [windows, *[1] * (rank - 1 - axis)]))
    return node.astype(found, x.ty.dtype)


@aten(*(f"adaptive_avg_pool{rank}d" for rank in (1, 2, 3)), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(node: Node) -> Any:
    rank = int(node.name.split("avg_pool")[1][0])
    return _adaptive(node, "avg", _batched(node, node["self"], rank), list(node["output_size"]))


def _adaptive(node: Node, kind: str, x: ir.Expr, size: list[Any]) -> Any:
    """Pool to a size; open dimensions of it, which the images have too, are a part of the batch."""
    kept = [axis for axis, n in enumerate(size, 2) if not isinstance(n, int)]
    if not node.same([node.dims(x)[axis] for axis in kept], [size[axis - 2] for axis in kept]):
        node.error("pooling to a size that is not known", expected="numbers, or sizes of the image", found=str(size))
    order = [0, *kept, 1, *(axis for axis in range(2, len(size) + 2) if axis not in kept)]
    moved = node.permute(x, order)
    lead, inner = node.dims(moved)[: len(kept) + 1], node.dims(moved)[len(kept) + 1 :]
    out, known = node.reshape(moved, [node.product(lead), *inner]), tuple(n for n in size if isinstance(n, int))
    if kind == "avg" and all(n == 1 for n in known):
        out = node.op("mean", out, axis=tuple(range(2, len(known) + 2)), keepdims=True) if known else out
    elif known:
        out = node.op(f"nn.adaptive_{kind}_pool{len(known)}d", out, output_size=known)
    out = node.reshape(out, [*lead, *node.dims(out)[1:]])
    return node.reshape(node.permute(out, [order.index(axis) for axis in range(len(order))]), node.shape)


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(node: Node) -> Any:
    rank = int(node.name.split("max_pool")[1][0])
    x = _batched(node, node["self"], rank)
    if 1 in node.used:
        found = _greatest(node, x, node["output_size"])
    else:
        found = [_adaptive(node, "max", x, list(node["output_size"])), None]
    return [part if part is None else node.reshape(part, node.shape) for part in found]


def _greatest(node: Node, x: Any, counts: Any) -> list[Any]:
    """The greatest elements of windows of several lengths, and where in the image: the last one may come twice."""
    places, rank = node.scalar(0, "int64"), len(counts)
    for axis, (size, count) in enumerate(zip(node.dims(x)[2:], counts, strict=True)):
        total, parts, column = node.tensor(size, "int64"), node.scalar(count, "int64"), [count, 1]
        first = node.op("multiply", node.arange(count), total)
        last = node.op("subtract", node.op("add", first, total), node.scalar(1, "int64"))
        first, last = (node.reshape(node.op("floor_divide", edge, parts), column) for edge in (first, last))
        width = (size - 1) // count + 2
        here = node.op("minimum", node.op("add", first, node.arange(width)), last)
        around = [1] * axis, [1] * (rank - 1 - axis)
        here = node.reshape(here, [*around[0], count, *around[1], *around[0], width, *around[1]])
        places = node.op("add", node.op("multiply", places, total), here)
    dims = node.dims(places)
    places = node.reshape(places, [node.product(dims[:rank]), node.product(dims[rank:])])
    flat = node.reshape(x, [*node.dims(x)[:2], node.product(node.dims(x)[2:])])
    taken = node.op("take", flat, places, axis=2, mode="clip")
    chosen = node.op("argmax", taken, axis=3, keepdims=True)
    return [node.op("gather_elements", part, chosen, axis=3) for part in (taken, node.expand(places, node.dims(taken)))]
