"""Resize over its attributes, drawn at random: with fixed and with named dimensions, against ONNX Runtime, or the
specification's reference evaluator where ONNX Runtime refuses.

Scales and regions are fractions that floats hold exactly, so that no position lies on an edge by rounding alone.
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.models import compare, oracle
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

CASES = 200
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def draw(seed: int) -> tuple[dict[str, Any], np.ndarray, dict[str, Any], int, set[int]]:
    """Return attributes, data, the inputs behind it, an opset, and the axes that may change."""
    r = random.Random(seed)
    opset, rank = r.choice((11, 13, 18, 19)), r.choice((1, 2, 3, 4, 4, 5))
    mode = r.choice(("nearest", "linear", "cubic"))
    modes = (*COORDINATES, "half_pixel_symmetric") if opset >= 19 else COORDINATES
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": r.choice(modes)}
    if mode == "nearest":
        attrs["nearest_mode"] = r.choice(NEAREST)
    else:
        attrs["exclude_outside"] = int(r.random() < 0.3)
    if mode == "cubic":
        attrs["cubic_coeff_a"] = r.choice((-0.75, -0.5))
    if opset >= 18 and mode != "nearest" and attrs["coordinate_transformation_mode"] != "half_pixel_symmetric":
        attrs["antialias"] = int(r.random() < 0.3)
    shape, axes = [r.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)], list(range(rank))
    if opset >= 18 and r.random() < 0.5:
        axes = r.sample(axes, r.randint(1, rank))
        attrs["axes"] = axes
    moved = set(r.sample(axes, min(len(axes), 3 if mode == "nearest" else 2)))
    inputs: dict[str, Any] = {"roi": [], "scales": [], "sizes": None}
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        begins = [r.choice((0.0, 0.25, 0.5, -0.25)) if a in moved else 0.0 for a in axes]
        ends = [r.choice((1.0, 0.75, 1.25, 0.5)) if a in moved else 1.0 for a in axes]
        inputs["roi"], attrs["extrapolation_value"] = begins + ends, 10.0
    if r.random() < 0.5:
        inputs["scales"] = [r.choice((0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 3.0)) if a in moved else 1.0 for a in axes]
    else:
        sizes = (1, 2, 3, 4, 6, 9) if mode != "nearest" else (1, 2, 3)
        inputs["sizes"] = [
            r.choice(sizes) * (shape[a] if mode == "nearest" else 1) if a in moved else shape[a] for a in axes
        ]
        if opset >= 18 and mode != "nearest":
            attrs["keep_aspect_ratio_policy"] = r.choice(("stretch", "not_larger", "not_smaller"))
    if opset >= 13:  # before, all but the last must be given
        inputs = {k: v if v else None for k, v in inputs.items()}
    return attrs, np.random.default_rng(seed).standard_normal(shape).astype(np.float32), inputs, opset, moved


def model(attrs: dict[str, Any], x: np.ndarray, inputs: dict[str, Any], opset: int, named: bool) -> Any:
    kinds = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    weights = [numpy_helper.from_array(np.array(v, kinds[k]), k) for k, v in inputs.items() if v is not None]
    names = [k if v is not None else "" for k, v in inputs.items()]
    while not names[-1]:
        names.pop()
    shape = [f"d{i}" for i in range(x.ndim)] if named else x.shape
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", *names], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def peer(proto: Any, x: np.ndarray, attrs: dict[str, Any], inputs: dict[str, Any], moved: set[int]) -> Any:
    """Return what ONNX Runtime says, or the reference, where they go by the text of the specification; else None."""
    try:
        found = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
        if all(found.shape[a] != x.shape[a] for a in moved):
            return found  # it copies along an axis whose length does not change, whatever scale and region say
    except Exception:  # sizes and axes that it has no kernel for
        pass
    coordinates = attrs["coordinate_transformation_mode"]
    if coordinates == "pytorch_half_pixel" or (
        coordinates in ("align_corners", "tf_crop_and_resize")
        and not (inputs["sizes"] and attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch")
    ):
        return None  # the reference has -0.5 for a single element, and takes the resized length before it is rounded
    try:
        return ReferenceEvaluator(proto).run(None, {"x": x})[0]
    except ValueError:  # "axes don't match array"
        return None


def test_resize() -> None:
    counts, wrong = Counter(), []
    onnxruntime.set_default_logger_severity(4)
    for seed in range(CASES):
        attrs, x, inputs, opset, moved = draw(seed)
        expected = peer(model(attrs, x, inputs, opset, False), x, attrs, inputs, moved)
        counts["no peer" if expected is None else "compared"] += 1
        for named in (False, True):
            (got,) = evaluate(from_onnx(model(attrs, x, inputs, opset, named)), x)
            same = expected is None or (
                got.shape == expected.shape and np.allclose(got, expected, rtol=1e-3, atol=1e-4)
            )
            if not same:
                wrong.append(f"{seed}: {attrs} {x.shape} {inputs} opset {opset} named {named}")
    print(dict(counts), "differing:", len(wrong))
    assert not wrong, "\n".join(wrong)
    assert counts["compared"] > CASES // 2


@pytest.mark.parametrize("length", [1, 2])
def test_centre_of_a_region_where_the_length_is_named(length: int) -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    x = np.arange(5 * length, dtype=np.float32).reshape(1, 1, 5 * length, 1)
    inputs = {"roi": [0, 0, 0.25, 0, 1, 1, 0.75, 1], "scales": [1, 1, 0.2, 1], "sizes": None}
    proto = model(attrs, x, inputs, 13, True)
    expected = peer(proto, x, attrs, inputs, {2})
    np.testing.assert_allclose(evaluate(from_onnx(proto), x)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("scales", [[0.6, 1.7], [0.6, 0.3], [1.7, 2.0]])
@pytest.mark.parametrize("given", [False, True])
def test_nearest_of_opset_10_rounds_up_where_it_shrinks(scales: list[float], given: bool) -> None:
    x, scales = np.arange(35, dtype="f").reshape(5, 7), np.float32(scales)
    whole = model({"mode": "nearest"}, x, {"scales": scales}, 10, False)
    feeds = {"x": x}
    if given:
        whole.graph.input.append(helper.make_tensor_value_info("scales", 1, [2]))
        del whole.graph.initializer[:]
        feeds["scales"] = scales
    compare(evaluate(from_onnx(whole), *feeds.values()), oracle(whole, feeds))
