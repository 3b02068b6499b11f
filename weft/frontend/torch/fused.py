"""Layers that PyTorch runs as one operator where no gradient is wanted: attention and layers of encoders."""

from typing import Any

from weft.frontend.torch.linear import affine
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten

_PADDING = 1
"""The kind of a mask of (batch, keys); 0 is one of (queries, keys), 2 has all four dimensions."""


def _bias(node: Node, mask: Any, batch: Any, queries: Any) -> Any:
    """What is added to scores, (batch, 1 or heads, queries, keys): true elements of a mask leave a key out."""
    if node["mask_type"] is None:
        node.error("a mask without its kind")
    if mask.ty.dtype != "bool":
        mask = node.op("not_equal", mask, node.scalar(0, mask.ty.dtype))
    dims = node.dims(mask)
    dims = [dims[0], 1, 1, dims[1]] if node["mask_type"] == _PADDING else [*[1] * (4 - len(dims)), *dims]
    mask = node.expand(node.reshape(mask, dims), [batch, dims[1], queries, dims[3]])
    return node.op("where", mask, node.scalar(float("-inf"), node.dtype), node.scalar(0, node.dtype))


def _attention(node: Node, query: Any, key: Any, value: Any, heads: int) -> Any:
    """Attention of (batch, rows, width) with the projections of all three in one matrix."""
    width = int(node["embed_dim"])
    parts = []
    for i, x in enumerate((query, key, value)):
        cut = {"axes": (0,), "begin": (i * width,), "end": ((i + 1) * width,)}
        weight, bias = (node.op("strided_slice", node[k], **cut) for k in ("qkv_weight", "qkv_bias"))
        y = affine(node, x, weight, bias)
        parts.append(node.reshape(y, [*node.dims(x)[:2], heads, width // heads]))
    mask = node.get("mask")
    extra = [] if mask is None else [_bias(node, mask, *node.dims(query)[:2])]
    out = node.reshape(node.op("nn.attention", *parts, *extra), node.dims(query))
    return affine(node, out, node["proj_weight"], node["proj_bias"])


@aten("_native_multi_head_attention")
def _multi_head(node: Node) -> Any:
    if 1 in node.used:
        node.error("the weights of attention", help="call the layer with need_weights=False")
    node.read.update(("need_weights", "average_attn_weights"))
    return [_attention(node, node["query"], node["key"], node["value"], node["num_head"]), None]


@aten("_transformer_encoder_layer_fwd")
def _encoder_layer(node: Node) -> Any:
    x = node["src"]

    def norm(x: Any, i: int) -> Any:
        return node.op(
            "nn.layer_norm", x, node[f"norm_weight_{i}"], node[f"norm_bias_{i}"], axes=(2,), epsilon=float(node["eps"])
        )

    def fed(x: Any) -> Any:
        inner = affine(node, x, node["ffn_weight_1"], node["ffn_bias_1"])
        inner = node.op("nn.gelu" if node["use_gelu"] else "nn.relu", inner)
        return affine(node, inner, node["ffn_weight_2"], node["ffn_bias_2"])

    if node["norm_first"]:
        x = node.op("add", x, _attention(node, *[norm(x, 1)] * 3, node["num_heads"]))
        return node.op("add", x, fed(norm(x, 2)))
    x = norm(node.op("add", x, _attention(node, x, x, x, node["num_heads"])), 1)
    return norm(node.op("add", x, fed(x)), 2)
