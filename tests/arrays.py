"""What draws the arrays of tests, each from the generator of its file."""

from collections.abc import Callable

import numpy as np


def floats(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Make the function from dimensions to normal float32 values."""
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def octets(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Make the function from dimensions to uint8 values."""
    return lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)
