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


def test_a_grid_of_one_point_is_the_first_corner() -> None:
    """As the operator's body in the schema and ONNX's reference say; ONNX Runtime gives 1, PyTorch 0."""
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    corner = run("AffineGrid", 20, theta, np.array([1, 1, 1, 1]), align_corners=1)
    np.testing.assert_array_equal(corner.ravel(), [-1, -1])
    row = run("AffineGrid", 20, theta, np.array([1, 1, 1, 3]), align_corners=1)
    np.testing.assert_allclose(row[0, 0], [[-1, -1], [0, -1], [1, -1]], atol=1e-6)
    middle = run("AffineGrid", 20, theta, np.array([1, 1, 1, 1]), align_corners=0)
    np.testing.assert_array_equal(middle.ravel(), [0, 0])
