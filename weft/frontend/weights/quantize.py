"""Matrices of floats as integers of few bits in groups."""

import numpy as np

from weft.error import InvalidArgument
from weft.frontend.weights.files import Groups


def quantize_matrix(weights: np.ndarray, bits: int = 4, group: int = 32) -> Groups:
    """Round a matrix to integers of few bits, with a scale for each group of a row.

    In each group the number of the greatest magnitude becomes the lowest integer, exactly but for the scale's own
    rounding to float16; zero points are the middle.

    Parameters
    ----------
    weights : numpy.ndarray
        (rows, columns) of floats; columns are a multiple of `group`.
    bits : int
        2, 4 or 8.

    Raises
    ------
    InvalidArgument
        For other bits, ranks and columns, and for numbers that are not finite or scales that float16 does not hold.
    """
    if weights.ndim != 2 or bits not in (2, 4, 8) or group < 1 or weights.shape[1] % group:
        raise InvalidArgument(
            "quantize_matrix: cannot be put into groups of few bits",
            expected="a matrix of whole groups, and 2, 4 or 8 bits",
            found=f"shape {weights.shape}, groups of {group}, {bits} bits",
        )
    half, parts = 1 << (bits - 1), weights.astype(np.float64).reshape(len(weights), -1, group)
    at = np.abs(parts).argmax(-1)[..., None]
    with np.errstate(over="ignore"):
        scale = (np.take_along_axis(parts, at, -1) / -half).astype(np.float16)
    if not np.isfinite(scale).all():
        raise InvalidArgument("quantize_matrix: scales must be finite in float16", found=str(np.abs(weights).max()))
    unit = scale.astype(np.float64)
    steps = np.divide(parts, unit, out=np.zeros_like(parts), where=unit != 0)
    q = np.clip(np.rint(steps) + half, 0, 2 * half - 1).astype(np.uint8)
    scales = scale[..., 0].astype(np.float32)
    return Groups(q.reshape(weights.shape), scales, np.full(scales.shape, half, np.float32), group)
