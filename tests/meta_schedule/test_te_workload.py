"""Workloads of tuning: what each computes, against loops in float64."""

import numpy as np
import pytest

import weft
from weft import te, tir
from weft.meta_schedule.testing import te_workload as w
from weft.tir.analysis import estimate_tir_flops


def computed(make, *sizes):
    """Run a workload on random arguments; return these and the result."""
    tensors = make(*sizes)
    func = te.create_prim_func(list(tensors))
    shapes = [tuple(int(d) for d in t.shape) for t in tensors]
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in shapes[:-1]]
    out = np.zeros(shapes[-1], "float32")
    tensors = [weft.runtime.tensor(a) for a in (*args, out)]
    tir.build(func, target="llvm")(*tensors)
    return [a.astype("float64") for a in args], tensors[-1].numpy()


def convolved(x, k, stride, padding, dilation, groups):
    """Convolve channels-last data of any rank, element by element."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), *[(padding, padding)] * rank, (0, 0)])
    spatial = [(s - dilation * (k.shape[i] - 1) - 1) // stride + 1 for i, s in enumerate(x.shape[1:-1])]
    out = np.zeros((x.shape[0], *spatial, k.shape[-1]))
    per, each = k.shape[-1] // groups, k.shape[-2]
    for place in np.ndindex(*spatial):
        for r in np.ndindex(*k.shape[:rank]):
            at = tuple(p * stride + i * dilation for p, i in zip(place, r, strict=True))
            for g in range(groups):
                part = x[(slice(None), *at, slice(g * each, (g + 1) * each))] @ k[r][:, g * per : (g + 1) * per]
                out[(slice(None), *place, slice(g * per, (g + 1) * per))] += part
    return out


@pytest.mark.parametrize(
    ("make", "spatial"), [(w.conv1d_nlc, (9,)), (w.conv2d_nhwc, (7, 5)), (w.conv3d_ndhwc, (4, 5, 3))]
)
def test_convolutions(make, spatial):
    (x, k), out = computed(make, 1, *spatial, 4, 6, 2, 2, 1, 2, 2)
    np.testing.assert_allclose(out, convolved(x, k, 2, 1, 2, 2), rtol=1e-4, atol=1e-5)


def test_depthwise_convolution():
    (x, k), out = computed(w.depthwise_conv2d_nhwc, 1, 6, 5, 3, 3, 1, 1)
    whole = np.zeros((3, 3, 1, 3))
    whole[:, :, 0] = k[0]
    np.testing.assert_allclose(out, convolved(x, whole, 1, 1, 1, 3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolution(stride):
    (x, k), out = computed(w.conv2d_transpose_nhwc, 1, 3, 4, 2, 3, 4, stride, 1)
    whole = np.zeros((1, (3 - 1) * stride + 4, (4 - 1) * stride + 4, 3))
    for i, j in np.ndindex(3, 4):
        whole[0, i * stride : i * stride + 4, j * stride : j * stride + 4] += np.einsum("c,hwco->hwo", x[0, i, j], k)
    np.testing.assert_allclose(out, whole[:, 1:-1, 1:-1], rtol=1e-4, atol=1e-5)


def test_capsules():
    (x, k), out = computed(w.conv2d_capsule_nhwijc, 1, 4, 4, 2, 3, 3, 2, 1)
    x = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)])
    for i, j in np.ndindex(*out.shape[1:3]):
        want = np.einsum("hwikc,hwkjco->ijo", x[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], k)
        np.testing.assert_allclose(out[0, i, j], want, rtol=1e-4, atol=1e-5)


def test_products_and_norms():
    (a, b), out = computed(w.batch_matmul_nkkm, 2, 3, 4, 5)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
    (a, b), out = computed(w.matmul_relu, 3, 4, 5)
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)
    (q, v), out = computed(w.transpose_batch_matmul, 2, 3, 2, 5)
    np.testing.assert_allclose(out, np.einsum("bihd,bjhd->bhij", q, v), rtol=1e-4, atol=1e-5)
    (a,), out = computed(w.norm_bmn, 3, 4, 5)
    np.testing.assert_allclose(out, np.linalg.norm(a, axis=(1, 2)), rtol=1e-5)


def test_normalized_convolutions():
    (x, k, b, offset, scale), out = computed(w.conv2d_nhwc_bn_relu, 1, 5, 5, 2, 3, 3, 2, 1)
    want = (convolved(x, k, 2, 1, 1, 1) + b) * scale + offset
    np.testing.assert_allclose(out, np.maximum(want, 0), rtol=1e-4, atol=1e-5)
    (x, k, b, scale, offset), out = computed(w.conv2d_nchw_bias_bn_relu, 1, 5, 5, 2, 3, 3, 3, 1, 1)
    plain = convolved(x.transpose(0, 2, 3, 1), k.transpose(2, 3, 1, 0), 1, 1, 1, 1).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(out, np.maximum((plain + b) * scale + offset, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(w.CONFIGS))
def test_flops_are_those_of_the_shapes(name):
    flops = estimate_tir_flops(w.create_te_workload(name, 0).body)
    formulas = {
        "GMM": 2 * 128**3,
        "C1D": 2 * 128 * 128 * 3 * 64,
        "C2D": 2 * 112 * 112 * 64 * 49 * 3,
        "GRP": 2 * 28 * 28 * 128 * 9 * 16,
        "NRM": 2 * 256 * 256,
    }
    assert flops == formulas.get(name, flops) and flops > 0
