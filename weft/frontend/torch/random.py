"""Random numbers of exported programs, which the host draws: others in each call, as PyTorch's are without a seed.

Behind ``torch.compile`` they stay with PyTorch, whose generator programs seed.
"""

import json
from collections.abc import Sequence
from typing import Any

from weft import ir, relax
from weft.frontend.torch import registry
from weft.frontend.torch.node import Node
from weft.frontend.torch.symbols import Dim
from weft.relax import core_ops
from weft.runtime.host import HOST_FUNCTION

_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24}
"""Binary digits of uniform numbers, so that none is rounded up to 1; float64 has the generator's own."""


def _drawn(node: Node, name: str, dims: Sequence[Dim], **attrs: float) -> Any:
    """Draw float64 numbers of a shape; the name of the shape tells a draw from every other, so that none are shared."""
    shape = node.emit(relax.op.shape_to_tensor(node.shape_expr(dims)))
    about = {"op": name, "attrs": attrs | {"seed": None}, "in": ["int64"], "out": ["float64"], "call": shape.name_hint}
    made = core_ops.call_pure_packed(
        HOST_FUNCTION, json.dumps(about), shape, ty_args=ir.TensorType(None, "float64", len(dims))
    )
    return node.bb.match_cast(node.emit(made), ir.tensor_type(list(node.shape_expr(dims).values), "float64"))


def _uniform(node: Node, dims: Sequence[Dim], dtype: str = "float64") -> Any:
    """Draw float64 numbers from 0 up to 1, below it also in another type."""
    found, digits = _drawn(node, "RandomUniform", dims, low=0.0, high=1.0), _DIGITS.get(dtype)
    if digits is None:
        return found
    scale = node.scalar(2.0**digits, "float64")
    return node.op("divide", node.op("floor", node.op("multiply", found, scale)), scale)


def _exponential(node: Node, dims: Sequence[Dim]) -> Any:
    """Draw float64 numbers that are exponentially distributed, with mean 1; none is 0."""
    rest = node.op("subtract", node.scalar(1.0, "float64"), _uniform(node, dims))
    return node.op("maximum", node.op("negative", node.op("log", rest)), node.scalar(2.0**-53, "float64"))


@registry.draws("rand", "rand_like", "uniform")
def _between(node: Node) -> Any:
    node.get("self")  # gives its shape alone, here as below
    low, high = (node.tensor(node.get(*name), "float64") for name in (("from", 0.0), ("to", 1.0)))
    drawn = node.op("multiply", _uniform(node, node.shape, node.dtype), node.op("subtract", high, low))
    return node.astype(node.op("add", drawn, low), node.dtype)


@registry.draws("randn", "randn_like", "normal", "normal_functional")
def _normal(node: Node) -> Any:
    node.get("self")
    mean, std = (node.tensor(node.get(*name), "float64") for name in (("mean", 0.0), ("std", 1.0)))
    drawn = _drawn(node, "RandomNormal", node.shape, mean=0.0, scale=1.0)
    return node.astype(node.op("add", node.op("multiply", drawn, std), mean), node.dtype)


@registry.draws("exponential")
def _exponentially(node: Node) -> Any:
    node.get("self")
    rate = node.tensor(node["lambd"], "float64")
    return node.astype(node.op("divide", _exponential(node, node.shape), rate), node.dtype)


@registry.draws("randint", "randint_like")
def _integers(node: Node) -> Any:
    node.get("self")
    low, high = (node.tensor(node.get(name, 0), "int64") for name in ("low", "high"))
    count = node.op("subtract", high, low)
    wide = node.op("multiply", _uniform(node, node.shape), node.astype(count, "float64"))
    last = node.op("subtract", count, node.scalar(1, "int64"))
    return node.astype(node.op("add", node.op("minimum", node.astype(wide, "int64"), last), low), node.dtype)


@registry.draws("randperm")
def _permutation(node: Node) -> Any:
    return node.op("argsort", _uniform(node, node.shape), axis=0, dtype=node.dtype)


@registry.draws("bernoulli")
def _bernoulli(node: Node) -> Any:
    node.get("self")
    probability = node.tensor(node.get("p", node["self"]), "float64")
    return node.astype(node.op("less", _uniform(node, node.shape), probability), node.dtype)


@registry.draws("multinomial")
def _multinomial(node: Node) -> Any:
    """Without replacement the largest of probability over an exponential number; with it, places in the running sum."""
    weights, count = node.astype(node["self"], "float64"), node["num_samples"]
    *rows, classes = node.dims(weights)
    if not isinstance(count, int):
        node.error("a number of samples that only the program knows", expected="a number")
    if not node["replacement"] or count == 1:
        ranked = node.op("divide", weights, _exponential(node, [*rows, classes]))
        return node.op("topk", ranked, k=count, axis=-1, ret_type="indices", dtype="int64")
    ends = node.op("cumsum", weights, axis=-1)
    whole = node.op("sum", weights, axis=[-1], keepdims=True)
    drawn = node.op("multiply", _uniform(node, [*rows, count]), whole)
    before = node.op("less_equal", node.op("expand_dims", ends, axis=-2), node.op("expand_dims", drawn, axis=-1))
    return node.op("sum", node.astype(before, "int64"), axis=[-1])
