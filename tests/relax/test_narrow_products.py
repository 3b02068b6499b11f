"""Products of narrow numbers: weights in groups for the machine's dot products, whatever the sizes."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import ir, relax
from weft.relax.transform.fold_constant import evaluate
from weft.target import Target

BFLOAT16 = ("bfloat16", "bfloat16", "float32", 2)
INTEGERS = ("uint8", "int8", "int32", 4)
ALL_FORMS = ((*BFLOAT16[:3], 16), (*INTEGERS[:3], 16))


def operand(rng, dtype, shape):
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


def one_call(op, shape, data, weight, **attrs):
    """A module whose ``main`` is one product with a constant, of symbolic sizes where `shape` has names."""
    return model(lambda x: op(x, relax.const(weight), **attrs), shape, dtype=data)


def run(mod, x, target="llvm"):
    return relax.VirtualMachine(relax.build(mod, target), weft.cpu())["main"](weft.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("form", [BFLOAT16, INTEGERS, ("int8", "int8", "int32", 1)])
@pytest.mark.parametrize(
    ("c", "o", "size", "kernel", "strides", "padding"),
    [(3, 20, 9, 3, 2, 1), (16, 32, 7, 1, 1, 0), (5, 3, 6, 2, 1, 0), (8, 64, 5, 3, 1, 1)],
)
def test_convolutions(form, c, o, size, kernel, strides, padding):
    data, weight, out, _ = form
    rng = np.random.default_rng(o)
    x, w = operand(rng, data, (2, c, size, size)), operand(rng, weight, (o, c, kernel, kernel))
    attrs = {"strides": strides, "padding": padding}
    mod = one_call(relax.op.nn.conv2d, ("n", c, size, size), data, w, out_dtype=out, **attrs)
    wide = "float64" if out == "float32" else "int32"
    expected = relax.op.nn.conv2d(relax.const(x.astype(wide)), relax.const(w.astype(wide)), **attrs)
    reference = evaluate(relax.BlockBuilder().normalize(expected, atom=False))
    np.testing.assert_allclose(run(mod, x), reference.data.numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", [BFLOAT16, INTEGERS, ("int8", "int8", "int32", 1)])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 64, 100), (7, 30, 40), (13, 5, 3), (64, 48, 96), (40, 75, 33), (0, 100, 64)]
)
def test_matrix_products(form, m, k, n):
    data, weight, out, _ = form
    rng = np.random.default_rng(k)
    x, w = operand(rng, data, (m, k)), operand(rng, weight, (k, n))
    mod = one_call(relax.op.matmul, ("m", k), data, w, out_dtype=out)
    wide = np.float64 if out == "float32" else np.int32
    expected = x.astype(wide) @ w.astype(wide)
    np.testing.assert_allclose(run(mod, x), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(run(mod, x, "llvm -mcpu=x86-64-v3"), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", [BFLOAT16, INTEGERS])
def test_weights_lie_in_groups(form):
    data, weight, out, group = form
    w = operand(np.random.default_rng(0), weight, (6, 40))
    mod = one_call(relax.op.matmul, (4, 6), data, w, out_dtype=out)
    after = relax.transform.convert_layout(panel=32, dot_forms=ALL_FORMS)(mod)["main"]
    (call,) = (n for n in ir.walk(after) if isinstance(n, ir.Call) and n.op is ir.Op.get("relax.nn.matmul_packed"))
    assert [ir.as_int(d) for d in call.args[1].ty.shape] == [2, -(-6 // group), 32 * group]
    packed = call.args[1].data.numpy()
    np.testing.assert_array_equal(packed[1, 0, group : 2 * group], w[:group, 33])
    left = relax.transform.convert_layout()(mod)["main"]
    assert not any(isinstance(n, ir.Call) and n.op is ir.Op.get("relax.nn.matmul_packed") for n in ir.walk(left))


@pytest.mark.usefixtures("optimised")
@pytest.mark.skipif(not Target("llvm").dot_forms, reason="the machine has no dot products of narrow numbers")
def test_one_instruction_adds_a_group():
    target = Target("llvm -matrix-tiles=off")  # which would take what they can
    group = {f[:3]: f for f in Target("llvm").dot_forms}
    bytes_ = "vpdpbusd" if Target("llvm").machine.adds_four_bytes else "vpmaddwd"
    for form, name in ((BFLOAT16, "vdpbf16ps"), (INTEGERS, bytes_)):
        if form[:3] not in group:
            continue
        data, weight, out, _ = form
        w = operand(np.random.default_rng(0), weight, (64, 16, 3, 3))
        mod = one_call(relax.op.nn.conv2d, (1, 16, 14, 14), data, w, padding=1, out_dtype=out)
        mod = relax.get_pipeline("default", target)(mod)
        texts = [
            weft.target.get_source(weft.tir.schedule.default_schedule(f, target), target, "asm")
            for _, f in mod.items()
            if isinstance(f, weft.tir.PrimFunc) and "conv" in f.attrs["global_symbol"]
        ]
        assert texts and all(name in t for t in texts)
