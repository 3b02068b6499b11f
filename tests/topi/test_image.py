"""The functions of ``topi.image``, against PyTorch and by definition."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.topi.running import evaluate
from weft import error, topi

RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=(2, 3, 6, 7)).astype("float32")


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_affine_grid(align: bool, rank: int) -> None:
    theta, shape = RNG.normal(size=(2, rank, rank + 1)).astype("float32"), (4, 5, 3)[:rank]
    found = evaluate(lambda t: topi.image.affine_grid(t, shape, align), theta)
    expected = F.affine_grid(torch.from_numpy(theta), [2, 1, *shape], align).movedim(-1, 1).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(error.InvalidArgument, match="two points"):
        evaluate(lambda t: topi.image.affine_grid(t, (1,) * rank), theta)


@pytest.mark.parametrize(("rank", "layout"), [(1, "NCW"), (1, "NWC"), (3, "NCDHW"), (3, "NDHWC")])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
def test_resize(rank: int, layout: str, method: str) -> None:
    x = RNG.normal(size=(2, 3, *(5, 4, 6)[:rank])).astype("float32")
    size = (9, 8, 7)[:rank]
    mode = {"nearest_neighbor": "nearest", "linear": {1: "linear", 3: "trilinear"}[rank]}[method]
    expected = F.interpolate(torch.from_numpy(x), size, mode=mode).numpy()
    if layout.endswith("C"):
        x, expected = np.moveaxis(x, 1, -1), np.moveaxis(expected, 1, -1)
    function = {1: topi.image.resize1d, 3: topi.image.resize3d}[rank]
    rule = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"} if mode == "nearest" else {}
    found = evaluate(lambda a: function(a, [0.0] * 2 * rank, size, layout, method, **rule), x)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = evaluate(lambda a: function(a, size, layout=layout, method=method, **rule), x)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_cubic_takes_the_default_of_its_time() -> None:
    found = evaluate(lambda a: topi.image.resize2d(a, None, (12, 11), method="cubic"), IMAGE)
    expected = F.interpolate(torch.from_numpy(IMAGE), (12, 11), mode="bicubic").numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


def _crop(image: np.ndarray, box: np.ndarray, size: tuple[int, int], method: str, outside: float | None) -> np.ndarray:
    h, w = image.shape[1:]
    out = np.empty((image.shape[0], *size))
    for i, j in np.ndindex(size):
        y, x = (
            (box[d] + box[2 + d]) / 2 * (n - 1) if m == 1 else (box[d] + (box[2 + d] - box[d]) * k / (m - 1)) * (n - 1)
            for d, (n, m, k) in enumerate(((h, size[0], i), (w, size[1], j)))
        )
        if outside is not None and not (0 <= y <= h - 1 and 0 <= x <= w - 1):
            out[:, i, j] = outside
            continue
        at = lambda r, c: image[:, min(max(int(r), 0), h - 1), min(max(int(c), 0), w - 1)]  # noqa: E731
        if method == "nearest_neighbor":
            out[:, i, j] = at(round(y), round(x))
            continue
        a, b = np.floor(y), np.floor(x)
        top = at(a, b) * (b + 1 - x) + at(a, b + 1) * (x - b)
        out[:, i, j] = top * (a + 1 - y) + (at(a + 1, b) * (b + 1 - x) + at(a + 1, b + 1) * (x - b)) * (y - a)
    return out


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("size", "outside"), [((4, 5), 0.0), ((3, 1), 9.0), ((4, 5), None)])
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-4), ("float64", 1e-12)])
def test_crop_and_resize(
    method: str, layout: str, size: tuple[int, int], outside: float | None, dtype: str, atol: float
) -> None:
    boxes, data = np.array([[0.1, 0.2, 0.83, 0.9], [0, 0, 1, 1], [-0.3, 0.4, 0.7, 1.5]], dtype), IMAGE.astype(dtype)
    which = np.array([1, 0, 1], "int32")
    expected = np.array([_crop(data[b], box, size, method, outside) for b, box in zip(which, boxes, strict=True)])
    if layout == "NHWC":
        data, expected = (x.transpose(0, 2, 3, 1) for x in (data, expected))
    found = evaluate(
        lambda a, b, i: topi.image.crop_and_resize(a, b, i, size, layout, method, outside), data, boxes, which
    )
    np.testing.assert_allclose(found, expected, atol=atol)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_dilation(layout: str) -> None:
    w = RNG.normal(size=(3, 3, 2)).astype("float32")
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.full((2, 3, 2, 4), -np.inf, "float32")
    for i, j in np.ndindex(3, 2):
        part = padded[:, :, i * 2 : i * 2 + 4 : 2, j : j + 7 : 2]
        expected = np.maximum(expected, part + w[None, :, i, j, None, None])
    x = IMAGE
    if layout == "nhwc":
        x, w, expected = x.transpose(0, 2, 3, 1), w.transpose(1, 2, 0), expected.transpose(0, 2, 3, 1)
    function = getattr(topi.image, f"dilation2d_{layout}")
    found = evaluate(lambda a, b: function(a, b, 2, 1, (2, 1)), x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
