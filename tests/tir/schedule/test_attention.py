"""Attention as one kernel: recognised, and right beside float64 at odd sizes, known and symbolic."""

import numpy as np
import pytest

import weft
from weft import ir, op, te, tir
from weft.ir import Var, int64, walk
from weft.target import Target
from weft.tir.schedule import schedule_func
from weft.tir.schedule.rules.attention import attention_of
from weft.topi.attention import attention, attention_past

TARGET = Target("llvm")
AVX2 = Target("llvm -mcpu=haswell")


def stages(sizes, heads, size, bias=None, symbolic=False, **attrs):
    """Attention over (batch, sequence, heads, size); `heads` are those of queries and of keys."""
    batch, n_queries, n_keys = sizes
    q, k = (Var("q", "int64"), Var("k", "int64")) if symbolic else (int64(n_queries), int64(n_keys))
    of = {n_queries: q, n_keys: k}
    shapes = [(q, heads[0]), (k, heads[1]), (k, heads[1])]
    args = [
        te.placeholder((int64(batch), n, int64(h), int64(size)), "float32", name)
        for (n, h), name in zip(shapes, "qkv", strict=True)
    ]
    if bias:
        args.append(te.placeholder(tuple(of.get(d, int64(d)) for d in bias), "float32", "bias"))
    return te.create_prim_func([*args, attention(*args, **attrs)])


KERNELS = {}


def kernel_of(func, target=TARGET):
    """Schedule and compile attention, of unknown sizes once for all cases."""
    key = ir.fingerprint(func), str(target)
    if key not in KERNELS:
        KERNELS[key] = weft.build(schedule_func(func, target).with_attr("tir.is_scheduled", True), target=target)[
            "main"
        ]
    return KERNELS[key]


def check(sizes, heads=(2, 2), size=16, bias=None, symbolic=False, target=TARGET, **attrs):
    func = stages(sizes, heads, size, bias, symbolic, **attrs)
    assert attention_of(func) is not None
    batch, n_queries, n_keys = sizes
    rng = np.random.default_rng(0)
    shapes = [(batch, n, h, size) for n, h in ((n_queries, heads[0]), (n_keys, heads[1]), (n_keys, heads[1]))]
    args = [rng.standard_normal(s).astype("float32") for s in (*shapes, *([bias] if bias else []))]
    out = weft.runtime.tensor(np.full((batch, n_queries, heads[0], size), 7, "float32"))
    kernel_of(func, target)(*map(weft.runtime.tensor, args), out)
    if n_keys == 0:
        assert not out.numpy().any()
        return
    with np.errstate(invalid="ignore"):
        expected = op.get_op_def("nn.attention").reference(*args, **attrs)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 1, 1), {}),
        ((2, 3, 37), {"bias": (2, 1, 3, 37), "heads": (4, 2)}),
        ((1, 2, 300), {"size": 64}),
        ((2, 5, 7), {"size": 20}),
        ((1, 16, 300), {"bias": (1, 2, 16, 300), "size": 32}),
        ((1, 37, 600), {"bias": (37, 600), "size": 24}),
        ((2, 17, 19), {"bias": (2, 1, 1, 19), "heads": (6, 2)}),
        ((1, 50, 13), {"heads": (4, 1), "size": 64}),
        ((1, 9, 0), {}),
        ((1, 2, 0), {}),
        ((1, 40, 40), {"causal_mask": "TopLeft"}),
        ((1, 40, 70), {"causal_mask": "BottomRight"}),
        ((1, 40, 30), {"causal_mask": "BottomRight"}),
        ((1, 40, 30), {"causal_mask": "BottomRight", "window_size": 5}),
        ((1, 3, 30), {"causal_mask": "BottomRight", "window_size": 5, "scale": 2.0}),
    ],
)
def test_values(sizes, options, symbolic):
    check(sizes, symbolic=symbolic, **options)


LOWEST = np.finfo("float32").min


def added_masks(n):
    """Masks of (1, 1, queries, keys) that leave keys without weight, and queries without keys."""
    later = np.triu(np.full((n, n), LOWEST, "float32"), 1)
    padded = np.zeros((1, n), "float32")
    padded[:, n // 3 :] = LOWEST
    some = later.copy()
    some[[0, 5, n - 1]] = LOWEST  # these see none
    first = np.zeros((n, n), "float32")
    first[:, : n // 2] = -1e32
    light = np.where(later < 0, np.float32(-1e4), np.float32(0))
    nothing = np.full((1, n), LOWEST, "float32")
    return {"later": later, "padded": padded, "some": some, "first": first, "light": light, "nothing": nothing}


@pytest.mark.parametrize(("n", "symbolic"), [(40, False), (450, True)])
def test_keys_behind_a_mask(n, symbolic):
    """They are left out only where no query needs them."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 2, 16)).astype("float32") for _ in range(3))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.float32(4)
    for name, mask in added_masks(n).items():
        kernel = kernel_of(stages((1, n, n), (2, 2), 16, (1, 1, *mask.shape), symbolic))
        out = weft.runtime.tensor(np.zeros((1, n, 2, 16), "float32"))
        kernel(*map(weft.runtime.tensor, (q, k, v, mask[None, None])), out)
        masked = (scores + mask).astype("float64")
        weights = np.exp(masked - masked.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expected = np.einsum("bhij,bjhd->bihd", weights, v)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("new", "past", "heads", "rows"),
    [
        (1, 300, (2, 2), False),
        (3, 5, (4, 2), True),
        (2, 0, (2, 1), True),
        (40, 70, (4, 2), True),
        (7, 260, (2, 2), False),
    ],
)
def test_a_past_is_read_where_it_lies(new, past, heads, rows, symbolic):
    """Keys and values of two tensors: the new ones heads first, or in rows of a joint product."""
    n, p = (Var("n", "int64"), Var("p", "int64")) if symbolic else (int64(new), int64(past))
    h, g, size = int64(heads[0]), heads[1], 16
    wide = (heads[0] + 2 * g) * size
    joint = te.placeholder((int64(2), n, int64(wide)), "float32", "joint")
    q = joint if rows else te.placeholder((int64(2), h, n, int64(size)), "float32", "q")
    k, v = (
        (joint, joint) if rows else (te.placeholder((int64(2), int64(g), n, int64(size)), "float32", x) for x in "kv")
    )
    pasts = [te.placeholder((int64(2), int64(g), p, int64(size)), "float32", x) for x in ("pk", "pv")]
    bias = te.placeholder((n, p + n), "float32", "bias")
    options = {"num_heads": heads[0], "num_key_heads": g, "size": size, "value_size": size}
    if rows:
        options["offsets"] = (0, heads[0] * size, (heads[0] + g) * size)
    out = attention_past(q, k, v, *pasts, bias, **options)
    inputs = [joint] if rows else [q, k, v]
    func = te.create_prim_func([*inputs, *pasts, bias, out])
    assert attention_of(func).past is not None
    rng = np.random.default_rng(0)
    shapes = [(2, new, wide)] if rows else [(2, heads[0], new, size), *[(2, g, new, size)] * 2]
    arrays = [rng.standard_normal(s).astype("float32") for s in (*shapes, *[(2, g, past, size)] * 2, (new, past + new))]
    result = weft.runtime.tensor(np.full((2, new, heads[0], size), 7, "float32"))
    kernel_of(func)(*map(weft.runtime.tensor, arrays), result)
    given = [arrays[0]] * 3 + arrays[1:] if rows else arrays
    expected = op.get_op_def("nn.attention_past").reference(*given, **options)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symbolic", [False, True])
def test_nothing_to_compute(symbolic):
    kernel = kernel_of(stages((1, 0, 5), (2, 2), 16, symbolic=symbolic))
    memory = np.full((3, 2, 16), 7, "float32")  # the empty result lies in its middle
    result = memory[1:1].reshape(1, 0, 2, 16)
    kernel(*(np.zeros((1, n, 2, 16), "float32") for n in (0, 5, 5)), result)
    assert (memory == 7).all()
    if symbolic:  # the same kernel computes as soon as there is a query
        result = np.zeros((1, 1, 2, 16), "float32")
        kernel(*(np.ones((1, n, 2, 16), "float32") for n in (1, 5, 5)), result)
        np.testing.assert_allclose(result, 1, rtol=1e-6)


@pytest.mark.skipif("avx2" not in getattr(TARGET, "features", ()), reason="the machine has no AVX2")
@pytest.mark.parametrize("sizes", [(1, 3, 37), (1, 21, 300)])
def test_shorter_vectors(sizes):
    check(sizes, target=AVX2, bias=(sizes[1], sizes[2]))


def test_no_scores_are_stored():
    """What a task needs is its own: the function has no buffers but its parameters and the stack."""
    func = schedule_func(stages((1, 64, 64), (12, 12), 64), Target("llvm -num-cores=2"))
    loops = [n for n in walk(func.body) if isinstance(n, tir.For)]
    assert sum(f.kind == tir.ForKind.PARALLEL for f in loops) == 1
    assert not func.root.alloc_buffers


def test_other_functions_are_not_taken_for_attention():
    a = te.placeholder((int64(4), int64(4)), "float32", "a")
    k = te.reduce_axis((int64(0), int64(4)), "k")
    product = te.compute((int64(4), int64(4)), lambda i, j: te.sum(a(i, k.var) * a(k.var, j), axis=k))
    assert attention_of(te.create_prim_func([a, product])) is None


@pytest.mark.parametrize(
    "other",
    [
        lambda c: ir.Select(c.condition, c.false_value, c.true_value),
        lambda c: ir.Select(type(c.condition)(c.condition.b, c.condition.a), c.true_value, c.false_value),
        lambda c: ir.Select(c.condition, ir.const(0.0, "float32"), c.false_value),
    ],
)
def test_a_score_that_is_cut_off_elsewhere_is_none_of_attention(other):
    func = stages((1, 4, 4), (2, 2), 16)
    (cut,) = (n for n in walk(func.body) if isinstance(n, ir.Select) and isinstance(n.condition, ir.LT))
    body = ir.rewrite(func.body, lambda n: other(n) if n is cut else n)
    assert attention_of(func) is not None and attention_of(func.replace(body=body)) is None
