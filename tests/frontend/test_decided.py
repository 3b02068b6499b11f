"""What Weft gives where ONNX Runtime, ONNX's reference and PyTorch do not agree."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import weft
from tests.frontend.models import model_of


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def run(op: str, opset: int, *inputs: np.ndarray, **attrs: Any) -> np.ndarray:
    feeds = {f"x{i}": a for i, a in enumerate(inputs)}
    model = model_of([helper.make_node(op, list(feeds), ["y"], **attrs)], feeds, ["y"], opset, {})
    return weft.Session(model).run(feeds)[0].numpy()


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_the_mean_of_no_losses_is_not_a_number(op: str) -> None:
    classes = np.array([1, 1])
    assert np.isnan(run(op, 13, f32(0, 3), classes[:0]))
    assert np.isnan(run(op, 13, f32(2, 3), classes, ignore_index=1))
    assert np.isnan(run(op, 13, f32(2, 3), classes, np.zeros(3, np.float32)))
    assert np.isfinite(run(op, 13, f32(2, 3), classes))
    assert run(op, 13, f32(0, 3), classes[:0], reduction="sum") == 0


@pytest.mark.parametrize("dtype", ["int32", "uint64", "int64"])
def test_integers_are_scaled_by_fractions(dtype: str) -> None:
    """As ONNX's reference does; ONNX Runtime has no Gemm of integers."""
    a, b, c = np.array([[3, 5]], dtype), np.array([[7], [2]], dtype), np.array([[9]], dtype)
    for alpha, beta in ((1.0, 0.5), (0.5, 1.0), (0.25, 0.0), (2.0, 3.0)):
        expected = (alpha * (a.astype(float) @ b) + beta * c).astype(dtype)
        found = run("Gemm", 13, a, b, c, alpha=alpha, beta=beta)
        assert found.dtype == dtype and (found == expected).all()


def test_a_grid_of_one_point_is_the_first_corner() -> None:
    """As the operator's body in the schema and ONNX's reference say; ONNX Runtime gives 1, PyTorch 0."""
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    corner = run("AffineGrid", 20, theta, np.array([1, 1, 1, 1]), align_corners=1)
    np.testing.assert_array_equal(corner.ravel(), [-1, -1])
    row = run("AffineGrid", 20, theta, np.array([1, 1, 1, 3]), align_corners=1)
    np.testing.assert_allclose(row[0, 0], [[-1, -1], [0, -1], [1, -1]], atol=1e-6)
    middle = run("AffineGrid", 20, theta, np.array([1, 1, 1, 1]), align_corners=0)
    np.testing.assert_array_equal(middle.ravel(), [0, 0])
