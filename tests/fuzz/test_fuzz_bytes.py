"""Damaged models, executables, cache entries and tuning files: an error of ours, a miss, or something that loads."""

import numpy as np

import weft
from tests import onnx_models
from tests.fuzz import budget


def damage(data: bytes, seed: int) -> bytes:
    """Flip bits, cut, insert or repeat, one to four times."""
    rng = np.random.default_rng(seed)
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not out:
            break
        at = int(rng.integers(len(out)))
        kind = int(rng.integers(4))
        if kind == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 40))]
        elif kind == 2:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
        else:
            out[at:at] = out[at : at + int(rng.integers(1, 40))]
    return bytes(out)


def test_models():
    data = onnx_models.linear()[0].SerializeToString()
    for seed in budget.seeds(0.5):
        try:
            weft.frontend.onnx.from_onnx(damage(data, seed))
        except weft.WeftError as e:
            assert str(e), f"seed {seed}"


def test_executables():
    executable = weft.Session(onnx_models.linear()[0]).executable
    data, x = executable.bytes, np.ones((2, 8), np.float32)
    for seed in budget.seeds(0.5):
        try:
            damaged = weft.runtime.VMExecutable.from_bytes(damage(data, seed), executable.imports)
            weft.relax.VirtualMachine(damaged, weft.cpu())["main"](x)
        except (weft.WeftError, TypeError, ValueError, RuntimeError, RecursionError, AttributeError, MemoryError) as e:
            assert str(e), f"seed {seed}"
