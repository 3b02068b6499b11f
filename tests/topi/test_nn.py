"""The functions of ``topi.nn`` besides convolutions, against PyTorch and NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.arrays import floats
from tests.refusals import refuses
from tests.topi.running import evaluate
from weft import error, ir, target, te, tir, topi
from weft.tir.schedule import schedule_func

RNG = np.random.default_rng(6)
nn = topi.nn
normal = floats(RNG)


X, IMAGE = normal(3, 5), normal(2, 4, 6, 7)

CASES = {
    "symmetric": (lambda x: nn.mirror_pad(x, (2, 1), (0, 4)), (X,), np.pad(X, ((2, 0), (1, 4)), "symmetric")),
    "mode": (lambda x: nn.mirror_pad(x, (2, 1), (0, 4), "REFLECT"), (X,), np.pad(X, ((2, 0), (1, 4)), "reflect")),
    "reflect": (lambda x: nn.reflect_pad(x, (2, 1)), (X,), np.pad(X, ((2, 2), (1, 1)), "reflect")),
    "replicate": (lambda x: nn.replicate_pad(x, (2, 1), (0, 4)), (X,), np.pad(X, ((2, 0), (1, 4)), "edge")),
    "circular": (lambda x: nn.circular_pad(x, (2, 1), (0, 4)), (X,), np.pad(X, ((2, 0), (1, 4)), "wrap")),
    "dilate": (lambda x: nn.dilate(x, (2, 1), 0.5), (X,), np.insert(X, [1, 2], np.float32(0.5), axis=0)),
    "fifo": (lambda x, b: nn.fifo_buffer(x, b, 1), (X[:, :2], X), np.concatenate([X[:, 2:], X[:, :2]], 1)),
    "scale first": (
        lambda x, s, t: nn.scale_shift_nchw(x, s, t),
        (IMAGE, X[0, :4], X[1, :4]),
        IMAGE * X[0, :4, None, None] + X[1, :4, None, None],
    ),
    "scale last": (
        lambda x, s, t: nn.scale_shift_nhwc(x, s, t),
        (IMAGE, np.resize(X, 7), np.resize(X[1], 7)),
        IMAGE * np.resize(X, 7) + np.resize(X[1], 7),
    ),
    "scale blocks": (
        lambda x, s, t: nn.scale_shift_nchwc(x, s, t),
        (IMAGE[:, :, :, :, None], X[0, :4, None], X[1, :4, None]),
        (IMAGE * X[0, :4, None, None] + X[1, :4, None, None])[..., None],
    ),
    "softplus": (lambda x: nn.softplus(x * 10, 2.0, 5.0), (X,), F.softplus(torch.from_numpy(X) * 10, 2.0, 5.0).numpy()),
    "fast softmax": (nn.fast_softmax, (X,), torch.softmax(torch.from_numpy(X), -1).numpy()),
    "common softmax": (lambda x: nn.softmax_common(x, 0, True), (X,), torch.softmax(torch.from_numpy(X), 0).numpy()),
    "adaptive 1-D": (
        lambda x: nn.adaptive_pool1d(x, 3, "avg"),
        (IMAGE[0],),
        F.adaptive_avg_pool1d(torch.from_numpy(IMAGE[0]), 3).numpy(),
    ),
    "adaptive 3-D": (
        lambda x: nn.adaptive_pool3d(x, (2, 3, 2), "max"),
        (IMAGE[None],),
        F.adaptive_max_pool3d(torch.from_numpy(IMAGE[None]), (2, 3, 2)).numpy(),
    ),
    "upsampling 3-D": (
        lambda x: nn.upsampling3d(x, 2, 2, 3, method="nearest_neighbor", coordinate_transformation_mode="asymmetric"),
        (IMAGE[None],),
        IMAGE[None].repeat(2, 2).repeat(2, 3).repeat(3, 4),
    ),
    "trilinear": (
        lambda x: nn.upsampling3d(x, 2, 2, 2, method="trilinear"),
        (IMAGE[None],),
        F.interpolate(torch.from_numpy(IMAGE[None]), scale_factor=2, mode="trilinear").numpy(),
    ),
    "packed dense": (lambda x, w, b: nn.dense_pack(x, w, b), (X, normal(2, 5, 4), np.zeros(8, "float32")), None),
    "matmul": (lambda x, y, b: nn.matmul(x, y, b, None, True, True), (X, normal(4, 3), normal(4)), None),
    "space to batch": (
        lambda x: nn.space_to_batch_nd(x, (2, 3), (1, 0), (1, 2), 7.0),
        (IMAGE.transpose(0, 2, 3, 1),),
        None,
    ),
    "NLL": (
        lambda p, t, w: nn.nll_loss(p, t, w, "mean", 2),
        (normal(4, 5), np.array([0, 2, 4, 1]), abs(normal(5))),
        None,
    ),
    "NLL of images": (
        lambda p, t, w: nn.nll_loss(p, t, w, "sum", -1),
        (normal(2, 5, 3), np.array([[0, 2, -1], [4, 1, 1]]), abs(normal(5))),
        None,
    ),
    "NLL of one": (lambda p, t, w: nn.nll_loss(p, t, w, "none", -1), (normal(5), np.array(3), abs(normal(5))), None),
}


def _space_to_batch(x: np.ndarray) -> np.ndarray:
    p = np.pad(x, ((0, 0), (1, 1), (0, 2), (0, 0)), constant_values=7)
    n, h, w, c = p.shape
    return p.reshape(n, h // 2, 2, w // 3, 3, c).transpose(2, 4, 0, 1, 3, 5).reshape(n * 6, h // 2, w // 3, c)


def _nll(reduction: str, ignored: int):
    def loss(p: np.ndarray, t: np.ndarray, w: np.ndarray) -> np.ndarray:
        inputs = [torch.from_numpy(np.asarray(a)) for a in (p, t)]
        return F.nll_loss(*inputs, torch.from_numpy(w), ignore_index=ignored, reduction=reduction).numpy()

    return loss


COMPUTED = {
    "packed dense": lambda x, w, b: x @ w.transpose(0, 2, 1).reshape(8, 5).T + b,
    "matmul": lambda x, y, b: x.T @ y.T + b,
    "space to batch": _space_to_batch,
    "NLL": _nll("mean", 2),
    "NLL of images": _nll("sum", -1),
    "NLL of one": _nll("none", -1),
}


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    fn, arrays, expected = CASES[name]
    expected = COMPUTED[name](*arrays) if expected is None else expected
    found = evaluate(fn, *arrays)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_batch_to_space_undoes_space_to_batch() -> None:
    x = normal(2, 5, 4, 3)

    def there_and_back(a):
        return nn.batch_to_space_nd(nn.space_to_batch_nd(a, (2, 3), (1, 0), (0, 2)), (2, 3), (1, 0), (0, 2))

    np.testing.assert_array_equal(evaluate(there_and_back, x), x)
    refuses(error.ShapeMismatch, "multiple", evaluate, lambda a: nn.space_to_batch_nd(a, (2, 3), (0, 0), (0, 0)), x)


def test_padded_shape() -> None:
    x = te.placeholder((3, 5))
    assert [int(d) for d in nn.get_padded_shape(x, (1, 2), (0, 3))] == [4, 10]
    refuses(error.ShapeMismatch, "pad_after", nn.get_padded_shape, x, (1, 2), (0,))
    refuses(error.InvalidArgument, "mirror_pad", nn.mirror_pad, x, (1, 2), mode="EDGE")


_PADDINGS = {
    "wrap": nn.circular_pad,
    "reflect": nn.reflect_pad,
    "edge": nn.replicate_pad,
    "symmetric": lambda *given: nn.mirror_pad(*given, "SYMMETRIC"),
}


@pytest.mark.parametrize("mode", _PADDINGS)
@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        ((37, 1), (3, 0), (2, 0)),
        ((4, 1, 1), (3, 0, 0), (0, 0, 0)),
        ((2, 37, 1, 1), (0, 5, 0, 0), (1, 0, 0, 0)),
        ((1, 1), (0, 0), (0, 0)),
        ((5, 2), (3, 0), (0, 0)),
        ((2, 9, 11, 3), (0, 2, 3, 0), (0, 1, 0, 0)),
        ((7, 4, 2, 3), (1, 3, 0, 0), (2, 2, 0, 0)),
        ((3, 5, 64), (0, 2, 0), (0, 1, 0)),
        ((1, 4, 6, 2), (0, 0, 4, 1), (0, 0, 4, 0)),
        ((2, 3, 9, 21), (0, 0, 3, 1), (0, 0, 2, 4)),
        ((1, 100), (0, 20), (0, 50)),
        ((5, 8), (2, 0), (1, 0)),
        ((3, 17), (1, 0), (0, 3)),
    ],
)
def test_padding_of_short_and_long_axes(mode, shape, before, after) -> None:
    x = normal(*shape)
    expected = np.pad(x, list(zip(before, after, strict=True)), mode)
    np.testing.assert_array_equal(evaluate(lambda t: _PADDINGS[mode](t, before, after), x), expected)
    named = [te.size_var(f"d{i}", "int64") if n > 3 and i < 3 else n for i, n in enumerate(shape)]
    for sizes in (shape, named):
        t, found = te.placeholder(sizes), np.zeros_like(expected)
        func = schedule_func(te.create_prim_func([t, _PADDINGS[mode](t, before, after)]), target.Target("llvm"))
        target.build(func, target.Target("llvm"))["main"](x, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("behind", [1, 3, 5])
def test_most_of_what_is_padded_is_copied_in_vectors(behind) -> None:
    x = te.placeholder((1008, behind))
    func = schedule_func(te.create_prim_func([x, nn.circular_pad(x, (3, 0))]), target.Target("llvm"))
    stores = [s for s in ir.walk(func.body) if isinstance(s, tir.BufferStore)]
    assert len(stores) in (3, 4, 5) and all(len(s.indices) == 1 for s in stores)  # both ends apart


# --- few bits ---------------------------------------------------------------------------------------------------------


def test_signs_in_words() -> None:
    a, b = normal(3, 64), normal(5, 64)
    found = evaluate(lambda x, y: nn.binary_dense(nn.binarize_pack(x), nn.binarize_pack(y)), a, b)
    sign = lambda v: np.where(v >= 0, 1, -1)  # noqa: E731
    np.testing.assert_array_equal(found, sign(a) @ sign(b).T)
    packed = evaluate(lambda x: nn.binarize_pack(x, 1), a)
    np.testing.assert_array_equal(packed, np.packbits(a >= 0, axis=1).view(">u4"))
    refuses(error.InvalidArgument, "32", evaluate, nn.binarize_pack, normal(3, 33))


def _weights(w: np.ndarray, bits: int, unipolar: bool) -> np.ndarray:
    """What the bits of weights stand for: 1 and 0, or 1 and -1."""
    if not unipolar:
        return w
    return sum(((w >> b & 1) * 2 - 1) << b for b in range(bits))


@pytest.mark.parametrize("unipolar", [False, True])
@pytest.mark.parametrize(("data_bits", "weight_bits", "word"), [(1, 1, "uint32"), (2, 1, "uint32"), (2, 2, "uint8")])
def test_products_of_few_bits(unipolar: bool, data_bits: int, weight_bits: int, word: str) -> None:
    x = RNG.integers(0, 1 << data_bits, (3, 64)).astype("int32")
    w = RNG.integers(0, 1 << weight_bits, (5, 64)).astype("int32")
    found = evaluate(lambda a, b: nn.bitserial_dense(a, b, data_bits, weight_bits, word, "int16", unipolar), x, w)
    assert found.dtype == "int16"
    np.testing.assert_array_equal(found, x @ _weights(w, weight_bits, unipolar).T)


@pytest.mark.parametrize("unipolar", [False, True])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_convolutions_of_few_bits(unipolar: bool, layout: str) -> None:
    x = RNG.integers(0, 4, (1, 32, 6, 5)).astype("int32")
    w = RNG.integers(0, 2, (3, 32, 3, 3)).astype("int32")
    real = torch.from_numpy(_weights(w, 1, unipolar).astype("float64"))
    expected = F.conv2d(torch.from_numpy(x.astype("float64")), real, stride=2, padding=1).numpy()
    if layout == "nhwc":
        x, w, expected = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), expected.transpose(0, 2, 3, 1)
    function = getattr(nn, f"bitserial_conv2d_{layout}")
    found = evaluate(lambda a, b: function(a, b, 2, 1, 2, 1, "uint32", "int32", unipolar), x, w)
    np.testing.assert_array_equal(found, expected)


# --- simulated quantisation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["disable", "int8", "uint8", "int32"])
def test_simulated_quantisation(dtype: str) -> None:
    x, scale, zero = normal(2, 5, 3) * 50, np.array([0.3, 0.5, 1.7], "float32"), np.array([1, -3, 60], "int32")
    code = np.array(nn.SQNN_DTYPE_TO_CODE[dtype], "int32")
    found = evaluate(lambda a, c, s, z: nn.simulated_quantize(a, c, s, z, -1), x, code, scale, zero)
    back = evaluate(lambda a, c, s, z: nn.simulated_dequantize(a, c, s, z, -1), found, code, scale, zero)
    if dtype == "disable":
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(back, x)
        return
    limits = np.iinfo(dtype)
    expected = np.clip(np.round(x / scale) + zero, limits.min, limits.max).astype("float32")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(back, (expected - zero) * scale, rtol=1e-6)
    assert nn.SQNN_CODE_TO_DTYPE[int(code)] == dtype


# --- recurrent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("projected", [0, 2])
def test_lstm(reverse: bool, projected: int) -> None:
    steps, batch, inputs, hidden = 4, 3, 5, 6
    layer = torch.nn.LSTM(inputs, hidden, proj_size=projected)
    x = torch.randn(steps, batch, inputs)
    weights = [p.detach().numpy() for p in layer.parameters()]  # Wi, Wh, Bi, Bh and perhaps the projection
    out, _ = layer(x.flip(0) if reverse else x)
    tensors = [te.placeholder(a.shape, "float32", f"a{n}") for n, a in enumerate([x.numpy(), *weights])]
    projection = {"proj": tensors[5]} if projected else {}
    hs, cs = nn.lstm(*tensors[:5], **projection, reverse=reverse, weight_layout="IFGO")
    schedule = te.create_schedule([hs.op, cs.op])
    kernel = target.build(te.schedule_to_prim_func(schedule, [*tensors, hs, cs]))["main"]
    found = [np.empty([int(d) for d in t.shape], "float32") for t in (hs, cs)]
    kernel(x.numpy(), *weights, *found)
    np.testing.assert_allclose(found[0], out.detach().numpy(), atol=1e-5)
    refuses(error.InvalidArgument, "IFGX", nn.lstm, *tensors[:3], weight_layout="IFGX")


# --- normalisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training: bool) -> None:
    layer = torch.nn.BatchNorm2d(4, momentum=0.2).train(training)
    gamma, beta, mean, var = (abs(normal(4)) for _ in range(4))
    with torch.no_grad():
        for old, new in zip(
            (layer.weight, layer.bias, layer.running_mean, layer.running_var), (gamma, beta, mean, var), strict=True
        ):
            old.copy_(torch.from_numpy(new))
        expected = layer(torch.from_numpy(IMAGE)).numpy()
    found = evaluate(
        lambda x, *p: nn.batch_norm(x, *p, 1, 1e-5, True, True, training, 0.2), IMAGE, gamma, beta, mean, var
    )
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    share = 0.2 if training else 0.0
    np.testing.assert_allclose(found[1], mean * (1 - share) + IMAGE.mean((0, 2, 3)) * share, rtol=1e-4)
    np.testing.assert_allclose(found[2], var * (1 - share) + IMAGE.var((0, 2, 3)) * share, rtol=1e-4)


def test_instance_norm_of_either_order() -> None:
    gamma, beta = normal(4), normal(4)
    expected = F.instance_norm(torch.from_numpy(IMAGE), weight=torch.from_numpy(gamma), bias=torch.from_numpy(beta))
    for rest in ((1, [2, 3]), ([2, 3],)):
        found = evaluate(lambda x, g, b, rest=rest: nn.instance_norm(x, g, b, *rest), IMAGE, gamma, beta)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_parameters_of_lrn() -> None:
    found = evaluate(lambda x: nn.lrn(x, 3, 1, 1e-2, 0.75, 2.0), IMAGE)
    expected = F.local_response_norm(torch.from_numpy(IMAGE), 3, 1e-2, 0.75, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_channels_last_as_pixels() -> None:
    last = IMAGE.transpose(0, 2, 3, 1)
    found = evaluate(lambda x: nn.depth_to_space(x, 2, "NHWC"), last)
    np.testing.assert_array_equal(
        found, last.reshape(2, 6, 7, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(2, 12, 14, 1)
    )
    np.testing.assert_array_equal(evaluate(lambda x: nn.space_to_depth(x, 2, "NHWC"), found), last)
    shuffled = evaluate(lambda x: nn.pixel_shuffle(x, 2), IMAGE)
    np.testing.assert_array_equal(shuffled, F.pixel_shuffle(torch.from_numpy(IMAGE), 2))
