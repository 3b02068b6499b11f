"""Hybrid script as Python: what its words mean on arrays."""

from typing import Any

import numpy as np

from weft.tir.intrin import INTRINSICS


def _zeros(shape: Any, dtype: Any = "float32", scope: str = "global") -> np.ndarray:
    return np.zeros(tuple(map(int, shape)), str(dtype))


_MATH = {name: known.reference for name, known in INTRINSICS.items()} | {
    "power": np.power,
    "likely": lambda x: x,
    "ceil_div": lambda a, b: (a + b - 1) // b,
    "max": max,
    "min": min,
}
CASTS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)] + ["float16", "float32", "float64"]
LOOPS = ("serial", "parallel", "vectorize", "unroll", "const_range")

HYBRID_GLOBALS: dict[str, Any] = {
    **dict.fromkeys(LOOPS, range),
    "bind": lambda thread, extent: range(extent),
    "allocate": _zeros,
    "output_tensor": _zeros,
    **_MATH,
    **{name: np.dtype(name).type for name in CASTS},
}
