"""Compilations look for garbage rarely, and leave the process as they found it."""

import gc

import pytest

from tests import onnx_models
from weft import relax
from weft.frontend.onnx import from_onnx
from weft.garbage import rarely_collected
from weft.target import Target


@pytest.fixture(autouse=True)
def thresholds():
    found = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*found)


def test_a_build_looks_for_garbage_rarely():
    looked = []
    module = from_onnx(onnx_models.linear()[0])
    gc.collect()
    gc.callbacks.append(lambda phase, info: looked.append(phase) if gc.get_threshold()[0] == 700 else None)
    try:
        relax.build(module, Target("llvm"))
    finally:
        gc.callbacks.pop()
    assert looked in ([], ["start", "stop"])  # when all is over, for what is there by then
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (100_000, 5, 5)])
def test_what_somebody_chose_stays(chosen):
    gc.set_threshold(*chosen)
    with rarely_collected():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_an_error_restores_and_a_change_meanwhile_stays():
    with pytest.raises(KeyError), rarely_collected():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)
    with rarely_collected():
        gc.set_threshold(1000, 10, 10)
    assert gc.get_threshold() == (1000, 10, 10)
