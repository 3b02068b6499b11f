"""Nodes of older opsets as those of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.baseline.operators import OPERATORS, placed
from weft.baseline.refusal import NotInBaseline

OPSETS = range(7, 24)
"""In which operators mean what they mean here, once :func:`modern_node` has seen them."""

_INPUTS = {
    "Clip": (11, ("min", "max")),
    "Dropout": (12, ("ratio",)),
    "Pad": (11, ("pads", "value")),
    "Slice": (10, ("starts", "ends", "axes")),
    "Split": (13, ("split",)),
    "Squeeze": (13, ("axes",)),
    "TopK": (10, ("k",)),
    "Unsqueeze": (13, ("axes",)),
    "Upsample": (9, ("scales",)),
}
"""What is an input from an opset on and an attribute before."""
_SINCE = {"GroupNormalization": 21, "Resize": 11, "Scan": 9}
"""Operators that meant something else before."""

NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("antialias", "channels_last", "input_forget", "layout", "transBatchA", "transBatchB"), 0),
    "keep_aspect_ratio_policy": "stretch",
}
"""Attributes that no operator here knows, which exporters write although they say nothing."""


def modern_node(
    name: str, inputs: tuple[str, ...], attributes: Mapping[str, Any], opset: int, constant: Callable[[Any], str]
) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Return operator, inputs and attributes as the newest opset has them; `constant` names a value as an input."""
    kept = dict(attributes)
    if opset < _SINCE.get(name, 0):
        raise NotInBaseline(f"{name} of opset {opset}")
    since, moved = _INPUTS.get(name, (0, ()))
    if opset < since:
        given = [kept.pop(a, None) for a in moved]
        inputs = (*inputs, *("" if v is None else constant(_array(v)) for v in given))
    if opset < 9 and name == "BatchNormalization" and kept.get("spatial") == 1:
        del kept["spatial"]
    if name == "Upsample":
        kept |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name, inputs = "Resize", (inputs[0], "", *inputs[1:])
    if name.startswith("Reduce") and "axes" in kept:
        kept["axes_"] = kept.pop("axes")
    return name, inputs, kept


def operator_of(name: str, opset: int) -> Callable[..., Any] | None:
    """Return the function of an operator, None where there is none."""
    found = OPERATORS.get(name)
    return _flattened(found) if found is not None and opset < 13 and name in ("Softmax", "LogSoftmax") else found


def _flattened(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Before opset 13 all axes from one on were one row."""

    def apply(x: np.ndarray, *, axis: int = 1) -> np.ndarray:
        at = placed(axis, x.ndim)
        return compute(x.reshape(prod(x.shape[:at]), -1)).reshape(x.shape)

    return apply


def _array(value: float | int | Sequence[Any]) -> np.ndarray:
    integers = all(isinstance(v, int) for v in (value if isinstance(value, Sequence) else (value,)))
    return np.array(value, np.int64 if integers else np.float32)
