"""The nine networks that the onnx package carries, against the outputs beside them."""

import os

import pytest
from onnx.backend.test.runner import Runner

import weft
from benchmarks import light_models

LARGE = ("densenet121", "inception_v1", "inception_v2", "squeezenet", "vgg19", "zfnet512")
"""What takes ten seconds and more to compile, of families that the others have: ``make sweep``."""
NAMES = [n for n in light_models.names() if os.environ.get("WEFT_SWEEP") or n not in LARGE]


def test_there_are_nine():
    assert len(light_models.names()) == 9
    assert set(LARGE) < set(light_models.names())


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_as_expected(name):
    model, feeds, expected = light_models.load(name)
    rtol, atol = light_models.tolerances()[name]
    found = [o.numpy() for o in weft.Session(model).run(feeds)]
    Runner.assert_similar_outputs(expected, found, rtol, atol)
