"""Rotary position embeddings: each pair of a head's elements turns by an angle that grows with the token's position.

The ``rope_freq_*`` functions say by which angle; ``llama_rope*`` make kernels that turn queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from weft.error import InvalidArgument
from weft.frontend.nn.llm.kernel import KernelBuilder, vector_width
from weft.frontend.nn.op import tensor_ir_op
from weft.frontend.nn.tensor import Tensor
from weft.ir import Let, PrimExpr, Var, as_expr
from weft.tir import PrimFunc, const, cos, if_then_else, power, sin
from weft.tir import max as max_
from weft.tir import min as min_
from weft.tir.ir_builder import BufferVar

Angle = tuple[Any, Any, dict[Any, Any]]
"""Cosine, sine, and what the variables in them stand for, the innermost first."""


def _f32(value: Any) -> Any:
    return as_expr(value, "float32") if isinstance(value, (int, float)) else value.astype("float32")


def _share(d: Any, d_range: int) -> Any:
    """The exponent of an element's frequency: both elements of a pair, d and d + d_range / 2, have the same."""
    return _f32(d * 2 % d_range) / const(d_range, "float32")


def _angle(freq: Any, dtype: str, others: Mapping[Any, Any] | None = None, scale: float = 1.0) -> Angle:
    var = Var("freq", "float32")
    values = [f(var) if scale == 1.0 else f(var) * scale for f in (cos, sin)]
    return values[0].astype(dtype), values[1].astype(dtype), {var: freq, **(others or {})}


def rope_freq_default(s: PrimExpr, d: PrimExpr, d_range: int, theta: float | PrimExpr, dtype: str) -> Angle:
    """Return cosine and sine of ``s / theta ** (2 d / d_range)``, for position `s` and element `d` of a head.

    Parameters
    ----------
    s, d : PrimExpr
        The position, which may be scaled, and the index of the element.
    d_range : int
        How many elements turn.
    theta : float or PrimExpr
        The base of the frequencies.
    dtype : str
        The data type of the results.

    Returns
    -------
    (cos, sin, values)
        `values` gives what the variables in both stand for.
    """
    return _angle(_f32(s) / power(_f32(theta), _share(d, d_range)), dtype)


def rope_freq_gptj(s: PrimExpr, d: PrimExpr, d_range: int, theta: float | PrimExpr, dtype: str) -> Angle:
    """Return the angle where the elements of a pair are neighbours; see :func:`rope_freq_default`."""
    return _angle(_f32(s) / power(_f32(theta), _share(d // 2, d_range)), dtype)


def rope_freq_llama3(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float | PrimExpr,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Angle:
    """Return Llama 3's angle: slow frequencies are divided by `factor`, fast ones kept, those between blended."""
    plain = Var("orig_freq", "float32")
    turned = _f32(s) * _blended(plain, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)
    return _angle(turned, dtype, {plain: const(1, "float32") / power(_f32(theta), _share(d, d_range))})


def rope_freq_llama4(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float | PrimExpr,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Angle:
    """Return Llama 4's angle: as Llama 3's, for pairs of neighbours."""
    plain = Var("orig_freq", "float32")
    if high_freq_factor == low_freq_factor:
        long_waves = const(2 * math.pi, "float32") / plain > original_max_position_embeddings / low_freq_factor
        turned = _f32(s) * if_then_else(long_waves, plain / factor, plain)
    else:
        turned = _f32(s) * _blended(plain, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)
    share = _f32(d // 2 * 2) / const(d_range, "float32")
    return _angle(turned, dtype, {plain: const(1, "float32") / power(_f32(theta), share)})


def _blended(freq: Any, factor: float, low: float, high: float, length: float) -> Any:
    """Blend a frequency over `factor`, of waves from `length / low` on, and itself, of those to `length / high`."""
    per = 1.0 / (high - low)
    own = max_(const(0.0, "float32"), min_(const(1.0, "float32"), freq * (length / (2 * math.pi) * per) - low * per))
    return (1.0 - own) * freq * (1.0 / factor) + own * freq


def rope_freq_longrope(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float | PrimExpr,
    dtype: str,
    max_position_embeddings: int,
    original_max_position_embeddings: int,
    ext_factors: Any = None,
) -> Angle:
    """Return LongRoPE's angle: each frequency has a factor of its own, `ext_factors` (d_range / 2,)."""
    ratio = max_position_embeddings / original_max_position_embeddings
    scale = math.sqrt(1 + math.log(ratio) / math.log(original_max_position_embeddings)) if ratio > 1.0 else 1.0
    divisor = power(_f32(theta), _share(d, d_range))
    if ext_factors is not None:
        divisor = ext_factors[d % (d_range // 2)] * divisor
    return _angle(_f32(s) / divisor, dtype, scale=scale)


def yarn_find_correction_dim(
    num_rotations: float, d: int | PrimExpr, max_position_embeddings: int, inv_theta_log_scale: float | PrimExpr
) -> Any:
    """Return the element that turns `num_rotations` times within `max_position_embeddings` tokens."""
    return d * math.log(max_position_embeddings / (num_rotations * 2 * math.pi)) * inv_theta_log_scale


def yarn_find_correction_range(
    low_rot: float,
    high_rot: float,
    d: int | PrimExpr,
    max_position_embeddings: int,
    inv_theta_log_scale: float | PrimExpr,
) -> tuple[Any, Any]:
    """Return the elements between which YaRN blends."""
    low, high = (
        _f32(yarn_find_correction_dim(n, d, max_position_embeddings, inv_theta_log_scale)) for n in (low_rot, high_rot)
    )
    return max_(low, const(0.0, "float32")), min_(high, _f32(d - 1))


def rope_freq_yarn(
    s: PrimExpr,
    d: PrimExpr,
    d_range: int,
    theta: float | PrimExpr,
    dtype: str,
    original_max_position_embeddings: int,
    scaling_factor: float,
    beta_fast: int,
    beta_slow: int,
    inv_theta_log_scale: float | PrimExpr,
) -> Angle:
    """Return YaRN's angle: elements that turn more than `beta_fast` times are kept, slow ones divided."""
    freq = power(_f32(theta), _share(d, d_range))
    low, high = yarn_find_correction_range(
        beta_fast, beta_slow, d_range, original_max_position_embeddings, inv_theta_log_scale
    )
    high = if_then_else(low == high, high + 0.001, high)
    slow = max_(min_((_f32(d % (d_range // 2)) - low) / (high - low), const(1.0, "float32")), const(0.0, "float32"))
    one = const(1, "float32")
    return _angle(_f32(s) * (one / (freq * scaling_factor) * slow + one / freq * (one - slow)), dtype)


_FORMS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "gptj": (rope_freq_gptj, ()),
    "llama3": (rope_freq_llama3, ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")),
    "llama4": (rope_freq_llama4, ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")),
    "longrope": (rope_freq_longrope, ("max_position_embeddings", "original_max_position_embeddings")),
    "yarn": (
        rope_freq_yarn,
        ("original_max_position_embeddings", "factor", "beta_fast", "beta_slow", "inv_theta_log_scale"),
    ),
}
"""The function of each form, and the fields of its configuration."""


def switch_rope_freq_func(rope_scaling: Mapping[str, Any]) -> Callable[..., Angle]:
    """Return the function of a configuration's ``rope_type``, with the configuration's fields bound.

    Raises
    ------
    InvalidArgument
        When the form is unknown, or a field is missing.
    """
    if "rope_type" not in rope_scaling:
        return rope_freq_default
    form = _FORMS.get(rope_scaling["rope_type"])
    if form is None:
        raise InvalidArgument(
            "unknown form of rotary embeddings", expected=", ".join(_FORMS), found=repr(rope_scaling["rope_type"])
        )
    function, fields = form
    missing = [f for f in fields if rope_scaling.get(f) is None]
    if missing:
        raise InvalidArgument(f"rope_scaling of '{rope_scaling['rope_type']}' lacks fields", found=", ".join(missing))
    return partial(
        function,
        **{"scaling_factor" if f == "factor" and function is rope_freq_yarn else f: rope_scaling[f] for f in fields},
    )


def _neighbours(rope_scaling: Mapping[str, Any]) -> bool:
    return rope_scaling.get("rope_type") in ("gptj", "llama4")


def rotated(
    load: Callable[[Any], Any], d: PrimExpr, cosine: PrimExpr, sine: PrimExpr, rotary_dim: int, neighbours: bool
) -> Any:
    """Return element `d`, turned: a pair is d and d + rotary_dim / 2, or neighbours."""
    half = rotary_dim // 2
    if neighbours:
        other = if_then_else(d % 2 == 0, -load(d + 1), load(d - 1))
    else:
        other = if_then_else(d < half, -load(d + half), load(d - half))
    return cosine * load(d) + sine * other


def angle_tables(
    kernel: KernelBuilder,
    position: PrimExpr,
    theta: float | PrimExpr,
    rotary_dim: int,
    rope_scaling: Mapping[str, Any],
    cosines: BufferVar,
    sines: BufferVar,
    factors: BufferVar | None = None,
) -> None:
    """Emit the cosines and sines of a position, (rotary_dim,) each."""
    options = {} if factors is None else {"ext_factors": factors}
    with kernel.ib.for_range(0, rotary_dim, "d") as d:
        cosine, sine, values = switch_rope_freq_func(rope_scaling)(position, d, rotary_dim, theta, "float32", **options)
        for var, value in values.items():
            cosine, sine = Let(var, value, cosine), Let(var, value, sine)
        cosines[d] = cosine
        sines[d] = sine


class _Heads:
    """How many heads of queries and of keys lie side by side, of which size, and how many elements of them turn."""

    def __init__(self, queries: int, keys: int, size: int, rotary_dim: int | None) -> None:
        self.queries, self.keys, self.size = queries, keys, size
        self.rotary_dim = size if rotary_dim is None else rotary_dim
        if self.rotary_dim % 2 or not 0 <= self.rotary_dim <= size:
            raise InvalidArgument(
                "rotary_dim counts pairs of a head's elements",
                expected=f"an even number up to {size}",
                found=str(self.rotary_dim),
            )


def _split(
    kernel: KernelBuilder,
    heads: _Heads,
    row: tuple[Any, ...],
    buffers: tuple[Any, ...],
    turn: Any,
    tables: tuple[Any, Any],
    neighbours: bool,
) -> None:
    """Emit the heads of one token: queries and keys turned where `turn` holds (None: always), values as they are."""
    qkv, q, k, v = buffers
    dtype = q.dtype
    first = 0
    for target, count in ((q, heads.queries), (k, heads.keys), (v, heads.keys)):
        with kernel.ib.for_range(0, count, "h") as h:
            source = h + first
            turns = heads.rotary_dim if target is not v else 0

            def load(d: Any, source: Any = source) -> Any:
                return qkv[(*row, source, d)].astype("float32")

            def copy(begin: int, target: Any = target, h: Any = h, source: Any = source) -> None:
                with kernel.vectors(begin, heads.size, vector_width(heads.size, heads.rotary_dim)) as d:
                    target[(*row, h, d)] = qkv[(*row, source, d)]

            def turned(target: Any = target, h: Any = h, load: Any = load) -> None:
                with kernel.ib.for_range(0, heads.rotary_dim, "d") as d:
                    value = rotated(load, d, tables[0][d], tables[1][d], heads.rotary_dim, neighbours)
                    target[(*row, h, d)] = value.astype(dtype)

            if turns and turn is not None:
                with kernel.ib.if_scope(turn):
                    turned()
                with kernel.ib.else_scope(), kernel.vectors(0, turns, vector_width(turns)) as d:
                    target[(*row, h, d)] = qkv[(*row, source, d)]
            elif turns:
                turned()
            if turns < heads.size:
                copy(turns)
        first = first + count


def llama_rope(
    qkv: Tensor,
    total_seq_len: int | PrimExpr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Split fused queries, keys and values, and turn queries and keys by their positions.

    Parameters
    ----------
    qkv : Tensor
        (batch, tokens, num_q_heads + 2 * num_kv_heads, size).
    total_seq_len : Var
        Tokens so far, the new ones included: the last new one has the position ``total_seq_len - 1``.
    theta, scale : float
        The base of the frequencies, and what positions are multiplied by.
    rope_scaling : mapping
        The form, as :func:`switch_rope_freq_func` takes it.
    rotary_dim : int, optional
        How many elements of a head turn, by default all.

    Returns
    -------
    (q, k, v)
        (batch, tokens, heads, size) each.
    """
    batch, tokens, fused, size = qkv.shape
    if fused != num_q_heads + 2 * num_kv_heads:
        raise InvalidArgument(
            "qkv does not have these heads", expected=str(num_q_heads + 2 * num_kv_heads), found=str(fused)
        )
    heads = _Heads(num_q_heads, num_kv_heads, int(size), rotary_dim)
    kernel = KernelBuilder()
    b, n = kernel.size("batch_size"), kernel.size("seq_len")
    buffers = tuple(
        kernel.buffer(name, (b, n, count, heads.size), qkv.dtype)
        for name, count in (("qkv", int(fused)), ("q", num_q_heads), ("k", num_kv_heads), ("v", num_kv_heads))
    )
    total = kernel.scalar("total_seq_len", "int64")
    with kernel.ib.for_range(0, b * n, "token", kind="parallel") as token:
        tables = tuple(kernel.local(heads.rotary_dim, name) for name in ("cosines", "sines"))
        row = (token // n, token % n)
        position = _f32(token % n + (total - n)) * scale
        angle_tables(kernel, position, theta, heads.rotary_dim, rope_scaling, *tables)
        _split(kernel, heads, row, buffers, None, (tables[0], tables[1]), _neighbours(rope_scaling))
    outs: Any = tuple(
        Tensor.placeholder((batch, tokens, count, size), qkv.dtype)
        for count in (num_q_heads, num_kv_heads, num_kv_heads)
    )
    return tensor_ir_op(kernel.finish("fused_rope", private=True), "llama_rope", [qkv, total_seq_len], outs)


def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """Make the kernel that splits fused queries, keys and values of tokens, and turns queries and keys.

    Its arguments are ``qkv (n, num_q_heads + 2 * num_kv_heads, head_dim)``, the positions ``(n,) int32``, the results
    ``q``, ``k`` and ``v``, and ``apply_rope``: 0 leaves all as it is. For ``longrope`` the last argument is, instead,
    ``ext_factors (rotary_dim,) float32``: those of long texts, then those of short ones.
    """
    heads = _Heads(num_q_heads, num_kv_heads, head_dim, rotary_dim)
    long = rope_scaling.get("rope_type") == "longrope"
    kernel = KernelBuilder()
    n = kernel.size("seq_len")
    qkv = kernel.buffer("qkv", (n, num_q_heads + 2 * num_kv_heads, head_dim), dtype)
    positions = kernel.buffer("position_map", (n,), "int32")
    results = tuple(
        kernel.buffer(name, (n, count, head_dim), dtype)
        for name, count in (("q", num_q_heads), ("k", num_kv_heads), ("v", num_kv_heads))
    )
    factors = kernel.buffer("ext_factors", (heads.rotary_dim,), "float32") if long else None
    turn = None if long else kernel.scalar("apply_rope", "int64") > 0
    with kernel.ib.for_range(0, n, "token", kind="parallel") as token:
        tables = (kernel.local(heads.rotary_dim, "cosines"), kernel.local(heads.rotary_dim, "sines"))
        chosen = None
        if factors is not None:
            half = heads.rotary_dim // 2
            limit = rope_scaling.get("original_max_position_embeddings", 0)
            chosen = kernel.local(half, "factors")
            with kernel.ib.for_range(0, half, "d") as d:
                chosen[d] = if_then_else(n > limit, factors[d], factors[d + half])
        position = _f32(positions[token]) * scale
        angle_tables(kernel, position, theta, heads.rotary_dim, rope_scaling, *tables, factors=chosen)
        _split(kernel, heads, (token,), (qkv, *results), turn, tables, _neighbours(rope_scaling))
    return kernel.finish("fused_rope")


def llama4_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """Make Llama 4's kernel, whose pairs are neighbours; see :func:`llama_rope_with_position_map`."""
    scaling = {"rope_type": "llama4", **rope_scaling} if "factor" in rope_scaling else {"rope_type": "gptj"}
    return llama_rope_with_position_map(theta, scale, head_dim, num_q_heads, num_kv_heads, dtype, scaling, rotary_dim)
