"""Kernels of attention, compared with float64, and what they refuse."""

import numpy as np
import pytest

import weft
from weft.frontend.nn.llm import attention, kv_cache, page_kernels, position_embedding, tree_attn

PAGE = 4
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


def built(func):
    return weft.build(func, target="llvm").main


def i32(values):
    return weft.runtime.tensor(np.asarray(values, "int32"))


def softmax_attention(q, k, v, seen, scale):
    """Results (n, heads, size) and base-2 logarithms (n, heads), in float64; what sees nothing is 0."""
    k, v = (np.repeat(t, q.shape[1] // k.shape[1], axis=1).astype("float64") for t in (k, v))
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q.astype("float64"), k) * scale, -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), -1e30)
    weights = np.exp(scores - top)
    total = weights.sum(-1)
    out = np.einsum("hqk,khd->qhd", weights / np.maximum(total, 1e-300)[..., None], v)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, (top[..., 0] + np.log(total)) * np.log2(np.e), -5e4)
    return out, lse.T


class Pages:
    """Random pages, and sequences scattered over them."""

    def __init__(self, rng, lengths, heads, size, dtype):
        counts = [-(-n // PAGE) for n in lengths]
        numpy_dtype = weft.runtime.empty((), dtype).numpy().dtype
        self.data = rng.standard_normal((sum(counts) + 2, 2, heads, PAGE, size)).astype(numpy_dtype)
        numbers = rng.permutation(len(self.data))[: sum(counts)]
        self.starts = np.cumsum([0, *counts])
        self.lengths, self.numbers = lengths, numbers
        self.last = [n - (c - 1) * PAGE if c else 0 for n, c in zip(lengths, counts, strict=True)]

    def arguments(self):
        return [weft.runtime.tensor(self.data), i32(self.starts), i32(self.numbers)]

    def read(self, b):
        own = self.data[self.numbers[self.starts[b] : self.starts[b + 1]]]
        k, v = (own[:, i].transpose(0, 2, 1, 3).reshape(-1, *own.shape[2:3], own.shape[4]) for i in (0, 1))
        return k[: self.lengths[b]], v[: self.lengths[b]]


def close(found, expected, dtype):
    np.testing.assert_allclose(found.numpy().astype("float64"), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "dtype"),
    [(4, 4, 16, "float32"), (6, 2, 20, "float32"), (8, 1, 64, "float16"), (3, 3, 7, "float32"), (4, 2, 32, "bfloat16")],
)
def test_decode_and_prefill_over_pages(heads, kv_heads, size, dtype):
    rng = np.random.default_rng(size)
    lengths, new = [5, 1, 37, 16, 23], [5, 1, 20, 0, 3]
    pages, scale = Pages(rng, lengths, kv_heads, size, dtype), size**-0.5
    batch = len(lengths)
    kind = pages.data.dtype

    decode = built(attention.attention_decode(kv_heads, heads, size, dtype, False, {}, PAGE))
    q = rng.standard_normal((batch, heads, size)).astype(kind)
    out, lse = weft.runtime.empty(q.shape, dtype), weft.runtime.empty(q.shape[:2], "float32")
    rest = [i32(pages.last), i32([0] * batch)]
    decode(weft.runtime.tensor(q), *pages.arguments(), *rest, i32([0] * batch), out, lse, 0, 1.0, 1e4, scale)
    for b in range(batch):
        expected, logs = softmax_attention(q[b : b + 1], *pages.read(b), True, scale)
        close(weft.runtime.tensor(out.numpy()[b : b + 1]), expected, dtype)
        np.testing.assert_allclose(lse.numpy()[b : b + 1], logs, rtol=1e-5, atol=1e-5)

    prefill = built(attention.attention_prefill(kv_heads, heads, size, dtype, False, {}, PAGE))
    starts = np.cumsum([0, *new])
    q = rng.standard_normal((starts[-1], heads, size)).astype(kind)
    for causal in (0, 1):
        out, lse = weft.runtime.empty(q.shape, dtype), weft.runtime.empty(q.shape[:2], "float32")
        prefill(
            weft.runtime.tensor(q),
            i32(starts),
            *pages.arguments(),
            *rest,
            i32([0] * len(q)),
            out,
            lse,
            causal,
            0,
            1.0,
            1e4,
            scale,
        )
        for b in range(batch):
            mine = slice(starts[b], starts[b + 1])
            k, v = pages.read(b)
            seen = np.arange(len(k)) <= len(k) - new[b] + np.arange(new[b])[:, None] if causal else True
            expected, logs = softmax_attention(q[mine], k, v, seen, scale)
            close(weft.runtime.tensor(out.numpy()[mine]), expected, dtype)
            np.testing.assert_allclose(lse.numpy()[mine], logs, rtol=1e-5, atol=1e-5)


def test_sequences_without_pages_give_nothing_that_a_merge_counts():
    rng = np.random.default_rng(0)
    pages = Pages(rng, [0, 3], 1, 8, "float32")
    q = rng.standard_normal((2, 2, 8)).astype("float32")
    out, lse = weft.runtime.empty(q.shape, "float32"), weft.runtime.empty(q.shape[:2], "float32")
    decode = built(attention.attention_decode(1, 2, 8, "float32", False, {}, PAGE))
    rest = [i32(pages.last), i32([0, 0]), i32([0, 0])]
    decode(weft.runtime.tensor(q), *pages.arguments(), *rest, out, lse, 0, 1.0, 1e4, 1.0)
    assert not out.numpy()[0].any()
    kept, logs = out.numpy().copy(), lse.numpy().copy()
    other, other_lse = (weft.runtime.tensor(x[::-1].copy()) for x in (kept, logs))
    built(attention.merge_state_inplace("float32"))(out, lse, other, other_lse)
    np.testing.assert_allclose(out.numpy(), kept[[1, 1]], rtol=1e-6)
    np.testing.assert_allclose(lse.numpy(), logs[[1, 1]], rtol=1e-6)


def test_merged_halves_are_the_whole():
    rng = np.random.default_rng(1)
    ragged = built(attention.attention_prefill_ragged(2, 4, 12, 6, "float32", {}))
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((3, 4, 12), (9, 2, 12), (9, 2, 6)))

    def over(keys):
        out, lse = weft.runtime.empty((3, 4, 6), "float32"), weft.runtime.empty((3, 4), "float32")
        n = len(k[keys])
        ragged(
            *map(weft.runtime.tensor, (q,)),
            i32([0, 3]),
            weft.runtime.tensor(k[keys]),
            weft.runtime.tensor(v[keys]),
            i32([0, n]),
            i32([0] * 3),
            i32([0]),
            out,
            lse,
            0,
            0,
            1.0,
            1e4,
            0.3,
        )
        return out, lse

    first, second = over(slice(0, 4)), over(slice(4, 9))
    built(attention.merge_state_inplace("float32"))(*first, *second)
    expected, logs = softmax_attention(q, k, v, True, 0.3)
    close(first[0], expected, "float32")
    np.testing.assert_allclose(first[1].numpy(), logs, rtol=1e-5)


@pytest.mark.parametrize("mode", ["plain", "causal", "padded", "causal_padded_left"])
def test_batches_of_sequences(mode):
    rng, n, m = np.random.default_rng(5), 5, 7
    q, k, v = (rng.standard_normal((3, t, h, 8)).astype("float32") for t, h in ((n, 4), (m, 2), (m, 2)))
    out, lse = weft.runtime.empty(q.shape, "float32"), weft.runtime.empty(q.shape[:3], "float32")
    arrays, valid = [weft.runtime.tensor(x) for x in (q, k, v)], np.array([0, 3, 5])
    row, column = np.arange(n)[:, None], np.arange(m)
    if "padded" in mode:
        func = kv_cache._attention_sequence_prefill_with_mask(2, 4, 8, "float32", "llvm", 0.5, mask_mode=mode)
        arrays.append(i32(valid))
    else:
        func = kv_cache._attention_sequence_prefill(2, 4, 8, "float32", "llvm", int(mode == "causal"), 0.5)
    built(func)(*arrays, out, lse)
    for b, real in enumerate(valid):
        before = column <= row + m - n
        seen = {
            "plain": np.ones((n, m), bool),
            "causal": before,
            "padded": (row < real) & (column < real),
            "causal_padded_left": before & (row >= n - real) & (column >= m - real),
        }[mode]
        expected, logs = softmax_attention(q[b], k[b], v[b], seen, 0.5)
        close(weft.runtime.tensor(out.numpy()[b]), expected, "float32")
        np.testing.assert_allclose(lse.numpy()[b], logs, rtol=1e-5, atol=1e-5)


def test_nodes_of_a_tree_see_their_ancestors():
    rng = np.random.default_rng(2)
    parents = [-1, 0, 0, 1, -1, 4]
    orders = [(0, 4), (1, 3), (3, 4), (2, 3), (4, 6), (5, 6)]
    seen = np.eye(6, dtype=bool)
    for i, p in enumerate(parents):
        seen[i] |= seen[p] if p >= 0 else False
    q, k, v = (rng.standard_normal((6, h, 8)).astype("float32") for h in (4, 2, 2))
    out, lse = weft.runtime.empty(q.shape, "float32"), weft.runtime.empty((6, 4), "float32")
    arrays = [weft.runtime.tensor(x) for x in (q, k, v)]
    built(tree_attn.tree_attn_cpu(2, 4, 8, "float32", {}))(
        arrays[0],
        i32([0, 6]),
        *arrays[1:],
        i32([0, 6]),
        i32([0] * 6),
        i32([0, 6]),
        i32(orders),
        out,
        lse,
        0,
        1.0,
        1e4,
        0.5,
    )
    close(out, softmax_attention(q, k, v, seen, 0.5)[0], "float32")


LLAMA = {"factor": 8.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64}
SCALINGS = [
    {},
    {"rope_type": "gptj"},
    {"rope_type": "llama3", **LLAMA, "high_freq_factor": 4.0},
    {"rope_type": "llama4", **LLAMA, "high_freq_factor": 1.0},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 64,
        "inv_theta_log_scale": 1 / (2 * np.log(1e4)),
    },
]


def frequencies(scaling, size):
    """The frequency of each pair of a head, in float64."""
    freq = 1e4 ** -(np.arange(0, size, 2) / size)
    kind = scaling.get("rope_type")
    if kind == "llama3":
        waves = 2 * np.pi / freq
        length, low, high = (
            scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        smooth = np.clip((length / waves - low) / (high - low), 0, 1)
        return (1 - smooth) * freq / scaling["factor"] + smooth * freq
    if kind == "llama4":
        return np.where(2 * np.pi / freq > 64, freq / 8, freq)
    if kind == "yarn":
        low, high = (size * np.log(64 / (n * 2 * np.pi)) / (2 * np.log(1e4)) for n in (32, 1))
        slow = np.clip((np.arange(size // 2) - max(low, 0)) / (min(high, size - 1) - max(low, 0)), 0, 1)
        return freq / 4 * slow + freq * (1 - slow)
    return freq


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s.get("rope_type", "default"))
def test_queries_and_keys_turn_by_their_positions(scaling):
    rng, size, turning = np.random.default_rng(3), 16, 12
    func = position_embedding.llama_rope_with_position_map(1e4, 1.0, size, 3, 2, "float32", scaling, turning)
    qkv = rng.standard_normal((5, 7, size)).astype("float32")
    positions = np.array([0, 1, 7, 100, 3])
    out = [weft.runtime.empty((5, h, size), "float32") for h in (3, 2, 2)]
    built(func)(weft.runtime.tensor(qkv), i32(positions), *out, 1)
    angle = positions[:, None, None] * frequencies(scaling, turning)
    neighbours = scaling.get("rope_type") in ("gptj", "llama4")
    pairs = np.arange(turning).reshape(-1, 2).T if neighbours else np.arange(turning).reshape(2, -1)
    expected = qkv.astype("float64")
    a, b = (qkv[..., p].astype("float64") for p in pairs)
    expected[..., pairs[0]], expected[..., pairs[1]] = (
        a * np.cos(angle) - b * np.sin(angle),
        a * np.sin(angle) + b * np.cos(angle),
    )
    np.testing.assert_allclose(out[0].numpy(), expected[:, :3], atol=3e-5)
    np.testing.assert_allclose(out[1].numpy(), expected[:, 3:5], atol=3e-5)
    np.testing.assert_array_equal(out[2].numpy(), qkv[:, 5:])
    built(func)(weft.runtime.tensor(qkv), i32(positions), *out, 0)
    np.testing.assert_array_equal(out[0].numpy(), qkv[:, :3])


def test_tokens_go_to_their_places_and_come_back():
    rng = np.random.default_rng(4)
    pages = weft.runtime.tensor(np.zeros((3, 2, 2, PAGE, 5), "float32"))
    k, v = (rng.standard_normal((4, 2, 5)).astype("float32") for _ in range(2))
    places = [9, 2, -1, 4]
    built(page_kernels.kv_cache_transpose_append(2, 5, "float32", PAGE))(
        pages, weft.runtime.tensor(k), weft.runtime.tensor(v), i32(places)
    )
    built(page_kernels.copy_single_page(2, PAGE, 5, "float32"))(pages, 2, 0, 2)
    built(page_kernels.compact_kv_copy(2, 5, "float32", PAGE))(pages, i32([0, 1]), i32([[4], [11]]), 1)
    out = [weft.runtime.tensor(np.zeros((2, 4, 2, 5), "float32")) for _ in range(2)]
    built(page_kernels.kv_cache_debug_get_kv(2, 2, 5, "float32"))(pages, i32([9, 2, 1, 11]), *out, 1)
    for found, given in zip(out, (k, v), strict=True):
        np.testing.assert_array_equal(found.numpy()[1], given[[0, 1, 0, 3]])
        assert not found.numpy()[0].any()


def test_what_is_refused():
    with pytest.raises(weft.error.InvalidArgument, match="a multiple of 4 heads"):
        attention.attention_decode(4, 6, 8, "float32", False, {})
    with pytest.raises(weft.error.InvalidArgument, match="run on CPUs"):
        kv_cache._attention_decode(2, 4, 8, "float32", False, {}, weft.target.Target("cuda"))
    with pytest.raises(weft.error.InvalidArgument, match="lacks fields"):
        position_embedding.switch_rope_freq_func({"rope_type": "llama3"})
    with pytest.raises(weft.error.InvalidArgument, match="unknown form"):
        position_embedding.switch_rope_freq_func({"rope_type": "spiral"})
    with pytest.raises(weft.error.InvalidArgument, match="an even number"):
        position_embedding.llama_rope_with_position_map(1e4, 1.0, 8, 2, 2, "float32", {}, 5)
