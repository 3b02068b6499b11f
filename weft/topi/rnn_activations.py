"""The activations of recurrent layers."""

from collections.abc import Callable
from typing import Any

from weft import ir, tir


def _const(v: Any, value: float) -> Any:
    return ir.const(value, v.dtype)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": tir.sigmoid,
    "tanh": tir.tanh,
    "relu": lambda v: tir.max(v, _const(v, 0)),
    "affine": lambda v: v,
    "hardsigmoid": lambda v: tir.min(tir.max(v * _const(v, 0.2) + _const(v, 0.5), _const(v, 0)), _const(v, 1)),
    "softsign": lambda v: v / (_const(v, 1) + tir.abs(v)),
    "softplus": lambda v: tir.max(v, _const(v, 0)) + tir.log1p(tir.exp(-tir.abs(v))),
    "elu": lambda v: ir.select(v > _const(v, 0), v, tir.exp(v) - _const(v, 1)),
    "leakyrelu": lambda v: ir.select(v > _const(v, 0), v, v * _const(v, 0.01)),
    "thresholdedrelu": lambda v: ir.select(v > _const(v, 1), v, _const(v, 0)),
    "scaledtanh": tir.tanh,
}
"""Activations by name, with ONNX's default parameters."""
