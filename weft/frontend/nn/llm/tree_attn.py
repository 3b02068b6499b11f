"""Attention of token trees, under TVM's names; see :mod:`weft.frontend.nn.llm.attention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.frontend.nn.llm.attention import tree_attention as tree_attn_cpu
from weft.frontend.nn.llm.attention import tree_attention_paged as tree_attn_with_paged_kv_cache_cpu
from weft.frontend.nn.llm.kernel import check_target
from weft.target import Target
from weft.tir import PrimFunc


def tree_attn(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], target: Target | str
) -> PrimFunc:
    """Make attention of token trees for a target; see ``attention.tree_attention``."""
    check_target(target)
    return tree_attn_cpu(h_kv, h_q, d, dtype, rope_scaling)


def tree_attn_with_paged_kv_cache(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], target: Target | str
) -> PrimFunc:
    """Make attention of token trees over pages for a target; see ``attention.tree_attention_paged``."""
    check_target(target)
    return tree_attn_with_paged_kv_cache_cpu(h_kv, h_q, d, dtype, rope_scaling)
