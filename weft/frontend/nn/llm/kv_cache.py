"""The cache of keys and values in pages: what models call while they are traced, and its kernels under TVM's names."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error, op, relax
from weft.frontend.nn.llm.attention import attention_decode as _attention_decode_cpu
from weft.frontend.nn.llm.attention import attention_prefill as _attention_prefill_cpu
from weft.frontend.nn.llm.attention import attention_prefill_ragged as _attention_prefill_ragged_cpu
from weft.frontend.nn.llm.attention import merge_state_inplace as _merge_state_inplace_cpu
from weft.frontend.nn.llm.kernel import check_target
from weft.frontend.nn.llm.page_kernels import compact_kv_copy as _compact_kv_copy_cpu
from weft.frontend.nn.llm.page_kernels import copy_single_page as _copy_single_page_cpu
from weft.frontend.nn.llm.page_kernels import kv_cache_debug_get_kv as _kv_cache_debug_get_kv
from weft.frontend.nn.llm.page_kernels import kv_cache_debug_get_kv_mla as _kv_cache_debug_get_kv_mla
from weft.frontend.nn.llm.page_kernels import kv_cache_transpose_append as _kv_cache_transpose_append
from weft.frontend.nn.llm.page_kernels import kv_cache_transpose_append_mla as _kv_cache_transpose_append_mla
from weft.frontend.nn.llm.position_embedding import llama_rope_with_position_map
from weft.frontend.nn.llm.sequence_attention import attention_sequence_prefill as _attention_sequence_prefill
from weft.frontend.nn.llm.sequence_attention import (
    attention_sequence_prefill_with_mask as _attention_sequence_prefill_with_mask,
)
from weft.frontend.nn.llm.tree_attn import (
    tree_attn,
    tree_attn_cpu,
    tree_attn_with_paged_kv_cache,
    tree_attn_with_paged_kv_cache_cpu,
)
from weft.frontend.nn.tensor import Object, Tensor, builder, emit, wrap_nested
from weft.ir import AnyType, ExprStringImm, Tuple, TupleType, prim_value, shape_expr, tensor_type

__all__ = [
    "AttnKind",
    "PagedKVCache",
    "RopeMode",
    "TIRPagedKVCache",
    "_attention_decode",
    "_attention_decode_cpu",
    "_attention_prefill",
    "_attention_prefill_cpu",
    "_attention_prefill_ragged",
    "_attention_prefill_ragged_cpu",
    "_attention_sequence_prefill",
    "_attention_sequence_prefill_with_mask",
    "_compact_kv_copy",
    "_compact_kv_copy_cpu",
    "_copy_single_page",
    "_copy_single_page_cpu",
    "_copy_single_page_mla",
    "_kv_cache_debug_get_kv",
    "_kv_cache_debug_get_kv_mla",
    "_kv_cache_transpose_append",
    "_kv_cache_transpose_append_mla",
    "_merge_state_inplace",
    "_merge_state_inplace_cpu",
    "llama_rope_with_position_map",
    "tree_attn",
    "tree_attn_cpu",
    "tree_attn_with_paged_kv_cache",
    "tree_attn_with_paged_kv_cache_cpu",
]

_BUILTIN = "vm.builtin.attention_kv_cache_"


class AttnKind(enum.IntEnum):
    """The kinds of attention of a layer: keys by head, latent vectors, and keys by head within a window."""

    MHA = 0
    MLA = 1
    MHA_SLIDING = 3


class RopeMode(enum.IntEnum):
    """Whether keys are turned by their positions: never, before they enter the cache, or as attention reads them."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


class PagedKVCache(Object):
    """A cache of keys and values in pages, as models get it.

    The first two dimensions of tensors here are (1, all new tokens) or (sequences, 1). Which tokens belong to which
    sequence is said from outside, by ``vm.builtin.kv_state_begin_forward`` of the running program.
    """

    extern_mods: Sequence[Any] = ()

    def attention_with_fused_qkv(
        self,
        layer_id: int,
        qkv: Tensor,
        num_qo_heads: int,
        sm_scale: float | None = None,
        *,
        attn_score_scaling_factor: float = 1.0,
    ) -> Tensor:
        """Append keys and values of a layer, and compute attention over all of the cache.

        Parameters
        ----------
        layer_id : int
            The layer.
        qkv : Tensor
            (b, s, query heads + 2 * key heads, size): queries, keys and values, not turned by their positions yet.
        num_qo_heads : int
            How many heads of queries there are.
        sm_scale : float, optional
            What scores are multiplied by; by default the size to the power of -1/2, times `attn_score_scaling_factor`.

        Returns
        -------
        Tensor
            (b, s, num_qo_heads, size).
        """
        b, s, heads, d = qkv.shape
        if sm_scale is None:
            sm_scale = attn_score_scaling_factor * math.sqrt(1 / int(d))
        flat = qkv.reshape(b * s, heads, d)
        out = tensor_type((b * s, num_qo_heads, d), qkv.dtype)
        return self._computed("attention_with_fused_qkv", (layer_id, sm_scale, flat), out).reshape(
            b, s, num_qo_heads, d
        )

    def self_attention(self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
        """Compute attention of the new tokens over themselves: (b, s, heads, value size), and (b, s, heads) float32.

        The second result is the logarithm, to base 2, of the sum of weights.
        """
        b, s, heads = q.shape[:3]
        flat = [t.reshape(b * s, *t.shape[2:]) for t in (q, k, v)]
        return self._attended("self_attention", (layer_id, sm_scale, *flat), (b, s, heads, v.shape[3]), q.dtype)

    def cross_attention(self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float) -> tuple[Tensor, Tensor]:
        """Compute attention of the new tokens over what the cache had before them; see :meth:`self_attention`.

        Where each sequence has one new token, over that one, too.
        """
        b, s, heads, size = q.shape
        args = (layer_id, sm_scale, q.reshape(b * s, heads, size))
        return self._attended("cross_attention", args, (b, s, heads, v_head_dim), q.dtype)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Append latent vectors ``(b, s, size)``, or ``(b, s, 1, size)``, of a layer."""
        b, s = kv.shape[:2]
        flat = kv.reshape(b * s, kv.shape[-1])
        call = relax.call_pure_packed(
            _BUILTIN + "append_mla_kv", self._expr, prim_value(layer_id), flat._expr, ty_args=AnyType()
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self, o_self_attn: Tensor, lse_self_attn: Tensor, o_cross_attn: Tensor, lse_cross_attn: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Merge attention over two sets of keys, in the tensors of the first."""
        b, s, heads, size = o_self_attn.shape
        flat = [t.reshape(b * s, *t.shape[2:]) for t in (o_self_attn, lse_self_attn, o_cross_attn, lse_cross_attn)]
        types = TupleType((flat[0]._expr.ty, flat[1]._expr.ty))
        call = relax.call_pure_packed(
            _BUILTIN + "merge_attn_output_inplace", self._expr, *(t._expr for t in flat), ty_args=types
        )
        out, lse = wrap_nested(call, "merged")
        return out.reshape(b, s, heads, size), lse.reshape(b, s, heads)

    def get_query_positions(self, total_length: Any) -> Tensor:
        """Return the positions of the new tokens in their sequences, (total_length,) int32."""
        out = tensor_type((total_length,), "int32")
        return Tensor(
            _expr=emit(relax.call_pure_packed(_BUILTIN + "get_query_positions", self._expr, ty_args=out), "positions")
        )

    def _computed(self, name: str, args: Sequence[Any], out: Any) -> Any:
        """Emit a call that gets its results as arguments."""
        given = [a._expr if isinstance(a, Tensor) else prim_value(a) for a in args]
        return wrap_nested(relax.call_dps_packed(_BUILTIN + name, [self._expr, *given], out_ty=out), name)

    def _attended(self, name: str, args: Sequence[Any], shape: Sequence[Any], dtype: str) -> tuple[Tensor, Tensor]:
        b, s, heads, size = shape
        out = [tensor_type((b * s, heads, size), dtype), tensor_type((b * s, heads), "float32")]
        result, lse = self._computed(name, args, out)
        return result.reshape(b, s, heads, size), lse.reshape(b, s, heads)


def _one_head_dim(init: Callable[..., None]) -> Callable[..., None]:
    """Let a cache without latent attention be described by one ``head_dim``, all parameters by name, as in TVM 0.18."""

    @functools.wraps(init)
    def described(self: Any, *args: Any, head_dim: int | None = None, **named: Any) -> None:
        if head_dim is not None:
            latent = dict.fromkeys(("mla_original_qk_head_dim", "mla_original_v_head_dim"), 0)
            sizes = {"qk_head_dim": head_dim, "v_head_dim": head_dim, **latent}
            named = {"attn_kind": "mha", "enable_disaggregation": False, **sizes, **named}
        init(self, *args, **named)

    return described


class TIRPagedKVCache(PagedKVCache):
    """A cache that the traced function makes, with kernels made here.

    Parameters
    ----------
    attn_kind : str or list of str
        ``"mha"``, for all layers or by layer.
    max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window : int or PrimExpr
        How many sequences, tokens of all of them, and tokens of one step there may be; tokens of a page; and 1 if
        sequences may have sliding windows.
    layer_partition : ShapeExpr
        The first layer of the cache, and the end.
    num_hidden_layers, num_attention_heads, num_key_value_heads, qk_head_dim, v_head_dim : int
        Sizes of the model; ``head_dim=`` stands for both of heads, and for none of latent attention.
    mla_original_qk_head_dim, mla_original_v_head_dim : int
        Sizes of latent attention.
    rope_mode : RopeMode
        Where rotary embeddings are applied.
    rope_scale, rope_theta : float
        What positions are multiplied by, and the base of the frequencies.
    rope_scaling : dict, optional
        The form of the embeddings, as ``position_embedding.switch_rope_freq_func`` takes it.
    rope_ext_factors : Expr
        For ``longrope`` the factors; else a number that nobody reads.
    rotary_dim : int
        How many elements of a head turn.
    enable_disaggregation : bool
        False: pages stay on one machine.
    dtype : str
        The data type of keys and values.
    target : Target
        What the program is for: a CPU.
    name : str
        A hint for the variable.
    page_dtype : str, optional
        What pages hold, if not `dtype`: ``"float32"``, ``"float16"``, ``"bfloat16"``, or ``"int8"``, which rounds each
        head of a token to 127 steps of its greatest magnitude and keeps a scale beside it.

    Raises
    ------
    InvalidArgument
        For latent attention or other targets.
    """

    @_one_head_dim
    def __init__(
        self,
        attn_kind: Any,
        max_batch_size: Any,
        max_total_seq_len: Any,
        prefill_chunk_size: Any,
        page_size: Any,
        support_sliding_window: Any,
        layer_partition: Any,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any] | None,
        rope_ext_factors: Any,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Any,
        name: str = "paged_kv_cache",
        page_dtype: str | None = None,
    ) -> None:
        check_target(target)
        if page_dtype not in (None, "float32", "float16", "bfloat16", "int8"):
            raise error.InvalidArgument(
                "pages hold floats or bytes", expected="float32, float16, bfloat16 or int8", found=str(page_dtype)
            )
        kinds = attn_kind if isinstance(attn_kind, (list, tuple)) else [attn_kind] * num_hidden_layers
        if any(kind != "mha" for kind in kinds) or qk_head_dim != v_head_dim:
            raise error.InvalidArgument(
                "this cache has kernels for attention by heads of one size",
                expected="attn_kind 'mha', and qk_head_dim == v_head_dim",
                found=f"{attn_kind}, {qk_head_dim} and {v_head_dim}",
            )
        scaling = _with_theta(rope_scaling or {}, rope_theta)
        limits = [max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window]
        sizes = [num_attention_heads, num_key_value_heads, qk_head_dim, v_head_dim]
        functions = _functions(
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            qk_head_dim,
            dtype,
            page_size,
            scaling,
            (rope_theta, rope_scale, rotary_dim),
            page_dtype or dtype,
        )
        factors = isinstance(rope_ext_factors, Tuple) or hasattr(getattr(rope_ext_factors, "ty", None), "shape")
        call = relax.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            shape_expr(limits),
            layer_partition,
            *map(prim_value, sizes),
            shape_expr([int(AttnKind.MHA)] * num_hidden_layers),
            prim_value(int(enable_disaggregation)),
            prim_value(int(rope_mode)),
            prim_value(float(rope_scale)),
            prim_value(float(rope_theta)),
            rope_ext_factors if factors else prim_value(0),
            emit(op.make_call("zeros")(shape_expr([]), dtype=dtype), "like"),
            *functions,
            *([emit(op.make_call("zeros")(shape_expr([]), dtype=page_dtype), "like")] if page_dtype else []),
            ty_args=AnyType(),
        )
        super().__init__(_expr=call, _name=name)


def _with_theta(rope_scaling: Mapping[str, Any], theta: float) -> Mapping[str, Any]:
    """YaRN's elements are found by the logarithm of the base, which configurations leave out."""
    if rope_scaling.get("rope_type") != "yarn":
        return rope_scaling
    return {"inv_theta_log_scale": 1.0 / (2 * math.log(theta)), **rope_scaling}


def _functions(
    layers: int,
    h_q: int,
    h_kv: int,
    d: int,
    dtype: str,
    page_size: Any,
    scaling: Mapping[str, Any],
    rope: tuple[float, float, int],
    page_dtype: str,
) -> list[Any]:
    """Add the cache's kernels to the module, and return what its constructor takes, from ``f_transpose_append`` on."""
    theta, scale, rotary_dim = rope

    def added(func: Any, name: str) -> Any:
        return builder().add_func(func, name)

    def kernel(func: Any, name: str) -> Any:
        return Tuple((ExprStringImm("tirx"), added(func, name)))

    attention = (h_kv, h_q, d, dtype)
    decode = (_attention_decode_cpu(*attention, window, scaling, page_size, page_dtype) for window in (False, True))
    prefill = (_attention_prefill_cpu(*attention, window, scaling, page_size, page_dtype) for window in (False, True))
    return [
        added(_kv_cache_transpose_append(h_kv, d, dtype, page_size, page_dtype), "kv_cache_transpose_append"),
        prim_value(0),  # latent vectors have no layer here
        kernel(_attention_prefill_ragged_cpu(h_kv, h_q, d, d, dtype, scaling), "attention_prefill_ragged"),
        kernel(next(prefill), "attention_prefill"),
        kernel(next(decode), "attention_decode"),
        kernel(next(prefill), "attention_prefill_sliding_window"),
        kernel(next(decode), "attention_decode_sliding_window"),
        kernel(tree_attn_with_paged_kv_cache_cpu(*attention, scaling, page_size, page_dtype), "tree_attention_paged"),
        kernel(tree_attn_cpu(*attention, scaling), "tree_attention"),
        Tuple(()),
        Tuple((added(_merge_state_inplace_cpu(dtype), "attention_merge_state"),)),
        added(llama_rope_with_position_map(theta, scale, d, h_q, h_kv, dtype, scaling, rotary_dim), "split_rotary"),
        added(_copy_single_page_cpu(h_kv, page_size, d, page_dtype), "kv_cache_copy_single_page"),
        added(_kv_cache_debug_get_kv(layers, h_kv, d, dtype, page_dtype), "kv_cache_debug_get_kv"),
        added(_compact_kv_copy_cpu(h_kv, d, page_dtype, page_size), "kv_cache_compact_kv_copy"),
    ]


def _for_target(make: Any, position: int) -> Any:
    """The form of a kernel's maker that takes the target, which has to be a CPU, as an argument."""

    def made(*args: Any, **kwargs: Any) -> Any:
        check_target(kwargs.pop("target") if "target" in kwargs else args[position])
        return make(*args[:position], *args[position + 1 :], **kwargs)

    made.__doc__ = make.__doc__
    return made


_attention_decode = _for_target(_attention_decode_cpu, 6)
_attention_prefill = _for_target(_attention_prefill_cpu, 6)
_attention_prefill_ragged = _for_target(_attention_prefill_ragged_cpu, 6)
_compact_kv_copy = _for_target(_compact_kv_copy_cpu, 3)
_copy_single_page = _for_target(_copy_single_page_cpu, 4)


def _copy_single_page_mla(page_size: Any, head_dim: int, dtype: str, target: Any) -> Any:
    """Make the copy of a page of latent vectors; see ``page_kernels.copy_single_page``."""
    check_target(target)
    return _copy_single_page_cpu(None, page_size, head_dim, dtype)


def _merge_state_inplace(
    num_heads: int, head_dim: int, v_dtype: str, target: Any, global_symbol: str | None = None
) -> Any:
    """Make the merge for a target; see ``attention.merge_state_inplace``."""
    check_target(target)
    merge = _merge_state_inplace_cpu(v_dtype)
    return merge if global_symbol is None else merge.with_attr("global_symbol", global_symbol)
