"""Weights in 28 bits: every one is recovered, products are those of the weights, and what stays as it is."""

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import relax, te, tir
from weft.ir import Call, Constant, Op, Var, const, walk
from weft.relax.pipeline import default_passes
from weft.relax.transform import compress_weights, convert_layout
from weft.relax.transform.compress_weights import compress
from weft.relax.transform.panels import pack_matmul_weight
from weft.target import Target
from weft.tir.schedule import schedule_func
from weft.tir.transform.prefetch_streams import PREFETCH_MARK
from weft.topi.compressed import matmul_compressed

RNG = np.random.default_rng(18)


def normal(k, n):
    return (RNG.standard_normal((k, n)) * 0.02).astype(np.float32)


def with_small_ones(k, n):
    w = normal(k, n)
    w[RNG.random((k, n)) < 0.001] *= np.float32(1e-9)
    w[0, :: n // 3 + 1] = 1e-41  # denormal
    return w


def pruned(k, n):
    w = normal(k, n)
    w *= RNG.random((k, n)) < 0.3
    w[:, n // 2] = 0
    return w  # half of the zeros are negative


def denormals(k, n):
    return (RNG.standard_normal((k, n)) * 1e-40).astype(np.float32)


def powers(k, n):
    return (np.float32(2.0) ** RNG.integers(-14, 1, (k, n))).astype(np.float32)


def huge(k, n):
    return (RNG.uniform(0.5, 1, (k, n)) * 3e38).astype(np.float32)


KINDS = (normal, with_small_ones, pruned, denormals, powers, huge)


def recovered(made):
    """The weights in panels, weight by weight as the format is drawn."""
    panels, groups, words, panel = made.words.shape
    out = np.zeros((panels, groups * 8, panel), np.uint32)
    for p, g, lane in np.ndindex(panels, groups, panel):
        word = [int(w) & 0xFFFFFFFF for w in made.words[p, g, :, lane]]
        last = sum((w >> 27 & 15) << 4 * j for j, w in enumerate(word))
        fields = [(w >> 31, w & 0x7FFFFFF) for w in word] + [(last >> 27, last & 0x7FFFFFF)]
        for j, (sign, rest) in enumerate(fields):
            out[p, g * 8 + j, lane] = sign << 31 | (rest + int(made.base[p, lane]) if rest else 0)
    values = out.view(np.float32)
    for p, e in zip(*np.nonzero(made.lanes >= 0), strict=True):
        place = p, made.rows[p, e], made.lanes[p, e]
        assert values[place] == 0
        values[place] = made.values[p, e]
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "n", "panel"), [(8, 1, 16), (64, 50, 32), (120, 33, 16)])
def test_every_weight_is_recovered(kind, k, n, panel):
    packed = pack_matmul_weight(kind(k, n), panel)
    made = compress(packed)
    assert made is not None and made.words.shape[1:3] == (k // 8, 7)
    assert np.array_equal(recovered(made).view(np.uint32), packed.view(np.uint32))


def test_what_is_not_compressed():
    w = normal(64, 32)
    for bad in (np.inf, -np.inf, np.nan):
        w[3, 5] = bad
        assert compress(pack_matmul_weight(w, 32)) is None
    assert compress(pack_matmul_weight(normal(63, 32), 32)) is None  # no whole groups
    wide = (normal(512, 32) * 10.0 ** RNG.integers(-12, 1, (512, 32))).astype(np.float32)
    assert compress(pack_matmul_weight(wide, 32)) is None  # too many outside of the window


def network(w, shape, bias=True):
    def layer(x):
        y = relax.op.matmul(x, relax.const(w))
        return relax.op.nn.relu(relax.op.add(y, relax.const(np.full(w.shape[1], 0.1, np.float32)))) if bias else y

    return model(layer, shape)


def compressed(mod):
    return compress_weights(cached_bytes=0, matrix_bytes=0)(convert_layout()(mod))


def products(mod):
    return [
        c.op.name
        for c in walk(mod["main"])
        if isinstance(c, Call) and isinstance(c.op, Op) and "nn.matmul" in c.op.name
    ]


def run(mod, target, x):
    for p in default_passes(target):
        mod = compressed(mod) if p.name == "ConvertLayout" else p(mod)
    vm = relax.VirtualMachine(relax.build(mod, target, relax_pipeline=None), weft.cpu())
    return vm["main"](weft.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("kind", KINDS[:5])
@pytest.mark.parametrize(("shape", "n"), [((1, 64), 50), ((1, 1, 264), 96), ((1, 8), 3)])
def test_products(kind, shape, n):
    w, x = kind(shape[-1], n), RNG.standard_normal(shape).astype(np.float32)
    assert products(compressed(network(w, shape))) == ["relax.nn.matmul_compressed"]
    want = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + np.float32(0.1), 0)
    np.testing.assert_allclose(run(network(w, shape), Target("llvm"), x), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", [{"kind": "llvm", "mcpu": "x86-64-v3"}, {"kind": "llvm", "mcpu": "x86-64"}, "c"])
def test_other_machines(target):
    w, x = with_small_ones(64, 50), RNG.standard_normal((1, 64)).astype(np.float32)
    got = run(network(w, (1, 64)), Target(target), x)
    np.testing.assert_allclose(got, np.maximum(x.astype(np.float64) @ w + 0.1, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_at_most_one_row(rows):
    n = Var("n", "int64")
    w, x = normal(64, 50), RNG.standard_normal((1, rows, 64)).astype(np.float32)

    def last_row(data):
        return relax.op.matmul(relax.op.strided_slice(data, axes=[1], begin=[-1], end=[2**31 - 1]), relax.const(w))

    mod = model(last_row, (1, n, 64))
    assert products(compressed(mod)) == ["relax.nn.matmul_compressed"]
    got = run(mod, Target("llvm"), x)
    np.testing.assert_allclose(got, x[:, -1:].astype(np.float64) @ w, rtol=1e-5, atol=1e-6)


ROWS = Var("rows", "int64")
ONE, NONE = const(1, "int64"), const(0, "int64")


@pytest.mark.parametrize("rows", [1, 4, ROWS - tir.max(ROWS - ONE, NONE)])
def test_weights_are_unpacked_where_they_are_used(rows):
    made = compress(pack_matmul_weight(with_small_ones(128, 100), 32))
    inputs = [te.placeholder((const(1, "int64"), rows, const(128, "int64")), "float32", "x")]
    inputs += [te.placeholder(a.shape, str(a.dtype), f) for a, f in zip(made, made._fields, strict=True)]
    func = schedule_func(te.create_prim_func([*inputs, matmul_compressed(*inputs, 100)]), Target("llvm"))
    (steps,) = (f for f in walk(func.body) if isinstance(f, tir.For) and PREFETCH_MARK in f.annotations)
    unpacked = {b.name_hint for b in walk(steps) if isinstance(b, tir.Block)}
    assert unpacked == {"T_weights", "T_matmul_packed_update"}


def test_what_stays():
    w = normal(64, 50)
    assert products(compressed(network(w, (2, 64)))) == ["relax.nn.matmul_packed"]
    assert products(compressed(network(w, (Var("n", "int64"), 64)))) == ["relax.nn.matmul_packed"]
    few = convert_layout()(network(w, (1, 64)))
    assert compress_weights()(few)["main"] is few["main"]
    shared = convert_layout()(network(w, (1, 64)))
    (weight,) = (
        c.args[1] for c in walk(shared["main"]) if isinstance(c, Call) and "packed" in str(getattr(c.op, "name", ""))
    )
    assert isinstance(weight, Constant)
    mod = model(lambda *v: relax.op.add(*(relax.op.nn.matmul_packed(x, weight, n=50) for x in v)), (1, 64), (3, 64))
    both = compress_weights(cached_bytes=0, matrix_bytes=0)(mod)
    assert products(both) == ["relax.nn.matmul_packed"] * 2
