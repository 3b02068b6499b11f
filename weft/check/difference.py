"""When two arrays differ, and how that is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_ROUNDINGS = 8
"""Of the values' own type that are allowed whatever the tolerance says: bfloat16 has three digits."""


class Tolerance(NamedTuple):
    """What rounding may do: ``|found - expected| <= atol + rtol * max(|expected|)``; integers differ by `atol`."""

    rtol: float = 1e-3
    atol: float = 1e-5


class Difference(NamedTuple):
    """How an array differs from what was expected, where most of all."""

    what: str
    error: float = float("nan")

    def __str__(self) -> str:
        return self.what


def compare(found: object, expected: object, tolerance: Tolerance) -> Difference | None:
    """Return how an array differs from another, or None."""
    a, b = np.asarray(found), np.asarray(expected)
    kind = f"{tuple(b.shape)} {b.dtype}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return Difference(f"expected {kind}, found {tuple(a.shape)} {a.dtype}")
    if a.size == 0 or np.array_equal(a, b):
        return None
    if not _is_number(b.dtype):
        wrong = a != b
        return _tell(a, b, wrong, wrong.astype(float), kind)
    is_float = b.dtype.kind not in "iub"
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        error = np.where(same, 0.0, np.where(finite, np.abs(x - y), np.inf))
        scale = float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
    allowed = tolerance.atol + (max(tolerance.rtol, _ROUNDINGS * _epsilon(b.dtype)) * scale if is_float else 0.0)
    wrong = error > allowed
    return _tell(a, b, wrong, error, kind) if wrong.any() else None


def compare_all(
    found: Sequence[Any], expected: Sequence[Any], names: Sequence[str], tolerance: Tolerance
) -> tuple[str, Difference] | None:
    """Return the name of the first array that differs, and how; None when none does."""
    if len(found) != len(expected):
        return "the results", Difference(f"expected {len(expected)} of them, found {len(found)}")
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        difference = compare(a, b, tolerance)
        if difference is not None:
            return f"output '{names[i]}'" if i < len(names) else f"output {i}", difference
    return None


def _tell(a: np.ndarray, b: np.ndarray, wrong: np.ndarray, error: np.ndarray, kind: str) -> Difference:
    at = np.unravel_index(int(np.argmax(error)), b.shape)
    place, worst, count = ", ".join(str(int(i)) for i in at), float(error[at]), int(wrong.sum())
    return Difference(
        f"largest error {worst:.3g} at [{place}]: expected {_show(b[at])}, found {_show(a[at])}; {count} of {b.size} "
        f"elements of {kind} differ",
        worst,
    )


def _show(value: Any) -> str:
    return f"{float(value):.6g}" if _is_number(value.dtype) and value.dtype.kind not in "iuc" else str(value)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iufc" or dtype.name.startswith(("bfloat", "float8", "float4", "int4", "uint4"))


def _epsilon(dtype: np.dtype[Any]) -> float:
    """The distance of 1 to the next number of a type; in NumPy's table, or by the bits that are kept of one third."""
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    third = float(np.float64(np.asarray(1 / 3).astype(dtype)))
    return max(4 * abs(third - 1 / 3), 2.0**-8)
