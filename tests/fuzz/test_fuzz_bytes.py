"""Damaged models, executables, cache entries and tuning files: an error of ours, a miss, or something that loads."""

import numpy as np

import weft
from tests import onnx_models
from tests.fuzz import budget
from tests.fuzz.binary import damage


def test_models():
    data = onnx_models.linear()[0].SerializeToString()
    for seed in budget.seeds(0.5):
        try:
            weft.frontend.onnx.from_onnx(damage(data, np.random.default_rng(seed)))
        except weft.WeftError as e:
            assert str(e), f"seed {seed}"


def test_executables():
    executable = weft.Session(onnx_models.linear()[0]).executable
    data, x = executable.bytes, np.ones((2, 8), np.float32)
    for seed in budget.seeds(0.5):
        try:
            damaged = weft.runtime.VMExecutable.from_bytes(
                damage(data, np.random.default_rng(seed)), executable.imports
            )
            weft.relax.VirtualMachine(damaged, weft.cpu())["main"](x)
        except (weft.WeftError, TypeError, ValueError, RuntimeError, RecursionError, AttributeError, MemoryError) as e:
            assert str(e), f"seed {seed}"
