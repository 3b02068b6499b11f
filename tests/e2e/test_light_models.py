"""The nine networks that the onnx package carries, against the outputs beside them."""

from __future__ import annotations

import pytest
from onnx.backend.test.runner import Runner

import weft
from benchmarks import light_models


def test_there_are_nine():
    assert len(light_models.names()) == 9


@pytest.mark.parametrize("name", light_models.names())
def test_outputs_are_as_expected(name):
    model, feeds, expected = light_models.load(name)
    rtol, atol = light_models.tolerances()[name]
    found = [o.numpy() for o in weft.Session(model).run(feeds)]
    Runner.assert_similar_outputs(expected, found, rtol, atol)
