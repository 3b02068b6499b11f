"""Pools, regions, displaced convolutions, Fourier transforms: against ONNX Runtime or ONNX's reference, and NumPy."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import weft
from tests.arrays import floats
from tests.frontend.models import check, model_of
from tests.refusals import refuses
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(23)
f32 = floats(RNG)


def one(
    op: str,
    inputs: dict[str, Any],
    opset: int = 20,
    weights: Any = None,
    names: Any = None,
    dynamic: Any = ("x",),
    outputs: int = 1,
    **attrs: Any,
) -> None:
    """Check a node, with the shape of its first input known and not."""
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names or [*inputs, *(weights or {})], outs, **attrs)
    check(model_of([node], inputs, outs, opset, weights), inputs, dynamic, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norm_pools(p: int) -> None:
    x = f32(2, 3, 9, 8)
    one("LpPool", {"x": x}, 18, kernel_shape=[3, 2], strides=[2, 1], p=p)
    one("LpPool", {"x": x}, 18, kernel_shape=[3, 2], pads=[1, 0, 1, 1], p=p)
    one("GlobalLpPool", {"x": x}, 18, p=p)


def test_unpooling() -> None:
    x = f32(1, 2, 3, 2)
    places = np.stack([RNG.permutation(24)[:6].reshape(3, 2) + 24 * c for c in range(2)])[None]
    one("MaxUnpool", {"x": x, "i": places}, 11, kernel_shape=[2, 2], strides=[2, 2])
    made = model_of(
        [helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        {"x": x, "i": places},
        ["y"],
        11,
    )
    refuses(weft.error.IndexOutOfRange, "", evaluate, from_onnx(made), x, places + 100)


def test_columns_are_put_together() -> None:
    for image, block, attrs in (
        ([5, 6], [2, 3], {}),
        ([5, 6], [2, 2], {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
        ([7, 6], [2, 3], {"dilations": [2, 1]}),
        ([9, 8], [3, 2], {"dilations": [2, 3], "strides": [2, 2]}),
        ([24, 6], [20, 2], {"strides": [1, 2], "pads": [0, 1, 1, 1]}),
        ([8, 9], [4, 3], {"strides": [4, 3]}),
    ):
        pads, strides, dilations = (
            attrs.get("pads", [0] * 4),
            attrs.get("strides", [1, 1]),
            attrs.get("dilations", [1, 1]),
        )
        starts = [
            (n + pads[i] + pads[2 + i] - dilations[i] * (k - 1) - 1) // strides[i] + 1
            for i, (n, k) in enumerate(zip(image, block, strict=True))
        ]
        x = f32(2, 3 * block[0] * block[1], starts[0] * starts[1])
        sizes = {"n": np.array(image), "b": np.array(block)}
        one("Col2Im", {"x": x}, 18, sizes, **attrs)
        one("Col2Im", {"x": x, **sizes}, 18, dynamic=(), **attrs)


@pytest.mark.parametrize("rank", [1, 2])
def test_displaced_convolution(rank: int) -> None:
    size, kernel, groups, parts = [7, 6][:rank], [3, 2][:rank], 2, 2
    x, w = f32(2, 4, *size), f32(6, 2, *kernel)
    attrs = {"pads": [1] * rank + [0] * rank, "strides": [2, 1][:rank], "group": groups, "offset_group": parts}
    out = [(n + 1 - k) // t + 1 for n, k, t in zip(size, kernel, [2, 1], strict=False)]
    cells = int(np.prod(kernel))
    offset, mask = f32(2, parts * cells * rank, *out), f32(2, parts * cells, *out)
    if rank == 2:
        one("DeformConv", {"x": x, "w": w, "o": offset, "b": f32(6), "m": mask}, 19, **attrs)
        return
    plain = model_of(
        [helper.make_node("DeformConv", ["x", "w", "o"], ["y"], **attrs)], {"x": x, "w": w, "o": 0 * offset}, ["y"], 19
    )
    attrs.pop("offset_group")
    usual = model_of([helper.make_node("Conv", ["x", "w"], ["y"], **attrs)], {"x": x, "w": w}, ["y"], 19)
    got, want = evaluate(from_onnx(plain), x, w, 0 * offset)[0], evaluate(from_onnx(usual), x, w)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_aligned_regions(mode: str, ratio: int, transformation: str) -> None:
    x = f32(2, 3, 9, 11)
    corners = RNG.uniform(-2, 16, (5, 2, 2)).astype(np.float32)
    rois = np.concatenate([corners.min(1), corners.max(1)], 1)
    attrs = {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": transformation}
    one(
        "RoiAlign",
        {"x": x, "r": rois, "b": np.array([0, 1, 1, 0, 0])},
        16,
        output_height=3,
        output_width=2,
        spatial_scale=0.7,
        **attrs,
    )


def test_regions_of_whole_pixels() -> None:
    rois = np.array([[0, 1, 2, 7, 6], [1, 0, 0, 3, 3], [1, 4, 1, 5, 8]], np.float32)
    one("MaxRoiPool", {"x": f32(2, 3, 9, 8), "r": rois}, 7, pooled_shape=[2, 3], spatial_scale=0.9)


def test_hardmax() -> None:
    for opset, axis in ((7, 1), (11, 2), (13, 1), (13, -1)):
        one("Hardmax", {"x": f32(2, 3, 4)}, opset, axis=axis)
    one("Hardmax", {"x": np.zeros((2, 3), np.float32)}, 13)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_caches(mode: str) -> None:
    x, new, at = f32(2, 3, 6, 4), f32(2, 3, 2, 4), np.array([4, 1] if mode == "linear" else [5, 0])
    one("TensorScatter", {"x": x, "u": new, "w": at}, 24, mode=mode)
    one("TensorScatter", {"x": x, "u": new}, 24, mode=mode)
    made = model_of(
        [helper.make_node("TensorScatter", ["x", "u", "w"], ["y"], mode=mode)], {"x": x, "u": new, "w": at}, ["y"], 24
    )
    refuses(weft.error.IndexOutOfRange, "place to write at", evaluate, from_onnx(made), x, new, at + 4)


def spectrum(x: np.ndarray, axis: int, opset: int = 20, **attrs: Any) -> np.ndarray:
    weights = {"a": np.array(axis)} if opset >= 20 else {}
    node = helper.make_node(
        "DFT", ["x", "", "a"] if opset >= 20 else ["x"], ["y"], **attrs, **({} if opset >= 20 else {"axis": axis})
    )
    return evaluate(from_onnx(model_of([node], {"x": x}, ["y"], opset, weights)), x)[0]


@pytest.mark.parametrize("n", [1, 2, 7, 64, 96, 127, 360])
def test_fourier_transforms(n: int) -> None:
    """Compared with NumPy's in float64: short ones, primes, and lengths that are split."""
    x = RNG.standard_normal((3, n, 2)).astype(np.float32)
    signal = x[..., 0] + 1j * x[..., 1]
    whole = np.fft.fft(signal.astype(np.complex128))
    for got, want in (
        (spectrum(x, 1), whole),
        (spectrum(x, 1, 17, inverse=1), np.fft.ifft(signal.astype(np.complex128))),
        (spectrum(x[..., :1], 1, onesided=1), np.fft.rfft(x[..., 0].astype(np.float64))),
    ):
        np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), rtol=1e-4, atol=1e-4 * n**0.5)
    half = np.fft.rfft(x[..., 0].astype(np.float64))
    given = np.stack([half.real, half.imag], -1).astype(np.float32)
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"], inverse=1, onesided=1)
    weights = {"n": np.array(n), "a": np.array(1)}
    for inputs in ({"x": given}, {"x": given, "a": weights["a"]}):
        made = model_of([node], inputs, ["y"], 20, {k: v for k, v in weights.items() if k not in inputs})
        found = evaluate(from_onnx(made), *inputs.values())[0]
        np.testing.assert_allclose(found[..., 0], x[..., 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [2**62, 2**61 - 1, 2**28 + 2, 2**14 + 27])
def test_transforms_whose_angles_fit_no_memory(n: int) -> None:
    node = helper.make_node("DFT", ["x", "n"], ["y"], name="spectrum")
    made = model_of([node], {"x": f32(1, 8, 1)}, ["y"], 20, {"n": np.array(n)})
    refuses(weft.error.ModelImportError, f'(?s)too many angles.*"spectrum".*the length {n}', from_onnx, made)


def test_what_the_host_has_no_memory_for() -> None:
    given = {"bins": 2**40, "length": 8, "rate": 8192, "low": 0.0, "high": 4000.0}
    weights = {k: np.array(v, np.float32 if isinstance(v, float) else np.int64) for k, v in given.items()}
    made = model_of([helper.make_node("MelWeightMatrix", list(given), ["y"])], {}, ["y"], 17, weights)
    refuses(weft.error.OutOfMemory, "'MelWeightMatrix' needs more memory", weft.Session(made).run, {})


def test_short_time_transforms() -> None:
    x, window = f32(2, 70, 1), np.hanning(16).astype(np.float32)
    weights = {"s": np.array(8), "w": window}
    one("STFT", {"x": x}, 17, weights, dynamic=())
    one("STFT", {"x": x}, 17, {"s": np.array(8), "n": np.array(16)}, ["x", "s", "", "n"], (), onesided=0)
    node = helper.make_node("STFT", ["x", "s", "w"], ["y"])
    made = model_of([node], {"x": x}, ["y"], 17, weights, {"x": [2, "time", 1]})
    (got,) = weft.Session(made).run({"x": x})
    frames = np.stack([x[:, i : i + 16, 0] * window for i in range(0, 55, 8)], 1)
    want = np.fft.rfft(frames)
    np.testing.assert_allclose(got.numpy(), np.stack([want.real, want.imag], -1), rtol=1e-4, atol=1e-4)


def test_frames_longer_than_the_signal() -> None:
    x = f32(1, 8, 1)
    inputs = {"x": x, "s": np.array(2), "n": np.array(9)}
    made = model_of([helper.make_node("STFT", ["x", "s", "", "n"], ["y"])], inputs, ["y"], 17)
    with pytest.raises((weft.error.InvalidArgument, weft.error.ModelImportError)):
        evaluate(from_onnx(made), x, np.array(2), np.array(9))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "int32", "float16", "float32", "float64"])
def test_unique_rows_of_each_type(dtype: str) -> None:
    """Beside NumPy: few and many elements, none, either end of the type, both zeros, any axis, in either order."""
    for shape, axis in (((40, 3), 0), ((3, 31, 2), 1), ((7, 300), None), ((0, 2), 0), ((3, 0), 0), ((), None)):
        x = RNG.integers(0, 3, shape).astype(dtype)
        if x.size and dtype != "bool":
            top = np.inf if x.dtype.kind == "f" else np.iinfo(dtype).max
            x.reshape(-1)[0], x.reshape(-1)[-1] = top, -np.inf if x.dtype.kind == "f" else np.iinfo(dtype).min
            x.reshape(-1)[x.size // 2] = -0.0 if x.dtype.kind == "f" else 0
        want = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        at = np.argsort(want[1], kind="stable")
        for ordered in (0, 1):
            attrs = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
            made = model_of([helper.make_node("Unique", ["x"], list("yabc"), **attrs)], {"x": x}, list("yabc"), 11)
            values, first, inverse, counts = evaluate(from_onnx(made), x)
            kept = slice(None) if ordered else at
            np.testing.assert_array_equal(values, np.take(want[0], np.arange(len(at))[kept], axis or 0))
            np.testing.assert_array_equal(first, want[1][kept])
            np.testing.assert_array_equal(counts, want[3][kept])
            np.testing.assert_array_equal(np.take(values, inverse, axis or 0).reshape(shape), x)


def test_unique_numbers_that_are_none() -> None:
    """NaN is one element among elements; a row that has one is like no other."""
    x = np.array([[1, np.nan], [0, 2], [1, np.nan], [-np.nan, 2]], np.float32)
    one_each = model_of([helper.make_node("Unique", ["x"], ["y"])], {"x": x}, ["y"], 11)
    np.testing.assert_array_equal(evaluate(from_onnx(one_each), x)[0], [0, 1, 2, np.nan])
    rows = model_of([helper.make_node("Unique", ["x"], ["y"], axis=0)], {"x": x}, ["y"], 11)
    np.testing.assert_array_equal(evaluate(from_onnx(rows), x)[0], x[[1, 0, 2, 3]])


def test_unique_and_determinants() -> None:
    x = RNG.integers(0, 4, (5, 3)).astype(np.float32)
    for attrs in ({}, {"axis": 0}, {"axis": 1, "sorted": 0}, {"sorted": 0}):
        one("Unique", {"x": x}, 11, outputs=4, **attrs)
    for shape in ((3, 4, 4), (2, 2, 1, 1), (5, 7, 7), (0, 3, 3), (2, 0, 0), (6, 6)):
        one("Det", {"x": f32(*shape)}, 11)
    rows = np.array([[0, 2, 1], [1, 0, 3], [2, 2, 0]], np.float32)  # the first column's largest element is below
    one("Det", {"x": np.stack([rows, rows[[1, 0, 2]], rows * 0, rows[[0, 0, 1]]])}, 11)


@pytest.mark.parametrize("op", ["Adagrad", "Momentum", "Adam"])
def test_optimizers(op: str) -> None:
    """Two tensors at once are two steps of one each."""
    states = 2 if op == "Adam" else 1
    rate, step = np.float32(0.1), np.array(3)
    groups = [[np.abs(f32(4)) for _ in range(2 + states)] for _ in range(2)]
    attrs = {"alpha": 0.9, "beta": 0.8, "mode": "nesterov", "norm_coefficient": 0.1} if op == "Momentum" else {}

    def run(*given: list[np.ndarray]) -> list[np.ndarray]:
        values = [x for kind in zip(*given, strict=True) for x in kind]
        inputs = {"r": rate, "t": step} | {f"v{i}": v for i, v in enumerate(values)}
        outs = [f"y{i}" for i in range((1 + states) * len(given))]
        node = helper.make_node(op, list(inputs), outs, domain="ai.onnx.preview.training", **attrs)
        made = model_of([node], inputs, outs, 17)
        made.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
        return evaluate(from_onnx(made), *map(np.asarray, inputs.values()))

    both, first, second = run(*groups), run(groups[0]), run(groups[1])
    for i in range(1 + states):
        np.testing.assert_allclose(both[2 * i], first[i])
        np.testing.assert_allclose(both[2 * i + 1], second[i])
    assert (first[0] != groups[0][0]).all()
