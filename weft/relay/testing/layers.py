"""Layers with parameters that are named after the layer."""

from __future__ import annotations

from typing import Any

from weft.ir import Expr
from weft.relay.expr import Call, TupleWrapper, Var, var
from weft.relay.op import nn

_KERNELS = {"NCHW": "OIHW", "NHWC": "HWIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO", "NCW": "OIW", "NWC": "WIO"}


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """Return the layout of a convolution's weight that goes with a layout of data."""
    return "HWOI" if is_depthwise and data_layout == "NHWC" else _KERNELS[data_layout]


def _named(name: str, end: str, given: Any) -> Expr:
    return given if given is not None else var(f"{name}_{end}")


def batch_norm_infer(
    data: Expr,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    moving_mean: Expr | None = None,
    moving_var: Expr | None = None,
    **kwargs: Any,
) -> Expr:
    """Normalise a batch with given statistics."""
    name = kwargs.pop("name")
    given = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    vectors = [_named(name, end, v) for end, v in given.items()]
    normalized: TupleWrapper = nn.batch_norm(data, *vectors, **kwargs)
    return normalized[0]


def _layer(op: str) -> Any:
    def layer(data: Expr, weight: Any = None, **kwargs: Any) -> Expr:
        name = kwargs.pop("name")
        return getattr(nn, op)(data, _named(name, "weight", weight), **kwargs)

    layer.__name__, layer.__doc__ = op, f"Apply ``nn.{op}`` with the weight ``<name>_weight``."
    return layer


conv1d, conv2d, conv3d = _layer("conv1d"), _layer("conv2d"), _layer("conv3d")
conv2d_transpose = _layer("conv2d_transpose")
dense_without_bias = _layer("dense")


def dense_add_bias(
    data: Expr, weight: Expr | None = None, bias: Expr | None = None, units: int | None = None, **kwargs: Any
) -> Call:
    """Apply ``nn.dense`` with the weight ``<name>_weight`` and add ``<name>_bias``."""
    name = kwargs.pop("name")
    made = nn.dense(data, _named(name, "weight", weight), units, **kwargs)
    return nn.bias_add(made, _named(name, "bias", bias), axis=-1)


def data_var(shape: tuple[int, ...], dtype: str) -> Var:
    """Return the input of a network."""
    return var("data", shape=shape, dtype=dtype)
