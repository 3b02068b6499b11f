"""Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import Expr, PrimExpr, TensorType, as_int, const, constant, int64, shape_expr
from weft.op.attributes import integer, integers, number, word
from weft.op.infer import dims_of, same_dtype, simplify, tensor_arg
from weft.op.registry import declare, make_call
from weft.op.relations import demand_at_least, demand_broadcast_to, demand_divisible, demand_equal, demand_same_shape
from weft.topi.attention import attention, attention_heads, attention_past, attention_scale
from weft.topi.cached_attention import cache_append, cached_attention

_MASKED = {
    "scale": number().or_none(),
    "causal_mask": word("TopLeft", "TopLeft", "BottomRight").or_none(),
    "window_size": integer(at_least=0).or_none(),
}
_HEADS = {
    "num_heads": integer(1, at_least=1),
    "num_key_heads": integer(1, at_least=1),
    "size": integer(0, at_least=0),
    "value_size": integer(0, at_least=0),
    "offsets": integers((0, 0, 0), 3),
}
_FILL = number().or_none()
_UNSEEN = word("zero", "zero", "nan")
"""What a query that sees no key gives: 0 as in PyTorch's and ONNX's, NaN as where a softmax is written out."""


def _infer(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    *,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
    unseen: str,
) -> TensorType:
    types = [
        tensor_arg("nn.attention", n, a, ndim=4, kind="float")
        for n, a in (("query", query), ("key", key), ("value", value))
    ]
    dtype = same_dtype("nn.attention", query, key, value)
    if bias is not None:
        tensor_arg("nn.attention", "bias", bias, kind="float")
    if window_size is not None and causal_mask is None:
        raise InvalidArgument("nn.attention: a window needs a mask", expected="causal_mask", where=query.span)
    q, k, v = (t.shape for t in types)
    if q is None or k is None or v is None:
        return TensorType(None, dtype, 4)
    for i, a, b in ((0, q[0], k[0]), (3, q[3], k[3]), (1, k[1], v[1]), (2, k[2], v[2])):
        demand_equal(f"nn.attention: dimension {i} of query, key and value", b, a, query.span)
    if scale is None:
        demand_at_least("nn.attention: size of a head, whose root is the scale", q[3], 1, query.span)
    demand_equal("nn.attention: batch of 'value'", v[0], k[0], query.span)
    demand_divisible("nn.attention: query heads", q[2], k[2], query.span)
    _demand_bias("nn.attention", bias, (q[0], q[2], q[1], k[1]))
    return TensorType((q[0], q[1], q[2], v[3]), dtype, 4)  # type: ignore[index]


def _demand_bias(name: str, bias: Expr | None, scores: tuple[Any, ...]) -> None:
    """Demand that a bias broadcasts to (batch, heads, queries, keys)."""
    dims = dims_of(bias) if bias is not None else None
    if dims is None:
        return
    if len(dims) > 4:
        raise ShapeMismatch(f"{name}: 'bias' has too many dimensions", expected="at most 4", found=str(len(dims)))
    for i, (d, e) in enumerate(zip(reversed(dims), reversed(scores), strict=False)):
        demand_broadcast_to(f"{name}: dimension {-1 - i} of 'bias'", d, e)


def _ref(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
    unseen: str = "zero",
    fill: float | None = None,
) -> Any:
    q, k, v = (np.moveaxis(a.astype(np.float64), 2, 1) for a in (query, key, value))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if bias is not None:
        hidden = -np.inf if fill is None else fill
        scores = np.where(bias, scores, hidden) if bias.dtype == np.bool_ else scores + bias
    offset = k.shape[2] - q.shape[2] if causal_mask == "BottomRight" else 0
    i, j = np.ogrid[: q.shape[2], : k.shape[2]]
    seen = (j <= i + offset if causal_mask else j >= 0) & (
        j > i + offset - window_size if window_size is not None else j >= 0
    )
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - top)
    weights = np.where((top == -np.inf) & (unseen == "zero"), 0, e / e.sum(-1, keepdims=True))
    return np.ascontiguousarray(np.moveaxis(weights @ v, 1, 2)).astype(query.dtype)


def _decompose(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    *,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
    unseen: str,
) -> Any:
    """Products over (batch, heads, sequence, size), whose kernels are tiled, around one softmax."""
    types = [a.ty for a in (query, key, value)]  # type: ignore[attr-defined]
    if any(t.shape is None for t in types):
        return None
    q, k = types[0].shape, types[1].shape
    factor, dtype = attention_scale(scale, q[3]), types[0].dtype
    shared = as_int(q[2]) // as_int(k[2]) if as_int(q[2]) and as_int(k[2]) else None  # type: ignore[operator]
    if factor is None or shared is None or dtype not in ("float32", "float64"):
        return None
    heads_first = [make_call("permute_dims")(a, axes=(0, 2, 1, 3)) for a in (query, key, value)]
    if shared > 1:
        heads_first[1:] = [make_call("repeat")(a, repeats=shared, axis=1) for a in heads_first[1:]]
    turned = make_call("permute_dims")(heads_first[1], axes=(0, 1, 3, 2))
    scores = make_call("multiply")(make_call("matmul")(heads_first[0], turned), constant(np.asarray(factor, dtype)))
    if bias is not None:
        scores = make_call("add")(scores, bias)
    low = constant(np.asarray(-np.inf, dtype))
    if causal_mask is not None:
        offset = simplify(k[1] - q[1]) if causal_mask == "BottomRight" else int64(0)
        seen = make_call("tril")(make_call("ones")(shape_expr((q[1], k[1])), dtype="bool"), k=offset)
        if window_size is not None:
            seen = make_call("triu")(seen, k=simplify(offset - const(window_size - 1, "int64")))
        scores = make_call("where")(seen, scores, low)
    weights = make_call("nn.softmax")(scores, axis=-1)
    if unseen == "zero" and (bias is not None or causal_mask == "BottomRight" or window_size is not None):
        nothing = make_call("equal")(make_call("max")(scores, axis=-1, keepdims=True), low)
        weights = make_call("where")(nothing, constant(np.asarray(0, dtype)), weights)
    out = make_call("matmul")(weights, heads_first[2])
    return make_call("permute_dims")(out, axes=(0, 2, 1, 3))


declare(
    "nn.attention",
    "query key value bias?",
    {**_MASKED, "unseen": _UNSEEN},
    infer=_infer,
    lower=attention,
    reference=_ref,
    decompose=_decompose,
    rtol=1e-4,
    doc="Scaled dot-product attention over (batch, sequence, heads, size), with a bias that broadcasts to "
    "(batch, heads, queries, keys), a causal mask and a window of past keys. Queries that see no key give 0, or "
    "NaN where `unseen` is 'nan'.",
)


def _heads_infer(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    *,
    num_heads: int,
    num_key_heads: int,
    size: int,
    value_size: int,
    offsets: Sequence[int],
    name: str = "nn.attention_heads",
    past: PrimExpr | None = None,
    **_scores: Any,
) -> TensorType:
    dtype = same_dtype(name, query, key, value)
    widths = ((num_heads, size), (num_key_heads, size), (num_key_heads, value_size))
    places = []
    for (heads, wide), begin, label, arg in zip(
        widths, offsets, ("query", "key", "value"), (query, key, value), strict=True
    ):
        ty = tensor_arg(name, label, arg, kind="float")
        if ty.ndim not in (3, 4):
            raise ShapeMismatch(
                f"{name}: `{label}` has rows of all heads, or heads before positions",
                expected="3 or 4 dimensions",
                found=str(ty.ndim),
                where=arg.span,
            )
        if ty.shape is None:
            return TensorType(None, dtype, 4)
        if ty.ndim == 4:
            demand_equal(f"{name}: heads of `{label}`", ty.shape[1], heads, arg.span)
            demand_equal(f"{name}: size of a head of `{label}`", ty.shape[3], wide, arg.span)
        else:
            what = f"{name}: `{label}` does not hold {heads} heads of {wide}; columns"
            demand_at_least(what, ty.shape[2], begin + heads * wide, arg.span)
        demand_equal(f"{name}: batch of `{label}`", ty.shape[0], query.ty.shape[0], arg.span)  # type: ignore[attr-defined]
        places.append(ty.shape[1 if ty.ndim == 3 else 2])
    demand_equal(f"{name}: length of `value`", places[2], places[1], value.span)
    if num_heads % num_key_heads:
        raise InvalidArgument(
            f"{name}: attributes do not fit",
            expected="num_heads a multiple of num_key_heads",
            found=f"{num_heads}, {num_key_heads}",
            where=query.span,
        )
    if bias is not None:
        tensor_arg(name, "bias", bias)
        keys = places[1] if past is None else places[1] + past
        _demand_bias(name, bias, (query.ty.shape[0], int64(num_heads), places[0], keys))  # type: ignore[attr-defined]
    return TensorType((query.ty.shape[0], places[0], int64(num_heads), int64(value_size)), dtype, 4)  # type: ignore[attr-defined]


def _heads_ref(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    num_heads: int,
    num_key_heads: int,
    size: int,
    value_size: int,
    offsets: Sequence[int],
    **scores: Any,
) -> Any:
    def heads(x: Any, n: int, wide: int, begin: int) -> Any:
        rows = x[..., begin : begin + n * wide]
        return np.moveaxis(x, 1, 2) if x.ndim == 4 else rows.reshape(*x.shape[:2], n, wide)

    shapes = ((num_heads, size), (num_key_heads, size), (num_key_heads, value_size))
    q, k, v = (heads(x, *s, o) for x, s, o in zip((query, key, value), shapes, offsets, strict=True))
    return _ref(q, k, v, bias, **scores)


declare(
    "nn.attention_heads",
    "query key value bias?",
    {**_HEADS, **_MASKED, "fill": _FILL, "unseen": _UNSEEN},
    infer=_heads_infer,
    lower=attention_heads,
    reference=_heads_ref,
    rtol=1e-4,
    doc="Attention that reads its operands in place: a tensor of three dimensions has rows in which `num_heads` (for "
    "keys and values `num_key_heads`) heads begin at its offset, one of four has heads before positions. A boolean "
    "`bias` puts `fill`, by default minus infinity, where it is false. The result is (batch, queries, heads, size).",
)


def _past_infer(
    query: Expr, key: Expr, value: Expr, past_key: Expr, past_value: Expr, bias: Expr | None = None, **attrs: Any
) -> TensorType:
    name = "nn.attention_past"
    same_dtype(name, query, past_key, past_value)
    batch, lengths = (dims_of(query) or (None,))[0], []
    for label, arg, wide in (("past_key", past_key, "size"), ("past_value", past_value, "value_size")):
        ty = tensor_arg(name, label, arg, ndim=4, kind="float")
        if ty.shape is not None and batch is not None:
            expected = (batch, int64(attrs["num_key_heads"]), ty.shape[2], int64(attrs[wide]))
            demand_same_shape(f"{name}: `{label}`", ty.shape, expected, arg.span)
            lengths.append(ty.shape[2])
    if len(lengths) == 2:
        demand_equal(f"{name}: length of `past_value`", lengths[1], lengths[0], past_value.span)
    return _heads_infer(query, key, value, bias, **attrs, name=name, past=lengths[0] if lengths else None)


def _past_ref(
    query: Any, key: Any, value: Any, past_key: Any, past_value: Any, bias: Any = None, *, offsets: Any, **attrs: Any
) -> Any:
    def joined(past: Any, x: Any, wide: int, begin: int) -> Any:
        if x.ndim == 3:
            x = np.moveaxis(x[..., begin : begin + attrs["num_key_heads"] * wide].reshape(*x.shape[:2], -1, wide), 1, 2)
        return np.concatenate([past, x], 2)

    return _heads_ref(
        query,
        joined(past_key, key, attrs["size"], offsets[1]),
        joined(past_value, value, attrs["value_size"], offsets[2]),
        bias,
        offsets=(offsets[0], 0, 0),
        **attrs,
    )


declare(
    "nn.attention_past",
    "query key value past_key past_value bias?",
    {**_HEADS, "scale": _MASKED["scale"], "fill": _FILL, "unseen": _UNSEEN},
    infer=_past_infer,
    lower=attention_past,
    reference=_past_ref,
    rtol=1e-4,
    doc="`nn.attention_heads` over keys and values of the past, (batch, heads, positions, size), and after them those "
    "of `key` and `value`: a cache is read where it lies.",
)


def _cached_infer(query: Expr, key: Expr, value: Expr, first: Expr) -> TensorType:
    name = "nn.cached_attention"
    q, k = (tensor_arg(name, n, e, ndim=4, kind="float") for n, e in (("query", query), ("key", key)))
    demand_same_shape(f"{name}: 'value'", tensor_arg(name, "value", value, ndim=4).shape, k.shape, query.span)
    starts = tensor_arg(name, "first", first, ndim=1, kind="integer").shape
    if q.shape is not None and k.shape is not None:
        demand_equal(f"{name}: sequences of 'key'", k.shape[0], q.shape[0], query.span)
        demand_equal(f"{name}: size of a head of 'key'", k.shape[3], q.shape[3], query.span)
        demand_at_least(f"{name}: heads of 'key'", k.shape[1], 1, query.span)
        demand_divisible(f"{name}: heads of 'query'", q.shape[1], k.shape[1], query.span)
        demand_same_shape(f"{name}: 'first'", starts, q.shape[:1], query.span)
    return TensorType(q.shape, q.dtype, 4)


def _cached_ref(query: Any, key: Any, value: Any, first: Any, scale: Any, window: int, softcap: float) -> Any:
    shared = query.shape[1] // key.shape[1]
    k, v = (np.repeat(a.astype(np.float64), shared, 1) for a in (key, value))
    factor = attention_scale(scale, query.shape[3])
    scores = np.einsum("bhid,bhtd->bhit", query.astype(np.float64), k) * factor
    scores = np.tanh(scores / softcap) * softcap if softcap else scores
    place = (np.clip(first, -(1 << 61), 1 << 61)[:, None] + np.arange(query.shape[2]))[:, None, :, None]
    at = np.arange(k.shape[2])
    seen = (at <= place) & ((at > place - window) if window >= 0 else True)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.where(seen, np.exp(scores - np.where(seen.any(-1, keepdims=True), top, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    return np.einsum("bhit,bhtd->bhid", weights, v).astype(query.dtype)


declare(
    "nn.cached_attention",
    "query key value first",
    {"scale": number().or_none(), "window": integer(-1, at_least=-1), "softcap": number(0.0)},
    infer=_cached_infer,
    lower=cached_attention,
    reference=_cached_ref,
    rtol=1e-4,
    doc="Attention of new queries (batch, heads, queries, size) over caches (batch, groups, held, size): query i of a "
    "sequence is at place ``first + i`` and sees the keys up to there, or the last `window` of them.",
)


def _append_infer(cache: Expr, new: Expr, first: Expr, shape: Expr) -> TensorType:
    name = "nn.cache_append"
    old, added = tensor_arg(name, "cache", cache, ndim=4), tensor_arg(name, "new", new, ndim=4)
    starts = tensor_arg(name, "first", first, ndim=1, kind="integer").shape
    dims = getattr(shape, "values", None) or getattr(shape.ty, "values", None)
    if old.shape is not None and added.shape is not None:
        for i, label in ((0, "sequences"), (1, "heads"), (3, "size of a head")):
            demand_equal(f"{name}: {label} of 'new'", added.shape[i], old.shape[i], cache.span)
            if dims is not None:
                demand_equal(f"{name}: {label} of 'shape'", dims[i], old.shape[i], cache.span)
        demand_same_shape(f"{name}: 'first'", starts, old.shape[:1], cache.span)
    return TensorType(None if dims is None else tuple(dims), old.dtype, 4)


def _append_ref(cache: Any, new: Any, first: Any, shape: Any) -> Any:
    out = np.zeros(shape, cache.dtype)
    kept = min(cache.shape[2], shape[2])
    out[:, :, :kept] = cache[:, :, :kept]
    for b, start in enumerate(np.clip(first, 0, shape[2])):
        stop = min(start + new.shape[2], shape[2])
        out[b, :, start:stop] = new[b, :, : stop - start]
    return out


declare(
    "nn.cache_append",
    "cache new first shape:shape",
    infer=_append_infer,
    lower=cache_append,
    reference=_append_ref,
    doc="The cache (batch, heads, held, size) with another length, and `new` entries from place `first` of each "
    "sequence on; what neither has is zero.",
)
