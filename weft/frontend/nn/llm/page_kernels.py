"""Kernels that write, copy and read pages of keys and values, ``(pages, 2, heads, page_size, size)``."""

from __future__ import annotations

from typing import Any

from weft import tir
from weft.frontend.nn.llm.kernel import SCALE_BYTES, KernelBuilder, stored_size, vector_width
from weft.ir import PrimExpr, Ramp, const
from weft.topi.written import in_pairs


class _Pages:
    """The pages of a kernel: of keys and values by head, or, without heads, of one vector a token."""

    def __init__(self, kernel: KernelBuilder, heads: int | None, page_size: Any, size: int, dtype: str) -> None:
        self.kernel, self.heads, self.size, self.width = kernel, heads, size, vector_width(size)
        self.rounded, stored = dtype == "int8", stored_size(size, dtype)
        self.last = Ramp(const(size, "int64"), const(1, "int64"), SCALE_BYTES)
        self.page_size = page_size if isinstance(page_size, int) else kernel.size("page_size")
        inner = (self.page_size, stored) if heads is None else (2, heads, self.page_size, stored)
        self.buffer = kernel.buffer("pages", (kernel.size("num_pages"), *inner), dtype)

    def each(self, visit: Any) -> None:
        """Emit ``visit(which, head, d)`` for all vectors of a token."""
        if self.heads is None:
            with self.kernel.vectors(0, self.size, self.width) as d:
                visit(None, None, d)
            return
        with self.kernel.ib.for_range(0, 2, "which") as which, self.kernel.ib.for_range(0, self.heads, "h") as h:
            with self.kernel.vectors(0, self.size, self.width) as d:
                visit(which, h, d)
            if self.rounded:
                visit(which, h, self.last)

    def at(self, place: Any, which: Any, h: Any, d: Any) -> tuple[Any, ...]:
        """The index of an element of the token at ``page * page_size + position``."""
        place = place.astype("int64")
        page, position = place // self.page_size, place % self.page_size
        return (page, position, d) if self.heads is None else (page, which, h, position, d)

    def write(self, place: Any, which: Any, h: Any, values: Any) -> None:
        """Emit ``values(d)`` into a head of a token; bytes are rounded to 127 steps of its greatest magnitude."""
        ib, kernel = self.kernel.ib, self.kernel
        if not self.rounded:
            with kernel.vectors(0, self.size, self.width) as d:
                self.buffer[self.at(place, which, h, d)] = values(d).astype(self.buffer.dtype)
            return
        top, steps = kernel.local(self.width, "top"), kernel.local(1, "steps")
        with kernel.vectors(0, self.width, self.width) as i:
            top[i] = const(0.0, "float32")
        with ib.for_range(0, self.size // self.width, "o") as o:
            with ib.for_range(0, self.width, "i", kind="vectorize") as i:
                top[i] = tir.max(top[i], tir.abs(values(o * self.width + i).astype("float32")))
        largest = in_pairs([top[i] for i in range(self.width)], tir.max)
        steps[0] = largest
        scale, zero = steps[0] * const(1 / 127, "float32"), const(0.0, "float32")
        self.buffer[self.at(place, which, h, self.last)] = tir.reinterpret("int8x4", scale)
        steps[0] = tir.if_then_else(steps[0] > zero, const(127.0, "float32") / steps[0], zero)
        with kernel.vectors(0, self.size, self.width) as d:
            self.buffer[self.at(place, which, h, d)] = tir.round(values(d).astype("float32") * steps[0]).astype("int8")

    def read(self, place: Any, which: Any, h: Any, d: Any) -> Any:
        """An element of a token, a float32 where pages are rounded."""
        value = self.buffer[self.at(place, which, h, d)]
        if not self.rounded:
            return value
        return value.astype("float32") * tir.reinterpret("float32", self.buffer[self.at(place, which, h, self.last)])

    def copy(self, target: Any, source: Any) -> None:
        """Emit the copy of one token."""

        def visit(which: Any, h: Any, d: Any) -> None:
            self.buffer[self.at(target, which, h, d)] = self.buffer[self.at(source, which, h, d)]

        self.each(visit)


def kv_cache_transpose_append(
    num_key_value_heads: int, head_dim: int, dtype: str, page_size: int | PrimExpr = 16, page_dtype: str | None = None
) -> tir.PrimFunc:
    """Make ``(pages, k, v, places)``: write tokens ``(n, heads, size)`` to their places, -1 to none.

    A place is ``page * page_size + position``. Pages of `page_dtype` int8 have a scale behind each head of a token.
    """
    kernel = KernelBuilder()
    n = kernel.size("num_tokens_excluding_cache")
    pages = _Pages(kernel, num_key_value_heads, page_size, head_dim, page_dtype or dtype)
    new = [kernel.buffer(name, (n, num_key_value_heads, head_dim), dtype) for name in ("k_data", "v_data")]
    places = kernel.buffer("position_map", (n,), "int32")
    with kernel.ib.for_range(0, n, "token", kind="parallel") as token, kernel.ib.if_scope(places[token] != -1):
        for which, data in enumerate(new):
            with kernel.ib.for_range(0, num_key_value_heads, "h") as h:
                pages.write(places[token], which, h, lambda d, data=data, h=h: data[token, h, d])
    return kernel.finish("tir_kv_cache_transpose_append")


def kv_cache_transpose_append_mla(d_qk: int, dtype: str, page_size: int | PrimExpr = 16) -> tir.PrimFunc:
    """Make ``(pages, kv, places)``: write latent vectors ``(n, size)`` to their places, -1 to none."""
    kernel = KernelBuilder()
    n = kernel.size("num_tokens_excluding_cache")
    pages = _Pages(kernel, None, page_size, d_qk, dtype)
    data = kernel.buffer("kv_data", (n, d_qk), dtype)
    places = kernel.buffer("position_map", (n,), "int32")
    with kernel.ib.for_range(0, n, "token", kind="parallel") as token, kernel.ib.if_scope(places[token] != -1):
        with kernel.vectors(0, d_qk, pages.width) as d:
            pages.buffer[pages.at(places[token], None, None, d)] = data[token, d]
    return kernel.finish("tir_kv_cache_transpose_append_mla")


def kv_cache_debug_get_kv(
    num_hidden_layers: int, num_key_value_heads: int, head_dim: int, dtype: str, page_dtype: str | None = None
) -> tir.PrimFunc:
    """Make ``(pages, places, k, v, layer)``: read tokens into ``(layers, n, heads, size)`` at a layer."""
    kernel = KernelBuilder()
    n = kernel.size("num_tokens_including_cache")
    pages = _Pages(kernel, num_key_value_heads, None, head_dim, page_dtype or dtype)
    places = kernel.buffer("position_map", (n,), "int32")
    shape = (num_hidden_layers, n, num_key_value_heads, head_dim)
    out = [kernel.buffer(name, shape, dtype) for name in ("k_data", "v_data")]
    layer = kernel.scalar("layer_id", "int64")
    with kernel.ib.for_range(0, n, "token") as token:
        for which, data in enumerate(out):
            with kernel.ib.for_range(0, num_key_value_heads, "h") as h:
                with kernel.vectors(0, head_dim, pages.width) as d:
                    data[layer, token, h, d] = pages.read(places[token], which, h, d).astype(dtype)
    return kernel.finish("tir_kv_cache_debug_get_kv")


def kv_cache_debug_get_kv_mla(num_hidden_layers: int, d_qk: int, dtype: str) -> tir.PrimFunc:
    """Make ``(pages, places, kv, layer)``: read latent vectors into ``(layers, n, size)`` at a layer."""
    kernel = KernelBuilder()
    n = kernel.size("num_tokens_including_cache")
    pages = _Pages(kernel, None, None, d_qk, dtype)
    places = kernel.buffer("position_map", (n,), "int32")
    out = kernel.buffer("compressed_kv_with_k_pe_data", (num_hidden_layers, n, d_qk), dtype)
    layer = kernel.scalar("layer_id", "int64")
    with kernel.ib.for_range(0, n, "token") as token, kernel.vectors(0, d_qk, pages.width) as d:
        out[layer, token, d] = pages.buffer[pages.at(places[token], None, None, d)]
    return kernel.finish("tir_kv_cache_debug_get_kv_mla")


def copy_single_page(num_heads: int | None, page_size: int | PrimExpr, head_dim: int, dtype: str) -> tir.PrimFunc:
    """Make ``(pages, source, target, n)``: copy the first n tokens of a page; without heads, of latent vectors."""
    kernel = KernelBuilder()
    pages = _Pages(kernel, num_heads, page_size, head_dim, dtype)
    source, target, length = (kernel.scalar(n, "int64") for n in ("src_page_id", "tgt_page_id", "copy_length"))
    with kernel.ib.for_range(0, length, "token") as token:
        pages.copy(target * pages.page_size + token, source * pages.page_size + token)
    return kernel.finish("copy_single_page")


def compact_kv_copy(num_heads: int, head_dim: int, dtype: str, page_size: int | PrimExpr = 16) -> tir.PrimFunc:
    """Make ``(pages, starts, places, batch)``: move tokens, one after the other within each sequence.

    ``places`` is (2, n) int32, from where and to where; ``starts`` (batch + 1,) int32 says whose they are.
    """
    kernel = KernelBuilder()
    pages = _Pages(kernel, num_heads, page_size, head_dim, dtype)
    batch = kernel.size("batch_size_plus_1")
    starts = kernel.buffer("copy_length_indptr", (batch,), "int32")
    places = kernel.buffer("copy_src_dst_pos", (2, kernel.size("total_copy_length")), "int32")
    count = kernel.scalar("batch_size", "int32")
    with kernel.ib.for_range(0, count, "b") as b:
        with kernel.ib.for_range(starts[b], starts[b + 1], "i") as i:
            pages.copy(places[1, i], places[0, i])
    return kernel.finish("compact_kv_copy")
