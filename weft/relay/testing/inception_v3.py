"""Inception v3: blocks of convolutions of several shapes side by side."""

from __future__ import annotations

from typing import Any

from weft.ir import Expr
from weft.relay.expr import Function
from weft.relay.op import constructor, nn
from weft.relay.testing import layers
from weft.relay.testing.init import workload_of

# A branch is a chain of steps: (channels, kernel), which keeps the size, or (channels, kernel, stride) without padding.
# "avg" and "max" are pooling, "split" ends a chain in two that are joined.
_Step = tuple[Any, ...]


def _conv(data: Expr, channels: int, kernel: tuple[int, int], stride: int, valid: bool, name: str) -> Expr:
    padding = (0, 0) if valid else tuple(k // 2 for k in kernel)
    out = layers.conv2d(
        data, channels=channels, kernel_size=kernel, strides=(stride, stride), padding=padding, name=f"{name}_conv1"
    )
    return nn.relu(layers.batch_norm_infer(out, epsilon=2e-5, scale=False, name=f"{name}_bn1"))


def _branch(data: Expr, steps: tuple[_Step, ...], name: str) -> Expr:
    for i, step in enumerate(steps):
        if step[0] == "avg":
            data = nn.avg_pool2d(data, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), count_include_pad=True)
        elif step[0] == "max":
            data = nn.max_pool2d(data, pool_size=(3, 3), strides=(2, 2), padding=(0, 0))
        elif step[0] == "split":
            parts = [_branch(data, (s,), f"{name}_{i}{side}") for s, side in zip(step[1:], "ab", strict=True)]
            data = constructor("concatenate")(parts, axis=1)
        else:
            channels, kernel, *how = step
            kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
            data = _conv(data, channels, kernel, how[0] if how else 1, bool(how), f"{name}_{i}")
    return data


def _block(data: Expr, branches: tuple[tuple[_Step, ...], ...], name: str) -> Expr:
    made = [_branch(data, b, f"{name}_branch{i}") for i, b in enumerate(branches)]
    return constructor("concatenate")(made, axis=1)


def _a(pooled: int) -> tuple[tuple[_Step, ...], ...]:
    return ((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)), (("avg",), (pooled, 1))


def _c(n: int) -> tuple[tuple[_Step, ...], ...]:
    row, column = (1, 7), (7, 1)
    return (
        ((192, 1),),
        ((n, 1), (n, row), (192, column)),
        ((n, 1), (n, column), (n, row), (n, column), (192, row)),
        (("avg",), (192, 1)),
    )


def _e(pool: str) -> tuple[tuple[_Step, ...], ...]:
    sides = ("split", (384, (1, 3)), (384, (3, 1)))
    last: tuple[_Step, ...] = ((pool,), (192, 1))
    return ((320, 1),), ((384, 1), sides), ((448, 1), (384, 3), sides), last


_STEM: tuple[_Step, ...] = ((32, 3, 2), (32, 3, 1), (64, 3), ("max",), (80, 1), (192, 3, 1), ("max",))
_REDUCE_1 = ((384, 3, 2),), ((64, 1), (96, 3), (96, 3, 2)), (("max",),)
_REDUCE_2 = ((192, 1), (320, 3, 2)), ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)), (("max",),)
_BLOCKS: tuple[Any, ...] = (
    _a(32),
    _a(64),
    _a(64),
    _REDUCE_1,
    _c(128),
    _c(160),
    _c(160),
    _c(192),
    _REDUCE_2,
    _e("avg"),
    _e("avg"),
)


def get_net(batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str) -> Function:
    """Make the network."""
    body = _branch(layers.data_var((batch_size, *image_shape), dtype), _STEM, "stem")
    for i, branches in enumerate(_BLOCKS):
        body = _block(body, branches, f"mixed_{i}")
    body = nn.batch_flatten(nn.global_avg_pool2d(body))
    return nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc1")).in_function()


get_workload = workload_of(get_net, batch_size=1, num_classes=1000, image_shape=(3, 299, 299), dtype="float32")
