"""Random numbers: of NumPy's Mersenne Twister, seeded as ONNX's reference does it, else by the system's entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.runtime.host.registry import host_operator


def _generator(seed: float | None) -> np.random.RandomState:
    """Make a generator; a seed is a float in ONNX, whose bits count where it is no small whole number."""
    if seed is None:
        return np.random.RandomState()
    whole = float(seed).is_integer() and 0 <= seed < 1 << 32
    return np.random.RandomState(int(seed) if whole else int(np.float32(seed).view(np.uint32)))


@host_operator("RandomUniform")
def _uniform(shape: Any, *, low: float, high: float, seed: float | None) -> Any:
    return _generator(seed).uniform(low, high, tuple(shape))


@host_operator("RandomNormal")
@np.errstate(all="ignore")
def _normal(shape: Any, *, mean: float, scale: float, seed: float | None) -> Any:
    return _generator(seed).normal(mean, scale, tuple(shape))


@host_operator("Bernoulli")
def _bernoulli(p: Any, *, seed: float | None) -> Any:
    """Draw what is true with each probability."""
    if not ((p >= 0) & (p <= 1)).all():
        wrong = p[~((p >= 0) & (p <= 1))].flat[0]
        raise InvalidArgument("Bernoulli: a probability", expected="0 to 1", found=str(wrong))
    return _generator(seed).uniform(size=p.shape) < p


@host_operator("Multinomial")
@np.errstate(all="ignore")
def _multinomial(x: Any, *, sample_size: int, seed: float | None) -> Any:
    """Draw classes of each row of logarithms of probabilities, which need not add up to one."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise InvalidArgument("Multinomial: a wrong shape", expected="(batch, classes), classes", found=str(x.shape))
    if not (np.isfinite(x.max(1)).all()):
        raise InvalidArgument("Multinomial: the greatest logarithm of a row", expected="a number", found="none")
    weights = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    total = np.cumsum(weights, 1)
    drawn = _generator(seed).uniform(size=(len(x), sample_size)) * total[:, -1:]
    return (drawn[:, :, None] >= total[:, None, :-1]).sum(2)
