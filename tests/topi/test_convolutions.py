"""Convolutions in every layout, against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.arrays import floats
from tests.topi.running import evaluate
from weft import error, topi

RNG = np.random.default_rng(5)
nn = topi.nn
normal = floats(RNG)


def _conv(x: np.ndarray, w: np.ndarray, **options) -> np.ndarray:
    function = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return function(torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(w)), **options).numpy()


def _last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


def _close(found: np.ndarray, expected: np.ndarray, atol: float = 1e-4) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=atol, rtol=1e-4)


def test_one_dimension() -> None:
    x, w, grouped = normal(2, 6, 11), normal(4, 6, 3), normal(4, 3, 3)
    expected = _conv(x, w, stride=2, padding=1, dilation=2)
    _close(evaluate(lambda a, b: nn.conv1d_ncw(a, b, 2, 1, 2), x, w), expected)
    _close(evaluate(lambda a, b: nn.conv1d(a, b, 2, 1, 2, "NCW", "float32"), x, w), expected)
    last, kernel = _last(x), w.transpose(2, 1, 0)
    _close(evaluate(lambda a, b: nn.conv1d_nwc(a, b, 2, 1, 2), last, kernel), _last(expected))
    expected = _conv(x, grouped, groups=2)
    _close(evaluate(lambda a, b: nn.group_conv1d_ncw(a, b, 1, "VALID", 1, 2), x, grouped), expected)
    kernel = grouped.transpose(2, 1, 0)
    _close(evaluate(lambda a, b: nn.group_conv1d_nwc(a, b, 1, "VALID", 1, 2), last, kernel), _last(expected))


def test_two_dimensions() -> None:
    x, w, grouped = normal(3, 6, 9, 8), normal(4, 6, 3, 2), normal(4, 2, 3, 2)
    expected = _conv(x, w, stride=(2, 1), padding=(1, 0))
    hwcn, hwio = x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0)
    found = evaluate(lambda a, b: nn.conv2d_hwcn(a, b, (2, 1), (1, 0), 1), hwcn, hwio)
    _close(found, expected.transpose(2, 3, 1, 0))
    found = evaluate(lambda a, b: nn.conv2d(a, b, (2, 1), (1, 0), 1, "HWCN", "float32"), hwcn, hwio)
    _close(found, expected.transpose(2, 3, 1, 0))
    expected = _conv(x[:, :4], grouped, groups=2)
    _close(evaluate(lambda a, b: nn.group_conv2d_nchw(a, b, 1, 0, 1, 2), x[:, :4], grouped), expected)
    found = evaluate(
        lambda a, b: nn.group_conv2d_nhwc(a, b, 1, 0, 1, 2), _last(x[:, :4]), grouped.transpose(2, 3, 1, 0)
    )
    _close(found, _last(expected))


def test_same_padding_puts_the_odd_one_first() -> None:
    x, w = normal(1, 1, 5), normal(1, 1, 2)
    expected = _conv(np.pad(x, ((0, 0), (0, 0), (1, 0))), w)
    _close(evaluate(lambda a, b: nn.conv1d_ncw(a, b, 1, "SAME"), x, w), expected)


def test_depthwise_of_either_kernel_layout() -> None:
    x, w = normal(2, 5, 6, 3), normal(3, 3, 3, 2)
    expected = _last(_conv(np.moveaxis(x, -1, 1).copy(), w.transpose(2, 3, 0, 1).reshape(6, 1, 3, 3), groups=3))
    _close(evaluate(lambda a, b: nn.depthwise_conv2d_nhwc(a, b, 1, 0, 1), x, w), expected)
    _close(evaluate(lambda a, b: nn.depthwise_conv2d_nhwc(a, b, 1, 0, 1, "HWIO"), x, w.transpose(0, 1, 3, 2)), expected)


def test_three_dimensions() -> None:
    x, w = normal(1, 4, 5, 6, 7), normal(3, 4, 2, 3, 3)
    expected = _conv(x, w, padding=1)
    kernel = w.transpose(2, 3, 4, 1, 0)
    _close(evaluate(lambda a, b: nn.conv3d_ndhwc(a, b, 1, 1, 1, 1, "float32"), _last(x), kernel), _last(expected))
    _close(evaluate(lambda a, b: nn.conv3d_ndhwc(a, b, 1, 1, 1, "float32"), _last(x), kernel), _last(expected))
    _close(evaluate(lambda a, b: nn.conv3d_ncdhw(a, b, 1, 1, 1, "float32"), x, w), expected)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed(rank: int, groups: int) -> None:
    x, w = normal(2, 4, *(5, 4, 3)[:rank]), normal(4, 3, *(3, 2, 3)[:rank])
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    expected = function(torch.from_numpy(x), torch.from_numpy(w), stride=2, padding=1, output_padding=1, groups=groups)
    layout = ("ncw", "nchw", "ncdhw")[rank - 1]
    name = f"conv{rank}d_transpose_{layout}"
    if groups == 1:
        found = evaluate(lambda a, b: getattr(nn, name)(a, b, (2,) * rank, 1, "float32", (1,) * rank), x, w)
        _close(found, expected.numpy())
    found = evaluate(lambda a, b: getattr(nn, f"group_{name}")(a, b, 2, 1, "float32", 1, groups), x, w)
    _close(found, expected.numpy())


# --- blocked channels -------------------------------------------------------------------------------------------------


def _blocked(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


def _blocked_kernel(w: np.ndarray, inner: int, outer: int) -> np.ndarray:
    o, i, kh, kw = w.shape
    return w.reshape(o // outer, outer, i // inner, inner, kh, kw).transpose(0, 2, 4, 5, 3, 1)


@pytest.mark.parametrize("groups", [1, 2])
def test_blocked_channels(groups: int) -> None:
    x, w = normal(2, 8, 7, 6), normal(12, 8 // groups, 3, 3)
    expected = _blocked(_conv(x, w, stride=2, padding=1, groups=groups), 6)
    data = _blocked(x, 4)
    found = evaluate(lambda a, b: nn.conv2d_NCHWc(a, b, 2, 1, 1, "NCHW4c", "NCHW6c"), data, _blocked_kernel(w, 4, 6))
    _close(found, expected)
    flat = w.reshape(2, 6, 8 // groups, 3, 3).transpose(0, 2, 3, 4, 1)
    _close(evaluate(lambda a, b: nn.conv2d_NCHWc_OIHWo(a, b, 2, 1, 1, "NCHW4c", "NCHW6c"), data, flat), expected)
    found = evaluate(lambda a: nn.unpack_NCHWc_to_nchw(a, "float32"), expected)
    _close(found, _conv(x, w, stride=2, padding=1, groups=groups))


def test_blocked_bytes() -> None:
    x, w = RNG.integers(0, 255, (1, 8, 5, 5)).astype("uint8"), RNG.integers(-127, 127, (4, 8, 3, 3)).astype("int8")
    kernel = _blocked_kernel(w, 8, 4)  # oc, ic, kh, kw, 8 inputs, 4 outputs
    kernel = kernel.reshape(1, 1, 3, 3, 2, 4, 4).transpose(0, 1, 2, 3, 4, 6, 5)
    found = evaluate(lambda a, b: nn.conv2d_NCHWc_int8(a, b, 1, 0, 1, "NCHW8c", "NCHW4c"), _blocked(x, 8), kernel)
    assert found.dtype == "int32"
    _close(found, _blocked(_conv(x.astype("float64"), w.astype("float64")), 4).astype("int32"))


def test_blocked_depthwise() -> None:
    x, w = normal(1, 4, 6, 7), normal(8, 1, 3, 3)
    kernel = w.reshape(2, 4, 1, 3, 3).transpose(0, 2, 3, 4, 1)[:, :, :, :, None]
    found = evaluate(lambda a, b: nn.depthwise_conv2d_NCHWc(a, b, 1, 1, 1, "NCHW2c", "NCHW4c"), _blocked(x, 2), kernel)
    _close(found, _blocked(_conv(x, w, padding=1, groups=4), 4))


# --- Winograd ---------------------------------------------------------------------------------------------------------


def test_winograd() -> None:
    x, w = normal(2, 3, 7, 9), normal(5, 3, 3, 3)
    expected = _conv(x, w, padding=1)
    _close(evaluate(lambda a, b: nn.conv2d_winograd_nchw(a, b, 1, 1, 1, "float32"), x, w), expected, 1e-3)
    hwio = w.transpose(2, 3, 1, 0)
    found = evaluate(lambda a, b: nn.conv2d_winograd_nhwc(a, b, 1, 1, 1, "float32"), _last(x), hwio)
    _close(found, _last(expected), 1e-3)

    def transformed(a, b):
        weight = nn.conv2d_winograd_weight_transform(b, 2)
        assert [int(d) for d in weight.shape] == [4, 4, 5, 3]
        return nn.conv2d_winograd_nhwc_without_weight_transform(a, weight, 1, "SAME", 1, "float32")

    _close(evaluate(transformed, _last(x), w), _last(expected), 1e-3)
    with pytest.raises(error.InvalidArgument, match="winograd"):
        evaluate(lambda a, b: nn.conv2d_winograd_nchw(a, b, 2, 1, 1, "float32"), x, w)


@pytest.mark.parametrize(("depth", "shape"), [(3, (6, 6, 6, 2, 4)), (1, (6, 6, 1, 2, 4))])
def test_weights_of_three_dimensions_in_another_basis(depth: int, shape: tuple[int, ...]) -> None:
    w = normal(2, 4, depth, 3, 3)
    g = topi.winograd_matrices(4)[1].astype("float32")
    found = evaluate(lambda b: nn.conv3d_winograd_weight_transform(b, 4), w)
    wanted = np.einsum("oidhw,ad,bh,cw->abcoi", w, g, g, g) if depth == 3 else np.einsum("oidhw,bh,cw->bcdoi", w, g, g)
    assert found.shape == shape
    _close(found, wanted)


@pytest.mark.parametrize("taps", [3, 4, 5, 7])
def test_matrices_of_longer_filters(taps: int) -> None:
    data, weights, outputs = topi.winograd_matrices(3, taps)
    d, f = RNG.normal(size=taps + 2), RNG.normal(size=taps)
    found = outputs @ ((weights @ f) * (data @ d))
    np.testing.assert_allclose(found, [d[i : i + taps] @ f for i in range(3)], atol=1e-8)


# --- displaced and compared -------------------------------------------------------------------------------------------


def _bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    h, w = image.shape[1:]
    if y < 0 or x < 0 or y >= h or x >= w:
        return np.zeros(image.shape[0])
    y0, x0, fy, fx = int(y), int(x), y % 1, x % 1
    image = np.pad(image, ((0, 0), (0, 1), (0, 1)))
    top, bottom = (image[:, r, x0] * (1 - fx) + image[:, r, x0 + 1] * fx for r in (y0, y0 + 1))
    return top * (1 - fy) + bottom * fy


@pytest.mark.parametrize("deformable_groups", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_deformable(deformable_groups: int, groups: int) -> None:
    x, w, side = normal(1, 4, 6, 7), normal(2, 4 // groups, 3, 3), 9
    offset = normal(1, deformable_groups * side * 2, 3, 4)
    expected = np.zeros((1, 2, 3, 4))
    for y in range(3):
        for z in range(4):
            taps = np.zeros((4, 3, 3))
            for c in range(4):
                first = c // (4 // deformable_groups) * side
                for t in range(side):
                    down, right = offset[0, 2 * (first + t) : 2 * (first + t) + 2, y, z]
                    taps[c, t // 3, t % 3] = _bilinear(x[0], y * 2 - 1 + t // 3 + down, z * 2 - 1 + t % 3 + right)[c]
            for o in range(2):
                part = taps if groups == 1 else taps[o * 2 : o * 2 + 2]
                expected[0, o, y, z] = (part * w[o]).sum()
    args = (2, 1, 1, deformable_groups, groups, "float32")
    _close(topi.testing.deformable_conv2d_nchw_python(x, offset, w, *args[:-1]), expected)
    _close(evaluate(lambda a, b, k: nn.deformable_conv2d_nchw(a, b, k, *args), x, offset, w), expected)
    found = evaluate(
        lambda a, b, k: nn.deformable_conv2d_nhwc(a, b, k, *args), _last(x), _last(offset), w.transpose(2, 3, 1, 0)
    )
    _close(found, _last(expected))


@pytest.mark.parametrize("multiply", [True, False])
def test_correlation(multiply: bool) -> None:
    a, b = normal(2, 3, 8, 7), normal(2, 3, 8, 7)
    kernel, reach, stride1, stride2, padding = 3, 2, 2, 2, 3
    p, q = (np.pad(t, ((0, 0), (0, 0), (padding, padding), (padding, padding))) for t in (a, b))
    border, steps = reach + 1, reach // stride2
    h, w = (-(-(d - 2 * border) // stride1) for d in p.shape[2:])
    expected = np.zeros((2, (2 * steps + 1) ** 2, h, w))
    for n, (dy, dx) in enumerate(np.ndindex(2 * steps + 1, 2 * steps + 1)):
        for i, j in np.ndindex(h, w):
            y, x = i * stride1 + reach, j * stride1 + reach
            v, u = y + (dy - steps) * stride2, x + (dx - steps) * stride2
            one, two = p[:, :, y : y + kernel, x : x + kernel], q[:, :, v : v + kernel, u : u + kernel]
            expected[:, n, i, j] = (one * two if multiply else abs(one - two)).mean((1, 2, 3))
    args = (kernel, reach, stride1, stride2, padding, multiply)
    _close(evaluate(lambda s, t: nn.correlation_nchw(s, t, *args), a, b), expected)
    _close(topi.testing.correlation_nchw_python(a, b, *args), expected)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 1), (2, 0)])
def test_depthwise_gradients(stride: int, padding: int) -> None:
    x = torch.randn(2, 3, 8, 7, requires_grad=True)
    w = torch.randn(6, 1, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, stride=stride, padding=padding, groups=3)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    given = _last(gradient.numpy())
    kernel = w.detach().numpy().reshape(3, 2, 3, 3).transpose(2, 3, 0, 1)
    data = _last(x.detach().numpy())
    found = evaluate(
        lambda k, g: nn.depthwise_conv2d_backward_input_nhwc(k, g, given.shape, data.shape, stride, padding),
        kernel,
        given,
    )
    _close(found, _last(x.grad.numpy()))
    found = evaluate(
        lambda a, g: nn.depthwise_conv2d_backward_weight_nhwc(a, g, given.shape, kernel.shape, stride, padding),
        data,
        given,
    )
    _close(found, w.grad.numpy().reshape(3, 2, 3, 3).transpose(2, 3, 0, 1))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("k", "s", "p", "ceil"), [(2, 2, 0, False), (3, 2, 1, False), (3, 1, 1, False), (3, 2, 1, True)]
)
def test_pooling_gradient(kind: str, include: bool, k: int, s: int, p: int, ceil: bool) -> None:
    x = torch.randn(2, 3, 7, 6, requires_grad=True)
    y = F.max_pool2d(x, k, s, p, 1, ceil) if kind == "max" else F.avg_pool2d(x, k, s, p, ceil, include)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    data = x.detach().numpy()
    found = evaluate(lambda g, a: nn.pool_grad(g, a, k, s, (p, p, p, p), kind, ceil, include), gradient.numpy(), data)
    _close(found, x.grad.numpy())
    found = evaluate(
        lambda g, a: nn.pool_grad(g, a, k, s, (p, p, p, p), kind, ceil, "NHWC", include),
        _last(gradient.numpy()),
        _last(data),
    )
    _close(found, _last(x.grad.numpy()))
