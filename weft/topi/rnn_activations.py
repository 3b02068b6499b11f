"""The activations of recurrent layers."""

from collections.abc import Callable
from functools import cache
from typing import Any

from weft import error, ir, tir

ACTIVATIONS: dict[str, tuple[Callable[..., Any], dict[str, float]]] = {
    "sigmoid": (tir.sigmoid, {}),
    "tanh": (tir.tanh, {}),
    "relu": (lambda v: tir.max(v, ir.const(0, v.dtype)), {}),
    "affine": (lambda v, alpha, beta: v * alpha + beta, {"alpha": 1.0, "beta": 0.0}),
    "hardsigmoid": (
        lambda v, alpha, beta: tir.min(tir.max(v * alpha + beta, ir.const(0, v.dtype)), ir.const(1, v.dtype)),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "softsign": (lambda v: v / (ir.const(1, v.dtype) + tir.abs(v)), {}),
    "softplus": (lambda v: tir.max(v, ir.const(0, v.dtype)) + tir.log1p(tir.exp(-tir.abs(v))), {}),
    "elu": (
        lambda v, alpha: ir.select(v > ir.const(0, v.dtype), v, (tir.exp(v) - ir.const(1, v.dtype)) * alpha),
        {"alpha": 1.0},
    ),
    "leakyrelu": (lambda v, alpha: ir.select(v > ir.const(0, v.dtype), v, v * alpha), {"alpha": 0.01}),
    "thresholdedrelu": (lambda v, alpha: ir.select(v > alpha, v, ir.const(0, v.dtype)), {"alpha": 1.0}),
    "scaledtanh": (lambda v, alpha, beta: tir.tanh(v * beta) * alpha, {"alpha": 1.0, "beta": 1.0}),
}
"""Activations by name, with ONNX's default parameters."""


def parameters_of(text: str) -> tuple[str, list[float]]:
    """Take an activation apart: its name, and the parameters behind it or its own ones.

    Raises
    ------
    InvalidArgument
        When there is no such activation, or it takes fewer parameters.
    """
    name, *given = text.lower().split()
    if name not in ACTIVATIONS or len(given) > len(ACTIVATIONS[name][1]):
        raise error.InvalidArgument(
            "an activation has no such name, or fewer parameters", expected=", ".join(ACTIVATIONS), found=text
        )
    return name, [*map(float, given), *list(ACTIVATIONS[name][1].values())[len(given) :]]


@cache
def activation(text: str) -> Callable[[Any], Any]:
    """Return the function of ``"hardsigmoid"``, or of ``"hardsigmoid 0.3 0.4"``; one of equal texts."""
    name, parameters = parameters_of(text)
    return lambda v: ACTIVATIONS[name][0](v, *(ir.const(p, v.dtype) for p in parameters))
