"""Attention of new tokens over keys and values in pages, or side by side: one kernel, with parts that differ.

A task is some tokens and one head of keys; the heads of queries that share it, for all its tokens, are the rows of a
tile. It walks over tiles of keys with the greatest score and the sum of weights so far for each row (online softmax,
after Milakov and Gimelshein, 2018, and FlashAttention), so that scores never leave the core's own memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft import tir
from weft.error import InvalidArgument
from weft.frontend.nn.llm.kernel import SCALE_BYTES, KernelBuilder, stored_size, vector_width
from weft.frontend.nn.llm.position_embedding import angle_tables, rotated
from weft.ir import PrimExpr, Ramp, const
from weft.tir import PrimFunc, Select, all, any, exp, if_then_else, log, reinterpret
from weft.topi.written import in_pairs

_COLUMNS = 16  # keys of a tile
_ROWS = 16  # of a tile of several tokens
_BLOCK = 8  # vectors of sums that wait in registers together
_HIDDEN = -3.0e38  # the score of what a row does not see; less than any other


@dataclass
class Heads:
    """Heads of queries and of keys, of `size` elements; values have `value_size`."""

    queries: int
    keys: int
    size: int
    value_size: int
    dtype: str

    def __post_init__(self) -> None:
        if self.keys < 1 or self.queries % self.keys:
            raise InvalidArgument(
                "each head of keys serves as many heads of queries",
                expected=f"a multiple of {self.keys} heads",
                found=str(self.queries),
            )

    @property
    def group(self) -> int:
        """How many heads of queries share one of keys."""
        return self.queries // self.keys


@dataclass
class Keys:
    """Where the keys and values of a sequence are; indices lack the element."""

    length: Callable[[Any], Any]  # of a sequence
    key: Callable[[Any, Any, Any], tuple[Any, ...]]  # of sequence, head, token
    value: Callable[[Any, Any, Any], tuple[Any, ...]]
    keys: Any
    values: Any
    position: Callable[[Any, Any], Any] | None = None  # of a token, for rotary embeddings
    rounded: bool = False  # to bytes, with a scale behind each head of a token


@dataclass
class Mask:
    """What sees what: columns are numbers of keys, tokens those of all sequences."""

    sees: Callable[[Any, Any, Any], Any]  # sequence, token, column: whether the token sees it
    reach: Callable[[Any, Any], Any]  # sequence, end: how many columns the tokens before the end may see
    freely: Callable[[Any, Any], Any]  # sequence, token: how many first ones it and all tokens behind it see


@dataclass
class _Rotary:
    """Embeddings that are applied as queries and keys are read, where `mode` is 1."""

    mode: Any
    scale: Any
    theta: Any
    scaling: Mapping[str, Any]
    query_position: Callable[[Any], Any]


class Attention:
    """The kernel's body; the parts that differ are set before :meth:`emit`."""

    def __init__(self, kernel: KernelBuilder, heads: Heads, keys: Keys, one_token: bool = False) -> None:
        self.kernel, self.ib, self.heads, self.keys = kernel, kernel.ib, heads, keys
        self.tokens = 1 if one_token else max(1, _ROWS // heads.group)  # of a tile
        rows = self.tokens * heads.group
        self.lanes = 1 if rows == 1 else min(_ROWS, max(4, 1 << (rows - 1).bit_length()))
        self.rows = -(-rows // self.lanes) * self.lanes
        self.rotary: _Rotary | None = None
        self.scale: Any = 1.0

    def emit(
        self, total: Any, batch: Any, bounds: Callable[[Any], Any], query: Any, output: Any, lse: Any, mask: Mask
    ) -> None:
        """Emit attention of `total` tokens.

        ``bounds(b)`` are the first token of a sequence and its end. `query` and `output` take (token, head, element),
        `lse` (token, head).
        """
        tiles = (total + self.tokens - 1) // self.tokens
        with self.ib.for_range(0, tiles * self.heads.keys, "task", kind="parallel") as task:
            self._allocate()
            first, h = task // self.heads.keys * self.tokens, task % self.heads.keys
            if self.tokens == 1 and bounds is _own_sequence:
                self._segment(first, h, first, first + 1, query, output, lse, mask)
                return
            with self.ib.for_range(0, batch, "b") as b:
                begin, end = (x.astype("int64") for x in bounds(b))
                low, high = tir.max(begin, first), tir.min(end, first + self.tokens)
                with self.ib.if_scope(low < high):
                    self._segment(b, h, low, high, query, output, lse, mask)

    def _allocate(self) -> None:
        heads, local = self.heads, self.kernel.local
        self.q, self.qt = local((1, heads.size), "q_row"), local((heads.size, self.rows), "q_turned")
        self.k, self.v = local((_COLUMNS, heads.size), "k_tile"), local((_COLUMNS, heads.value_size), "v_tile")
        self.s = local((_COLUMNS, self.rows), "scores")
        if self.rows == 1:
            self.parts, self.turned = (local((_COLUMNS, _COLUMNS), name) for name in ("parts", "parts_turned"))
        self.out = local((self.rows, heads.value_size), "sums")
        names = ("greatest", "total", "peak", "shrink")
        self.greatest, self.total, self.peak, self.shrink = (local(self.rows, name) for name in names)
        self.one, self.unit = local(1, "share"), local(1, "unit")
        if self.rotary is not None:
            self.cosines, self.sines = local(heads.size, "cosines"), local(heads.size, "sines")

    def _segment(self, b: Any, h: Any, low: Any, high: Any, query: Any, output: Any, lse: Any, mask: Mask) -> None:
        """Tokens `low` to `high` of one sequence."""
        heads, ib = self.heads, self.ib
        n_rows = (high - low) * heads.group

        def place(r: Any) -> tuple[Any, Any]:
            return low + r // heads.group, h * heads.group + r % heads.group

        with ib.for_range(0, self.rows, "r") as r:
            self.greatest[r] = const(_HIDDEN, "float32")
            self.total[r] = const(0.0, "float32")
            with self.kernel.vectors(0, heads.value_size, vector_width(heads.value_size)) as d:
                self.out[r, d] = const(0.0, "float32")
            with ib.if_scope(r < n_rows):
                token, head = place(r)
                self._load(self.q, 0, query, (token, head), heads.size, self._query_position(token), self.scale)
                with ib.for_range(0, heads.size, "d") as d:
                    self.qt[d, r] = self.q[0, d]
            with ib.else_scope(), ib.for_range(0, heads.size, "d") as d:
                self.qt[d, r] = const(0.0, "float32")
        columns = mask.reach(b, high).astype("int64")
        with ib.for_range(0, (columns + _COLUMNS - 1) // _COLUMNS, "tile") as tile:
            self._load_keys(b, h, tile * _COLUMNS, columns)
            (self._scores_of_one if self.rows == 1 else self._scores)()
            with ib.if_scope((tile + 1) * _COLUMNS > mask.freely(b, low)):
                with ib.for_range(0, _COLUMNS, "c") as c, ib.for_range(0, self.rows, "r") as r:
                    seen = mask.sees(b, tir.min(low + r // heads.group, high - 1), tile * _COLUMNS + c)
                    self.s[c, r] = if_then_else(seen, self.s[c, r], const(_HIDDEN, "float32"))
            self._weights()
            self._add_values()
        with ib.for_range(0, n_rows, "r") as r:
            token, head = place(r)
            some = self.total[r] > 0.0
            self.one[0] = if_then_else(some, 1.0 / self.total[r], const(0.0, "float32"))
            with self.kernel.vectors(0, heads.value_size, vector_width(heads.value_size)) as d:
                output[token, head, d] = (self.out[r, d] * self.one[0]).astype(heads.dtype)
            # Weights of nothing: so little that a merge with anything else gives the other one.
            value = (self.greatest[r] + log(self.total[r])) * math.log2(math.e)
            lse[token, head] = if_then_else(some, value, const(-5e4, "float32"))

    def _query_position(self, token: Any) -> Any:
        return None if self.rotary is None else self.rotary.query_position(token)

    def _load(
        self,
        target: Any,
        row: Any,
        source: Any,
        index: tuple[Any, ...],
        size: int,
        position: Any,
        scale: Any = 1.0,
        rounded: bool = False,
    ) -> None:
        """Copy one head of a token to a row of a tile, turned by its position where embeddings are inline."""
        ib = self.ib
        if rounded:
            behind = Ramp(const(size, "int64"), const(1, "int64"), SCALE_BYTES)
            self.unit[0] = reinterpret("float32", source[(*index, behind)])

        def load(d: Any) -> Any:
            value = source[(*index, d)].astype("float32")
            return value * self.unit[0] if rounded else value

        def copy() -> None:
            with self.kernel.vectors(0, size, vector_width(size)) as d:
                target[row, d] = load(d) * scale

        if self.rotary is None or position is None:
            copy()
            return
        neighbours = self.rotary.scaling.get("rope_type") in ("gptj", "llama4")
        with ib.if_scope(self.rotary.mode == 1):
            at = position.astype("float32") * self.rotary.scale
            angle_tables(self.kernel, at, self.rotary.theta, size, self.rotary.scaling, self.cosines, self.sines)
            with ib.for_range(0, size, "d") as d:
                target[row, d] = rotated(load, d, self.cosines[d], self.sines[d], size, neighbours) * scale
        with ib.else_scope():
            copy()

    def _load_keys(self, b: Any, h: Any, first: Any, columns: Any) -> None:
        keys, heads, ib = self.keys, self.heads, self.ib
        with ib.for_range(0, _COLUMNS, "c") as c:
            token = first + c
            with ib.if_scope(token < columns):
                position = keys.position(b, token) if keys.position is not None else None
                how = {"rounded": keys.rounded}
                self._load(self.k, c, keys.keys, keys.key(b, h, token), heads.size, position, **how)
                self._load(self.v, c, keys.values, keys.value(b, h, token), heads.value_size, None, **how)
            with ib.else_scope():
                with self.kernel.vectors(0, heads.size, vector_width(heads.size)) as d:
                    self.k[c, d] = const(0.0, "float32")
                with self.kernel.vectors(0, heads.value_size, vector_width(heads.value_size)) as d:
                    self.v[c, d] = const(0.0, "float32")

    def _scores(self) -> None:
        """Products of the columns of a tile and all rows, which lie side by side; some columns' wait in registers."""
        ib, width = self.ib, self.lanes
        with ib.for_range(0, _COLUMNS // _BLOCK, "cb") as cb, ib.for_range(0, self.rows // width, "o") as o:
            sums = self.kernel.local((_BLOCK, width), "sums")
            for i in range(_BLOCK):
                with ib.for_range(0, width, "j", kind="vectorize") as j:
                    sums[i, j] = const(0.0, "float32")
            with ib.for_range(0, self.heads.size, "d") as d:
                for i in range(_BLOCK):
                    with ib.for_range(0, width, "j", kind="vectorize") as j:
                        sums[i, j] = sums[i, j] + self.k[cb * _BLOCK + i, d] * self.qt[d, o * width + j]
            for i in range(_BLOCK):
                with ib.for_range(0, width, "j", kind="vectorize") as j:
                    self.s[cb * _BLOCK + i, o * width + j] = sums[i, j]

    def _scores_of_one(self) -> None:
        """Products of the columns of a tile and one row, by vectors along both; their parts are turned to be summed."""
        ib, width = self.ib, vector_width(self.heads.size)
        with ib.for_range(0, _COLUMNS, "c") as c:
            with ib.for_range(0, width, "j", kind="vectorize") as j:
                self.parts[c, j] = const(0.0, "float32")
            with (
                ib.for_range(0, self.heads.size // width, "o") as o,
                ib.for_range(0, width, "j", kind="vectorize") as j,
            ):
                self.parts[c, j] = self.parts[c, j] + self.k[c, o * width + j] * self.q[0, o * width + j]
        side = min(width, 8)
        for i in range(0, width, side):
            for c in range(0, _COLUMNS, side):
                self.kernel.transpose(self.turned, (i, c), self.parts, side)
        with ib.for_range(0, _COLUMNS, "c", kind="vectorize") as c:
            self.s[c, 0] = in_pairs([self.turned[i, c] for i in range(width)], operator.add)

    def _weights(self) -> None:
        """Scores become weights; `shrink` is by how much what was summed with lesser greatest scores does."""
        with self.kernel.vectors(0, self.rows, self.lanes) as r:
            self.peak[r] = in_pairs([self.greatest[r], *(self.s[c, r] for c in range(_COLUMNS))], tir.max)
        columns = self.ib.for_range(0, _COLUMNS, "c", kind="vectorize" if self.rows == 1 else "serial")
        with columns as c, self.kernel.vectors(0, self.rows, self.lanes) as r:
            seen = self.s[c, r] > const(_HIDDEN / 2, "float32")
            self.s[c, r] = Select(seen, exp(self.s[c, r] - self.peak[r]), const(0.0, "float32"))
        with self.kernel.vectors(0, self.rows, self.lanes) as r:
            self.shrink[r] = exp(self.greatest[r] - self.peak[r])
            sums = in_pairs([self.s[c, r] for c in range(_COLUMNS)], operator.add)
            self.total[r] = self.total[r] * self.shrink[r] + sums
            self.greatest[r] = self.peak[r]

    def _add_values(self) -> None:
        """Add weights times values to what is left of the sums: some rows and vectors of values wait in registers."""
        ib, size, block = self.ib, self.heads.value_size, min(_BLOCK // 2, self.rows)
        width = vector_width(size)
        vectors = vector_width(size // width, most=_BLOCK // 2 if block == 1 else 2)
        cells = [(i, v) for i in range(block) for v in range(vectors)]
        with ib.for_range(0, self.rows // block, "rb") as rb, ib.for_range(0, size // width // vectors, "o") as o:
            sums = self.kernel.local((block, vectors, width), "sums")
            for i, v in cells:
                with ib.for_range(0, width, "j", kind="vectorize") as j:
                    d = (o * vectors + v) * width + j
                    sums[i, v, j] = self.out[rb * block + i, d] * self.shrink[rb * block + i]
            with ib.for_range(0, _COLUMNS, "c") as c:
                for i, v in cells:
                    with ib.for_range(0, width, "j", kind="vectorize") as j:
                        d = (o * vectors + v) * width + j
                        sums[i, v, j] = sums[i, v, j] + self.s[c, rb * block + i] * self.v[c, d]
            for i, v in cells:
                with ib.for_range(0, width, "j", kind="vectorize") as j:
                    self.out[rb * block + i, (o * vectors + v) * width + j] = sums[i, v, j]


def _own_sequence(b: Any) -> tuple[Any, Any]:
    """Each sequence has one new token."""
    return b, b + 1


def _causal(keys: Keys, bounds: Callable[[Any], tuple[Any, Any]], causal: Any) -> Mask:
    """Tokens see what comes before them, the last one all, where `causal` is not 0."""

    def edge(b: Any, token: Any) -> Any:
        length, end = keys.length(b).astype("int64"), bounds(b)[1].astype("int64")
        return if_then_else(causal > 0, tir.max(length - (end - token) + 1, const(0, "int64")), length)

    return Mask(lambda b, token, column: column < edge(b, token), lambda b, end: edge(b, end - 1), edge)


def _paged(
    kernel: KernelBuilder, heads: Heads, batch: Any, sliding_window: bool, page_size: Any, page_dtype: str | None
) -> tuple[Keys, Any]:
    """Declare pages and what says whose they are; return the keys, and the positions of first keys."""
    size = page_size if isinstance(page_size, int) else kernel.size("page_size")
    dtype, n_pages = page_dtype or heads.dtype, kernel.size("max_num_pages")
    pages = kernel.buffer("pages", (n_pages, 2, heads.keys, size, stored_size(heads.size, dtype)), dtype)
    starts = kernel.buffer("page_indptr", (batch + 1,), "int32")
    numbers = kernel.buffer("page_values", (kernel.size("nnz_pages"),), "int32")
    info = kernel.buffer("length_info", (3, batch) if sliding_window else (batch,), "int32")
    offsets = kernel.buffer("k_rope_pos_offset", (batch,), "int32")

    def length(b: Any) -> Any:
        count = starts[b + 1] - starts[b]
        slots = (count - 1) * size + (info[0, b] if sliding_window else info[b])
        tokens = slots - info[1, b] + info[2, b] if sliding_window else slots
        return if_then_else(count > 0, tokens, const(0, tokens.dtype))

    def where(which: int) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
        def index(b: Any, h: Any, token: Any) -> tuple[Any, ...]:
            slot = token
            if sliding_window:  # sinks, then a gap that the window slid over
                slot = if_then_else(token < info[2, b], token, token - info[2, b] + info[1, b])
            return numbers[starts[b] + slot // size].astype("int64"), which, h, slot % size

        return index

    position, rounded = (lambda b, token: offsets[b] + token), dtype == "int8"
    return Keys(length, where(0), where(1), pages, pages, position, rounded), offsets


def _attention(
    kernel: KernelBuilder, heads: Heads, keys: Keys, scaling: Mapping[str, Any], positions: Any, one_token: bool = False
) -> Attention:
    """Declare the numbers that end every kernel's parameters: embeddings and the scale of scores of the body."""
    body, mode = Attention(kernel, heads, keys, one_token), kernel.scalar("rotary_mode", "int32")
    scale, theta, body.scale = (kernel.scalar(n, "float32") for n in ("rope_scale", "rope_theta", "sm_scale"))
    body.rotary = _Rotary(mode, scale, theta, scaling, lambda token: positions[token])
    return body


def attention_decode(
    num_kv_heads: int,
    num_qo_heads: int,
    head_dim: int,
    dtype: str,
    sliding_window: bool,
    rope_scaling: Mapping[str, Any],
    page_size: int | PrimExpr = 16,
    page_dtype: str | None = None,
) -> PrimFunc:
    """Make attention of one new token for each sequence over pages.

    Its arguments are ``q (batch, heads, size)``, ``pages``, where each sequence's pages begin ``(batch + 1,) int32``,
    the numbers of the pages, ``length_info``, the positions of the first keys and of the queries, ``output``, ``lse``
    (batch, heads), and ``rotary_mode``, ``rope_scale``, ``rope_theta``, ``sm_scale``. ``length_info`` is how many
    tokens the last page has, (batch,) int32; with `sliding_window` it is (3, batch), and the other rows are where the
    window begins and how many tokens before it are kept. Pages have `page_dtype`, if not `dtype`; of int8, each head of
    a token is followed by its scale, four bytes of a float32.
    """
    heads, kernel = Heads(num_qo_heads, num_kv_heads, head_dim, head_dim, dtype), KernelBuilder()
    batch = kernel.size("batch")
    q = kernel.buffer("q", (batch, num_qo_heads, head_dim), dtype)
    keys, _ = _paged(kernel, heads, batch, sliding_window, page_size, page_dtype)
    positions = kernel.buffer("q_rope_position", (batch,), "int32")
    output = kernel.buffer("output", (batch, num_qo_heads, head_dim), dtype)
    lse = kernel.buffer("lse", (batch, num_qo_heads), "float32")
    body = _attention(kernel, heads, keys, rope_scaling, positions, one_token=True)
    body.emit(
        batch,
        batch,
        _own_sequence,
        q,
        output,
        lse,
        Mask(lambda b, token, column: column < keys.length(b), *[lambda b, end: keys.length(b)] * 2),
    )
    return kernel.finish("batch_decode_paged_kv" + ("_sliding_window" if sliding_window else ""))


class _Ragged:
    """The queries of a batch, one sequence behind the other."""

    def __init__(self, kernel: KernelBuilder, heads: Heads) -> None:
        self.kernel, self.heads = kernel, heads
        self.batch, self.total = kernel.size("batch_size"), kernel.size("total_len")
        self.q = kernel.buffer("q", (self.total, heads.queries, heads.size), heads.dtype)
        self.starts = kernel.buffer("q_indptr", (self.batch + 1,), "int32")

    def bounds(self, b: Any) -> tuple[Any, Any]:
        """The first token of a sequence, and its end."""
        return self.starts[b], self.starts[b + 1]

    def results(self) -> None:
        """Declare what is computed."""
        heads = self.heads
        self.output = self.kernel.buffer("output", (self.total, heads.queries, heads.value_size), heads.dtype)
        self.lse = self.kernel.buffer("lse", (self.total, heads.queries), "float32")

    def emit(self, body: Attention, mask: Mask) -> None:
        """Emit the kernel's body."""
        body.emit(self.total, self.batch, self.bounds, self.q, self.output, self.lse, mask)


def attention_prefill(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    sliding_window: bool,
    rope_scaling: Mapping[str, Any],
    page_size: int | PrimExpr = 16,
    page_dtype: str | None = None,
) -> PrimFunc:
    """Make attention of any number of new tokens for each sequence over pages.

    Its arguments are those of :func:`attention_decode`, but ``q (total, heads, size)`` is followed by where each
    sequence's tokens begin, ``(batch + 1,) int32``, and ``rotary_mode`` comes behind ``causal``: whether a token sees
    only what lies before it, where the last one is the last key.
    """
    heads, kernel = Heads(h_q, h_kv, d, d, dtype), KernelBuilder()
    queries = _Ragged(kernel, heads)
    keys, _ = _paged(kernel, heads, queries.batch, sliding_window, page_size, page_dtype)
    positions = kernel.buffer("q_rope_position", (queries.total,), "int32")
    queries.results()
    causal = kernel.scalar("causal", "int32")
    body = _attention(kernel, heads, keys, rope_scaling, positions)
    queries.emit(body, _causal(keys, queries.bounds, causal))
    return kernel.finish("batch_prefill_paged_kv" + ("_sliding_window" if sliding_window else ""))


def _side_by_side(kernel: KernelBuilder, heads: Heads, batch: Any) -> tuple[Keys, Any]:
    """Declare keys and values, one sequence behind the other."""
    total = kernel.size("kv_len")
    k = kernel.buffer("k", (total, heads.keys, heads.size), heads.dtype)
    v = kernel.buffer("v", (total, heads.keys, heads.value_size), heads.dtype)
    starts = kernel.buffer("kv_indptr", (batch + 1,), "int32")

    def index(b: Any, h: Any, token: Any) -> tuple[Any, ...]:
        return starts[b] + token, h

    return Keys(lambda b: starts[b + 1] - starts[b], index, index, k, v), starts


def attention_prefill_ragged(
    h_kv: int, h_q: int, d_qk: int, d_v: int, dtype: str, rope_scaling: Mapping[str, Any]
) -> PrimFunc:
    """Make attention of tokens over keys ``(n, h_kv, d_qk)`` and values ``(n, h_kv, d_v)`` that no pages hold.

    Its arguments are ``q, q_indptr, k, v, kv_indptr, q_rope_position, k_rope_pos_offset, output, lse``, and the
    numbers of :func:`attention_prefill`.
    """
    heads, kernel = Heads(h_q, h_kv, d_qk, d_v, dtype), KernelBuilder()
    queries = _Ragged(kernel, heads)
    keys, _ = _side_by_side(kernel, heads, queries.batch)
    positions = kernel.buffer("q_rope_position", (queries.total,), "int32")
    offsets = kernel.buffer("k_rope_pos_offset", (queries.batch,), "int32")
    keys.position = lambda b, token: offsets[b] + token
    queries.results()
    causal = kernel.scalar("causal", "int32")
    body = _attention(kernel, heads, keys, rope_scaling, positions)
    queries.emit(body, _causal(keys, queries.bounds, causal))
    return kernel.finish("batch_prefill_ragged_kv")


def _tree(keys: Keys, bounds: Callable[[Any], tuple[Any, Any]], starts: Any, orders: Any) -> Mask:
    """The last tokens of a sequence are nodes of a tree, which see their ancestors and what lies before the tree.

    Node i has the number ``orders[i, 0]``, and its descendants those behind it, up to ``orders[i, 1]``.
    """

    def nodes_of(b: Any) -> Any:
        return (starts[b + 1] - starts[b]).astype("int64")

    def before(b: Any) -> Any:
        return keys.length(b).astype("int64") - nodes_of(b)

    def sees(b: Any, token: Any, column: Any) -> Any:
        length, end = keys.length(b).astype("int64"), bounds(b)[1].astype("int64")
        nodes, root = nodes_of(b), before(b)
        own = orders[starts[b] + nodes - (end - token), 0]
        node = starts[b] + tir.max(column - root, const(0, "int64"))
        inside = all(column < length, own >= orders[node, 0], own < orders[node, 1])
        return any(column < root, if_then_else(column < length, inside, const(0, "bool")))

    return Mask(sees, lambda b, end: keys.length(b), lambda b, token: before(b))


def tree_attention(h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any]) -> PrimFunc:
    """Make attention of the nodes of token trees over each other.

    Its arguments are ``q, q_indptr, k, v, kv_indptr, q_rope_position, mn_indptr, mask, output, lse``, where `mask`
    (nodes, 2) int32 orders the nodes of each tree and `mn_indptr` says where it begins, and the numbers of
    :func:`attention_decode`.
    """
    heads, kernel = Heads(h_q, h_kv, d, d, dtype), KernelBuilder()
    queries = _Ragged(kernel, heads)
    keys, key_starts = _side_by_side(kernel, heads, queries.batch)
    positions = kernel.buffer("q_rope_position", (queries.total,), "int32")
    keys.position = lambda b, token: positions[key_starts[b] + token]
    starts = kernel.buffer("mn_indptr", (queries.batch + 1,), "int32")
    orders = kernel.buffer("mask", (kernel.size("tree_size"), 2), "int32")
    queries.results()
    body = _attention(kernel, heads, keys, rope_scaling, positions)
    queries.emit(body, _tree(keys, queries.bounds, starts, orders))
    return kernel.finish("batch_tree_attn")


def tree_attention_paged(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    page_size: int | PrimExpr = 16,
    page_dtype: str | None = None,
) -> PrimFunc:
    """Make attention of the nodes of token trees over pages that hold them and what lies before.

    Its arguments are those of :func:`attention_prefill` without ``causal``, then where each tree begins and the order
    of its nodes.
    """
    heads, kernel = Heads(h_q, h_kv, d, d, dtype), KernelBuilder()
    queries = _Ragged(kernel, heads)
    keys, _ = _paged(kernel, heads, queries.batch, False, page_size, page_dtype)
    positions = kernel.buffer("q_rope_position", (queries.total,), "int32")
    queries.results()
    body = _attention(kernel, heads, keys, rope_scaling, positions)
    starts = kernel.buffer("tree_order_indptr", (queries.batch + 1,), "int32")
    orders = kernel.buffer("tree_order", (kernel.size("total_tree_order_len"), 2), "int32")
    queries.emit(body, _tree(keys, queries.bounds, starts, orders))
    return kernel.finish("tree_attn_paged_kv")


def merge_state_inplace(dtype: str) -> PrimFunc:
    """Make ``(v, s, v_other, s_other)``: attention over two sets of keys becomes one over both, in the first.

    ``v`` (n, heads, size) are results, ``s`` (n, heads) float32 the logarithms, to base 2, of their sums of weights.
    """
    kernel = KernelBuilder()
    n, h, size = (kernel.size(name) for name in "NHD")
    v, s = kernel.buffer("v", (n, h, size), dtype), kernel.buffer("s", (n, h), "float32")
    other, s_other = kernel.buffer("v_other", (n, h, size), dtype), kernel.buffer("s_other", (n, h), "float32")
    with kernel.ib.for_range(0, n, "i", kind="parallel") as i, kernel.ib.for_range(0, h, "j") as j:
        shares = kernel.local(4, "shares")
        shares[3] = tir.max(s[i, j], s_other[i, j])
        for at, logarithm in enumerate((s, s_other)):
            shares[at] = exp((logarithm[i, j] - shares[3]) * math.log(2))
        shares[2] = shares[0] + shares[1]
        with kernel.ib.for_range(0, size, "d") as d:
            mean = v[i, j, d].astype("float32") * shares[0] + other[i, j, d].astype("float32") * shares[1]
            v[i, j, d] = (mean / shares[2]).astype(dtype)
        s[i, j] = log(shares[2]) * math.log2(math.e) + shares[3]
    return kernel.finish("merge_state_inplace")
