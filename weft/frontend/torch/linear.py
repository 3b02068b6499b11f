"""Products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.frontend.torch.node import Node
from weft.frontend.torch.norm import masked_softmax
from weft.frontend.torch.registry import aten, operators
from weft.frontend.torch.symbols import as_expr
from weft.relax import core_ops


@aten("mm", "bmm", "matmul", "mv", "dot")
def _matmul(node: Node) -> Any:
    other = next(node[k] for k in ("mat2", "other", "vec", "tensor") if k in node.args)
    return node.op("matmul", node["self"], other)


@aten("addmm", "baddbmm", "addbmm", "addmv")
def _add_product(node: Node) -> Any:
    a = node.get("mat1", node.get("batch1", node.get("mat")))
    b = node.get("mat2", node.get("batch2", node.get("vec")))
    product, added = node.op("matmul", a, b), node["self"]
    if node.name.startswith("aten.addbmm"):
        product = node.op("sum", product, axis=(0,))
    if node["alpha"] != 1:
        product = node.op("multiply", product, node.tensor(node["alpha"]))
    if node["beta"] == 0:
        return product
    if node["beta"] != 1:
        added = node.op("multiply", added, node.tensor(node["beta"]))
    return node.op("add", product, added)


def affine(node: Node, x: ir.Expr, weight: ir.Expr, bias: ir.Expr | None) -> Any:
    """A product with a transposed weight, and what is added to it."""
    out = node.op("matmul", x, node.permute(weight, range(len(weight.ty.shape))[::-1]))
    return out if bias is None else node.op("add", out, bias)


@aten("linear")
def _linear(node: Node) -> Any:
    return affine(node, node["input"], node["weight"], node["bias"])


@aten("_trilinear")
def _trilinear(node: Node) -> Any:
    """A sum of products of three operands that get further axes of 1."""
    node.get("unroll_dim")  # how PyTorch saves memory
    wide = []
    for x, axes in ((node[f"i{i}"], node[f"expand{i}"]) for i in (1, 2, 3)):
        own = iter(node.dims(x))
        wide.append(node.reshape(x, [1 if i in axes else next(own) for i in range(len(x.ty.shape) + len(axes))]))
    found = node.op("multiply", node.op("multiply", *wide[:2]), wide[2])
    return node.op("sum", found, axis=tuple(node["sumdim"])) if node["sumdim"] else found


@aten("convolution", "conv1d", "conv2d", "conv3d")
def _convolution(node: Node) -> Any:
    x, weight = node["input"], node["weight"]
    rank = len(weight.ty.shape) - 2
    single = len(x.ty.shape) == rank + 1
    x = node.reshape(x, [1, *node.dims(x)]) if single else x
    padding = node["padding"]
    dilation = each(node["dilation"], rank)
    low = high = each(0 if isinstance(padding, str) else padding, rank)
    if padding == "same":  # PyTorch takes it with strides of 1 only
        total = [d * (size - 1) for d, size in zip(dilation, node.dims(weight)[2:], strict=True)]
        low, high = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    strides, padding = each(node["stride"], rank), (*low, *high)
    attrs: dict[str, Any] = {"strides": strides, "padding": padding, "dilation": dilation, "groups": node["groups"]}
    output_padding = node.get("output_padding", 0)  # it says nothing of a convolution that is not transposed
    if node.get("transposed", False):
        attrs["output_padding"] = each(output_padding, rank)
        found = node.op(f"nn.conv{rank}d_transpose", x, weight, **attrs)
    elif isinstance(node["groups"], ir.PrimExpr):
        found = _of_open_groups(node, x, weight, attrs)
    else:
        found = node.op(f"nn.conv{rank}d", x, weight, **attrs)
    if node["bias"] is not None:
        found = node.op("add", found, node.reshape(node["bias"], [1, node.dims(node["bias"])[0], *[1] * rank]))
    return node.reshape(found, node.dims(found)[1:]) if single else found


def _of_open_groups(node: Node, x: Any, weight: Any, attrs: dict[str, Any]) -> Any:
    """A convolution whose number of groups the run tells, such as one with weights for each sample: a product for each.

    Windows are cut out, (samples, groups, a group's channels and places of the kernel, places of the result).
    """
    samples, channels, *kernel = node.dims(x)[0], *node.dims(weight)[1:]
    rank, groups, size = len(kernel), attrs["groups"], node.shape[-len(kernel) :]
    low, high = attrs["padding"][:rank], attrs["padding"][rank:]
    if any(attrs["padding"]):
        pairs = tuple(n for pair in zip(low, high, strict=True) for n in pair)
        x = node.op("nn.pad", x, pad_width=(0, 0, 0, 0, *pairs))
    for axis, (k, n) in enumerate(zip(kernel, size, strict=True)):
        stride, dilation = (node.scalar(attrs[name][axis], "int64") for name in ("strides", "dilation"))
        first = node.op("multiply", node.reshape(node.arange(n), [1, n]), stride)
        inner = node.op("multiply", node.reshape(node.arange(k), [k, 1]), dilation)
        x = node.op("take", x, node.op("add", first, inner), axis=2 + 2 * axis, mode="clip")
    x = node.permute(x, [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2)])
    depth = channels * node.product(kernel)
    x = node.reshape(x, [samples, groups, depth, node.product(size)])
    rows = node.symbols.analyzer.simplify(ir.floordiv(as_expr(node.dims(weight)[0]), groups))
    product = node.op("matmul", node.reshape(weight, [1, groups, rows, depth]), x)
    return node.reshape(product, [samples, node.dims(weight)[0], *size])


def each(values: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for each axis."""
    values = [values] if isinstance(values, int) else list(values)
    return tuple(values * rank if len(values) == 1 else values)


@aten(
    "scaled_dot_product_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_for_cpu",
)
def _attention(node: Node) -> Any:
    if node.get("dropout_p", 0.0):
        node.error("attention with dropout", help="export the module after .eval()")
    mask = node.get("attn_mask", node.get("attn_bias"))
    q, k, v = node["query"], node["key"], node["value"]
    grouped = bool(node.get("enable_gqa", "enable_gqa" not in node.args))  # without a word of it, PyTorch's kernel does
    if len(q.ty.shape) == 4 and (grouped or _leading_agree(node, q, k, v)):
        out = _by_heads(node, q, k, v, mask, grouped)
    else:
        out = _written_out(node, q, k, v, mask)
    if not isinstance(node.value, (list, tuple)):
        return out
    if node.used - {0}:
        node.error("results of attention besides the first")
    return [out]


def _by_heads(node: Node, q: Any, k: Any, v: Any, mask: Any, grouped: bool) -> Any:
    if grouped:
        k, v = (_heads(node, x, node.dims(q)[1]) for x in (k, v))
    operands = [node.permute(x, [0, 2, 1, 3]) for x in (q, k, v)]
    attrs: dict[str, Any] = {"causal_mask": "TopLeft"} if node.get("is_causal", False) else {}
    if node.get("scale") is not None:
        attrs["scale"] = float(node["scale"])
    if mask is not None:
        operands.append(_bias(node, mask, q))
    return node.permute(node.op("nn.attention", *operands, **attrs), [0, 2, 1, 3])


def _leading_agree(node: Node, *operands: Any) -> bool:
    first, *rest = (node.dims(x)[:-2] for x in operands)
    return all(node.same(first, other) for other in rest)


def _bias(node: Node, mask: Any, q: Any) -> Any:
    """A mask as numbers to add, of four dimensions."""
    if mask.ty.dtype == "bool":
        mask = node.op("where", mask, node.scalar(0, node.dtype), node.scalar(float("-inf"), node.dtype))
    mask = node.reshape(mask, [*[1] * (4 - len(mask.ty.shape)), *node.dims(mask)])
    return node.expand(mask, [*node.dims(q)[:2], *node.dims(mask)[2:]])


def _heads(node: Node, x: Any, heads: Any) -> Any:
    """Repeat each head of keys or values for the queries that share it."""
    batch, own, rows, size = node.dims(x)
    if own == heads:
        return x
    wide = node.expand(node.reshape(x, [batch, own, 1, rows, size]), [batch, own, heads // own, rows, size])
    return node.reshape(wide, [batch, heads, rows, size])


def _written_out(node: Node, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention by its formula, for operands whose leading dimensions broadcast."""
    rank = len(k.ty.shape)
    scale = node.get("scale")
    if scale is None:
        scale = node.op("rsqrt", node.tensor(node.dims(q)[-1], node.dtype))
    scores = node.op("matmul", q, node.permute(k, [*range(rank - 2), rank - 1, rank - 2]))
    scores = node.op("multiply", scores, node.tensor(scale))
    if node.get("is_causal", False):
        rows, columns = node.dims(q)[-2], node.dims(k)[-2]
        mask = node.op("less_equal", node.arange(columns), node.reshape(node.arange(rows), [rows, 1]))
    if mask is not None and mask.ty.dtype == "bool":
        mask = node.op("where", mask, node.scalar(0, node.dtype), node.scalar(float("-inf"), node.dtype))
    if mask is None:
        return node.op("matmul", node.op("nn.softmax", scores, axis=-1), v)
    return node.op("matmul", masked_softmax(node, node.op("add", scores, mask), rank - 1), v)


@operators("aten._grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_product(node: Node) -> Any:
    """Runs of rows, each by a matrix of its own; how long the runs are is data. Rows behind the last are zero."""
    x, weights = node.get("self", node.get("input")), node.get("mat2", node.get("weight"))
    ends = node["offs"]
    if ends is None or len(x.ty.shape) != 2 or len(weights.ty.shape) != 3:
        node.error("a grouped product", expected="rows (n, k), matrices (groups, k, m) and ends of groups")
    if node.get("bias") is not None:
        node.error("a grouped product with a bias")
    groups, _, columns = node.dims(weights)
    if not isinstance(groups, int):
        node.error("a grouped product of an unknown number of groups")
    known = tuple(node.symbols.fresh("end") for _ in range(groups))
    places = [ir.const(0, "int64"), *known, node.dims(x)[0]]
    ends = node.op("minimum", node.astype(ends, "int64"), node.tensor(places[-1], "int64"))
    node.bb.match_cast(node.emit(core_ops.tensor_to_shape(ends)), ir.ShapeType(known, groups))
    parts = []
    for i in range(groups):
        rows = node.op("strided_slice", x, axes=(0,), begin=(places[i],), end=(places[i + 1],), assume_inbound=True)
        own = node.op("strided_slice", weights, axes=(0,), begin=(i,), end=(i + 1,))
        parts.append(node.op("matmul", rows, node.op("squeeze", own, axis=(0,))))
    parts.append(node.full([places[-1] - places[-2], columns], 0, node.dtype))
    return node.op("concat", ir.Tuple(tuple(parts)), axis=0)


@aten("einsum")
def _einsum(node: Node) -> Any:
    return node.op("einsum", ir.Tuple(tuple(node["tensors"])), subscripts=node["equation"].replace(" ", ""))
