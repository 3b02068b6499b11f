"""The paged cache of the runtime: sequences against a model that keeps plain arrays, and what it refuses."""

import ml_dtypes  # noqa: F401 - registers bfloat16
import numpy as np
import pytest
from tvm_ffi import Shape

import weft
from tests.refusals import refuses
from weft.frontend.nn.llm import kv_cache
from weft.frontend.nn.llm.kv_cache import RopeMode

LAYERS, HEADS, KV_HEADS, SIZE, PAGE, TOKENS = 2, 4, 2, 8, 4, 96
SCALE = SIZE**-0.5


def function(name):
    return weft.get_global_func("vm.builtin." + name)


@pytest.fixture(scope="module")
def kernels():
    return built("float32")


@pytest.fixture(scope="module")
def bfloat16_kernels():
    return built("bfloat16")


def built(dtype, page_dtype=None):
    sizes, stored = (KV_HEADS, HEADS, SIZE, dtype), page_dtype or dtype
    made = {
        "append": kv_cache._kv_cache_transpose_append(KV_HEADS, SIZE, dtype, PAGE, page_dtype),
        "ragged": kv_cache._attention_prefill_ragged_cpu(KV_HEADS, HEADS, SIZE, SIZE, dtype, {}),
        "prefill": kv_cache._attention_prefill_cpu(*sizes, False, {}, PAGE, page_dtype),
        "decode": kv_cache._attention_decode_cpu(*sizes, False, {}, PAGE, page_dtype),
        "prefill_window": kv_cache._attention_prefill_cpu(*sizes, True, {}, PAGE, page_dtype),
        "decode_window": kv_cache._attention_decode_cpu(*sizes, True, {}, PAGE, page_dtype),
        "tree_paged": kv_cache.tree_attn_with_paged_kv_cache_cpu(*sizes, {}, PAGE, page_dtype),
        "tree": kv_cache.tree_attn_cpu(*sizes, {}),
        "merge": kv_cache._merge_state_inplace_cpu(dtype),
        "rotary": kv_cache.llama_rope_with_position_map(1e4, 1.0, SIZE, HEADS, KV_HEADS, dtype, {}),
        "copy": kv_cache._copy_single_page_cpu(KV_HEADS, PAGE, SIZE, stored),
        "get": kv_cache._kv_cache_debug_get_kv(LAYERS, KV_HEADS, SIZE, dtype, page_dtype),
        "compact": kv_cache._compact_kv_copy_cpu(KV_HEADS, SIZE, stored, PAGE),
    }
    return {name: weft.build(func, target="llvm").main for name, func in made.items()}


def create(kernels, windows=0, mode=RopeMode.NONE, tokens=TOKENS, dtype="float32", page_dtype=None):
    attention = [["tirx", kernels[k]] for k in ("ragged", "prefill", "decode", "prefill_window", "decode_window")]
    trees = [["tirx", kernels[k]] for k in ("tree_paged", "tree")]
    last = [kernels[k] for k in ("rotary", "copy", "get", "compact")]
    return function("paged_attention_kv_cache_create")(
        Shape([8, tokens, 32, PAGE, windows]),
        Shape([0, LAYERS]),
        HEADS,
        KV_HEADS,
        SIZE,
        SIZE,
        Shape([0] * LAYERS),
        False,
        int(mode),
        1.0,
        1e4,
        None,
        weft.runtime.empty((), dtype),
        kernels["append"],
        None,
        *attention,
        *trees,
        [],
        [kernels["merge"]],
        *last,
        *([weft.runtime.empty((), page_dtype)] if page_dtype else []),
    )


def turned(x, positions):
    angle = np.asarray(positions)[:, None, None] * 1e4 ** -(np.arange(0, SIZE, 2) / SIZE)
    cos, sin = (np.concatenate([f(angle)] * 2, -1) for f in (np.cos, np.sin))
    return x * cos + np.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1) * sin


class Model:
    """Keys and values of sequences as arrays (layers, tokens, heads, size), beside the cache that is tested."""

    def __init__(self, cache, mode=RopeMode.NONE, dtype="float32", page_dtype=None):
        tolerances = {"float32": 2e-5, "bfloat16": 3e-2, "int8": 5e-2}
        self.dtype, self.tolerance, self.exact = np.dtype(dtype), tolerances[page_dtype or dtype], page_dtype is None
        self.cache, self.mode, self.rng = cache, mode, np.random.default_rng(7)
        self.k, self.v, self.window = {}, {}, {}

    def add(self, i):
        function("kv_state_add_sequence")(self.cache, i)
        self.k[i] = self.v[i] = np.zeros((LAYERS, 0, KV_HEADS, SIZE))

    def fork(self, parent, child, at):
        function("kv_state_fork_sequence")(self.cache, parent, child, at)
        end = at if at >= 0 else None
        self.k[child], self.v[child] = self.k[parent][:, :end], self.v[parent][:, :end]

    def pop(self, i, n):
        function("kv_state_popn")(self.cache, i, n)
        end = self.k[i].shape[1] - n
        self.k[i], self.v[i] = self.k[i][:, :end], self.v[i][:, :end]

    def remove(self, i):
        function("kv_state_remove_sequence")(self.cache, i)
        del self.k[i], self.v[i]

    def slide(self, i):
        window, sink = self.window.get(i, (10**9, 0))
        gone = max(self.k[i].shape[1] - window, 0)
        kept = [*range(sink), *range(sink + gone, self.k[i].shape[1])]
        self.k[i], self.v[i] = (t[:, kept] if gone else t for t in (self.k[i], self.v[i]))

    def step(self, new, parents=None):
        """Append new tokens; `parents` of all of them, where they are trees."""
        total = sum(new.values())
        extra = [] if parents is None else [Shape(parents)]
        function("kv_state_begin_forward")(self.cache, Shape(list(new)), Shape(list(new.values())), *extra)
        heads = (HEADS, KV_HEADS, KV_HEADS)
        q, k, v = (self.rng.standard_normal((LAYERS, total, h, SIZE)).astype(self.dtype) for h in heads)
        first = 0
        outputs = []
        for layer in range(LAYERS):
            out = weft.runtime.empty((total, HEADS, SIZE), str(self.dtype))
            qkv = weft.runtime.tensor(np.concatenate([q[layer], k[layer], v[layer]], 1))
            function("attention_kv_cache_attention_with_fused_qkv")(self.cache, layer, SCALE, qkv, out)
            outputs.append(out.numpy())
        function("kv_state_end_forward")(self.cache)
        for i, n in new.items():
            mine, old = slice(first, first + n), self.k[i].shape[1]
            own = None if parents is None else parents[mine]
            self._check(i, n, old, own, [x[:, mine].astype("float64") for x in (q, k, v)], [o[mine] for o in outputs])
            first += n
            self.slide(i)
            self.verify(i)

    def _check(self, i, n, old, parents, qkv, outputs):
        q, k, v = qkv
        seen = np.arange(old + n) <= old + np.arange(n)[:, None]
        depths = list(range(n))
        if parents is not None:
            seen[:, old:] = np.eye(n, dtype=bool)
            for node, parent in enumerate(parents):
                seen[node, old:] |= seen[parent, old:] if parent >= 0 else False
                depths[node] = depths[parent] + 1 if parent >= 0 else 0
        at = old + np.array(depths)
        for layer in range(LAYERS):
            if self.mode == RopeMode.NORMAL:
                q[layer], k[layer] = turned(q[layer], at), turned(k[layer], at)
        self.k[i], self.v[i] = (np.concatenate([a, b], 1) for a, b in ((self.k[i], k), (self.v[i], v)))
        for layer in range(LAYERS):
            keys, queries = self.k[i][layer], q[layer]
            if self.mode == RopeMode.INLINE:
                keys, queries = turned(keys, np.arange(old + n)), turned(queries, at)
            keys, values = (np.repeat(t, HEADS // KV_HEADS, 1) for t in (keys, self.v[i][layer]))
            scores = np.where(seen, np.einsum("qhd,khd->hqk", queries, keys) * SCALE, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            expected = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), values)
            np.testing.assert_allclose(outputs[layer], expected, rtol=self.tolerance, atol=self.tolerance)

    def verify(self, i):
        n = self.k[i].shape[1]
        if n:
            k, v = (weft.runtime.empty((LAYERS, n, KV_HEADS, SIZE), str(self.dtype)) for _ in range(2))
            function("attention_kv_cache_debug_get_kv")(self.cache, i, 0, n, k, v)
            np.testing.assert_allclose(k.numpy(), self.k[i], atol=self.tolerance)
            np.testing.assert_allclose(v.numpy(), self.v[i], atol=1e-6 if self.exact else self.tolerance)


@pytest.mark.parametrize("mode", [RopeMode.NONE, RopeMode.NORMAL, RopeMode.INLINE])
def test_any_operations_leave_what_arrays_would_hold(kernels, mode):
    operate(Model(create(kernels, mode=mode), mode), mode)


def test_pages_of_bfloat16(bfloat16_kernels):
    for mode in (RopeMode.NONE, RopeMode.NORMAL, RopeMode.INLINE):
        operate(Model(create(bfloat16_kernels, mode=mode, dtype="bfloat16"), mode, "bfloat16"), mode)
    slide(Model(create(bfloat16_kernels, windows=1, dtype="bfloat16"), RopeMode.NONE, "bfloat16"))


@pytest.mark.parametrize("page_dtype", ["bfloat16", "int8"])
def test_pages_hold_less_than_what_is_computed(page_dtype):
    kernels = built("float32", page_dtype)
    for mode in (RopeMode.NONE, RopeMode.NORMAL, RopeMode.INLINE):
        operate(Model(create(kernels, mode=mode, page_dtype=page_dtype), mode, page_dtype=page_dtype), mode)
    slide(Model(create(kernels, windows=1, page_dtype=page_dtype), page_dtype=page_dtype))


def operate(model, mode):
    rng = np.random.default_rng(int(mode))
    total = function("attention_kv_cache_get_total_sequence_length")
    for i in range(40):
        known = list(model.k)
        action = rng.choice(["step", "step", "step", "add", "fork", "pop", "remove"])
        room = sum(k.shape[1] for k in model.k.values()) < TOKENS - 40
        if action == "add" and len(known) < 6:
            model.add(i)
        elif action == "fork" and known and len(known) < 6:
            parent = rng.choice(known)
            model.fork(int(parent), i, int(rng.integers(-1, model.k[parent].shape[1] + 1)))
        elif action == "pop" and known:
            one = int(rng.choice(known))
            model.pop(one, int(rng.integers(0, model.k[one].shape[1] + 1)))
        elif action == "remove" and len(known) > 2:
            model.remove(int(rng.choice(known)))
        elif known and room:
            some = rng.choice(known, int(rng.integers(1, len(known) + 1)), replace=False)
            single = rng.integers(2)
            model.step({int(s): 1 if single else int(rng.integers(1, 7)) for s in some})
        for one in model.k:
            model.verify(one)
        assert total(model.cache) == sum(k.shape[1] for k in model.k.values())
    for one in list(model.k):
        model.remove(one)
    assert function("attention_kv_cache_empty")(model.cache)


@pytest.mark.parametrize("mode", [RopeMode.NONE, RopeMode.NORMAL])
def test_windows_slide_and_give_pages_back(kernels, mode):
    # Sliding changes positions: keys are turned as they are read, whatever was asked for.
    slide(Model(create(kernels, windows=1, mode=mode), RopeMode.INLINE if mode else mode))


def slide(model):
    pages = function("attention_kv_cache_get_num_available_pages")
    for i, (window, sink) in enumerate([(9, 0), (10, 3), (13, 6)]):
        model.add(i)
        function("attention_kv_cache_enable_sliding_window_for_seq")(model.cache, i, window, sink)
        model.window[i] = (window, sink)
    for new in [{0: 5, 1: 20, 2: 3}, {0: 7, 1: 1, 2: 12}] + [dict.fromkeys(range(3), 1)] * 20:
        model.step(new)
    held = pages(model.cache)
    for _ in range(12):
        model.step(dict.fromkeys(range(3), 1))
    assert abs(pages(model.cache) - held) <= 3
    model.fork(1, 5, -1)  # sees what its parent does, and slides no further
    model.step({1: 2, 5: 6})
    model.step({1: 1, 5: 1})
    for i in list(model.k):
        model.remove(i)
    assert function("attention_kv_cache_empty")(model.cache)


def test_accepted_nodes_of_a_tree_stay(kernels):
    model = Model(create(kernels, mode=RopeMode.NORMAL), RopeMode.NORMAL)
    commit = function("attention_kv_cache_commit_accepted_token_tree_nodes")
    for i in range(2):
        model.add(i)
    model.step({0: 6, 1: 3})
    before = {i: model.k[i].shape[1] for i in range(2)}
    trees = {0: [-1, 0, 0, 1, 2], 1: [-1, 0, -1]}
    model.step({i: len(t) for i, t in trees.items()}, trees[0] + trees[1])
    with pytest.raises(ValueError, match="commit its accepted nodes"):
        function("kv_state_begin_forward")(model.cache, Shape([0]), Shape([1]))
    commit(model.cache, Shape([0, 1]), Shape([4, -1]))
    for i, path in ((0, [0, 2, 4]), (1, [])):
        kept = [*range(before[i]), *(before[i] + n for n in path)]
        model.k[i], model.v[i] = model.k[i][:, kept], model.v[i][:, kept]
        model.verify(i)
    model.step({0: 1, 1: 1})


def test_fine_grained_attention_adds_up(kernels):
    cache = create(kernels)
    for name, args in (("add_sequence", (3,)), ("begin_forward", (Shape([3]), Shape([5])))):
        function("kv_state_" + name)(cache, *args)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((5, h, SIZE)).astype("float32") for h in (HEADS, KV_HEADS, KV_HEADS)]
    whole = weft.runtime.empty((5, HEADS, SIZE), "float32")
    fused = weft.runtime.tensor(np.concatenate(arrays, 1))
    function("attention_kv_cache_attention_with_fused_qkv")(cache, 0, SCALE, fused, whole)
    own, other = ([weft.runtime.empty(s, "float32") for s in ((5, HEADS, SIZE), (5, HEADS))] for _ in range(2))
    q, k, v = map(weft.runtime.tensor, arrays)
    function("attention_kv_cache_self_attention")(cache, 0, SCALE, q, k, v, *own)
    function("attention_kv_cache_cross_attention")(cache, 0, SCALE, q, *other)
    function("attention_kv_cache_merge_attn_output_inplace")(cache, *own, *other)
    np.testing.assert_allclose(own[0].numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)
    assert list(function("attention_kv_cache_get_query_positions")(cache).numpy()) == [0, 1, 2, 3, 4]


def test_what_does_not_fit_is_refused_and_changes_nothing(kernels):
    cache = create(kernels, tokens=8)
    add, begin = function("kv_state_add_sequence"), function("kv_state_begin_forward")
    add(cache, 1)
    begin(cache, Shape([1]), Shape([7]))
    refused = [
        (lambda: add(cache, 1), "a sequence 1 already"),
        (lambda: function("kv_state_remove_sequence")(cache, 9), "no sequence 9; add it first"),
        (lambda: function("kv_state_fork_sequence")(cache, 1, 2, 8), "expected 0 to 7"),
        (lambda: function("kv_state_popn")(cache, 1, 8), "cannot take 8 tokens off sequence 1, which has 7"),
        (lambda: begin(cache, Shape([1]), Shape([6])), "the cache is full: 2 pages of 4 tokens are needed and 1 are"),
        (lambda: begin(cache, Shape([1, 1]), Shape([1, 1])), "expected one entry of 1 to 12 new tokens"),
        (lambda: begin(cache, Shape([1]), Shape([0])), "expected one entry of 1 to 12 new tokens"),
        (lambda: begin(cache, Shape([1]), Shape([2**63 - 1])), "expected one entry of 1 to 12 new tokens"),
        (lambda: begin(cache, Shape([1]), Shape([6]), Shape([-1] * 6)), "the cache is full"),
        (lambda: begin(cache, Shape([1]), Shape([2]), Shape([-1, 1])), "has the parent 1"),
        (lambda: function("attention_kv_cache_enable_sliding_window_for_seq")(cache, 1, 4, 0), "without support"),
    ]
    for attempt, message in refused:
        refuses(ValueError, message, attempt)
        assert function("attention_kv_cache_get_total_sequence_length")(cache) == 7
        assert function("attention_kv_cache_get_num_available_pages")(cache) == 1
    begin(cache, Shape([1]), Shape([1]))  # no tree is left of a step that did not fit
    function("kv_state_popn")(cache, 1, 1)
    commit = function("attention_kv_cache_commit_accepted_token_tree_nodes")
    refuses(ValueError, "a sequence with a token tree", commit, cache, Shape([1]), Shape([-1]))
    for tokens in (2**31 - 1, 2**63 - 1):
        refuses(ValueError, "less than 2\\^31 tokens|expected sizes", create, kernels, tokens=tokens)
    out = weft.runtime.empty((1, HEADS, SIZE), "float32")
    attention = function("attention_kv_cache_attention_with_fused_qkv")
    refuses(ValueError, "no step is open", attention, cache, 0, SCALE, weft.runtime.empty((1, 8, SIZE), "float32"), out)
    begin(cache, Shape([1]), Shape([1]))
    with pytest.raises(ValueError, match=r"qkv: expected a contiguous float32 of shape \[-1, 8, 8\]"):
        attention(cache, 0, SCALE, weft.runtime.empty((1, 7, SIZE), "float32"), out)
    with pytest.raises(IndexError, match="layer 2: expected 0 to 1"):
        attention(cache, 2, SCALE, weft.runtime.empty((1, 8, SIZE), "float32"), out)
    refuses(TypeError, "expected 28 arguments", function("paged_attention_kv_cache_create"), 1)
