"""The activations of recurrent layers."""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from weft import error, ir, tir

ACTIVATIONS: dict[str, FunctionType] = {
    "sigmoid": tir.sigmoid,
    "tanh": tir.tanh,
    "relu": lambda v: tir.max(v, ir.const(0, v.dtype)),
    "affine": lambda v, a=1.0, b=0.0: v * a + b,
    "hardsigmoid": lambda v, a=0.2, b=0.5: tir.min(tir.max(v * a + b, ir.const(0, v.dtype)), ir.const(1, v.dtype)),
    "softsign": lambda v: v / (tir.abs(v) + 1.0),
    "softplus": lambda v: tir.max(v, ir.const(0, v.dtype)) + tir.log1p(tir.exp(-tir.abs(v))),
    "elu": lambda v, a=1.0: ir.select(v > 0.0, v, (tir.exp(v) - 1.0) * a),
    "leakyrelu": lambda v, a=0.01: ir.select(v > 0.0, v, v * a),
    "thresholdedrelu": lambda v, a=1.0: ir.select(v > a, v, ir.const(0, v.dtype)),
    "scaledtanh": lambda v, a=1.0, b=1.0: tir.tanh(v * b) * a,
}
"""Activations by name, with ONNX's default parameters."""


@cache
def activation(text: str) -> Callable[[Any], Any]:
    """Return the function of ``"hardsigmoid"``, or of ``"hardsigmoid 0.3 0.4"``; an InvalidArgument of other texts."""
    name, *given = text.lower().split()
    if name not in ACTIVATIONS or len(given) > len(ACTIVATIONS[name].__defaults__ or ()):
        raise error.InvalidArgument("no activation is called so", expected=", ".join(ACTIVATIONS), found=text)
    parameters = [float(p) for p in given]
    return lambda v: ACTIVATIONS[name](v, *parameters)
