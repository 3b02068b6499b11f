"""Random numbers, drawn by the host, and what training draws them for."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.runtime.host import Kind


def _drawn(node: Node, name: str, shape: Any, dtype: str, **attrs: Any) -> Any:
    """Draw numbers of a shape: float64, rounded to the type."""
    operand = Value.of_elements(list(shape), "int64")
    (out,) = node.host(name, [operand], [Kind("tensor", "float64", len(shape))], seed=node.attr("seed"), **attrs)
    return node.astype(node.with_dims(node.graph.expr(out), shape), dtype)


@converter("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def _random(node: Node) -> Any:
    like = node.op_type.endswith("Like")
    default = None if like else 1
    to = node.attr("dtype", default)
    dtype = node.dtype() if to is None else dtype_name(to, f"{node.op_type}: attribute 'dtype'")
    shape = node.shape() if like else node.attr("shape")
    name = node.op_type.removesuffix("Like")
    names = {"low": 0.0, "high": 1.0} if name == "RandomUniform" else {"mean": 0.0, "scale": 1.0}
    return _drawn(node, name, shape, dtype, **{k: node.attr(k, v) for k, v in names.items()})


@converter("Bernoulli")
def _bernoulli(node: Node) -> Any:
    """Draw 1 with the probability that is given; the function body of ONNX's schema draws 0 with it."""
    to = node.attr("dtype")
    dtype = node.dtype() if to is None else dtype_name(to, "Bernoulli: attribute 'dtype'")
    given = Value.of_expr(node.astype(node.x(), "float64"))
    (out,) = node.host("Bernoulli", [given], [Kind("tensor", "bool", node.ndim())], seed=node.attr("seed"))
    return node.astype(node.with_dims(node.graph.expr(out), node.shape()), dtype)


@converter("Multinomial")
def _multinomial(node: Node) -> Any:
    dtype = dtype_name(node.attr("dtype", 6), "Multinomial: attribute 'dtype'")
    size = node.attr("sample_size", 1)
    (out,) = node.host(
        "Multinomial", node.inputs, [Kind("tensor", "int64", 2)], sample_size=size, seed=node.attr("seed")
    )
    return node.astype(node.with_dims(node.graph.expr(out), [node.shape()[0], size]), dtype)


@converter("Dropout")
def _dropout(node: Node) -> Any:
    """Training draws a mask; the rest is the input."""
    ratio = node.const(1) if node.has(1) else np.array(node.attr("ratio", 0.5))
    training = node.const(2) if node.has(2) else np.False_
    never = training is not None and not bool(np.asarray(training).reshape(-1)[0])
    if not never and not (ratio is not None and float(ratio.reshape(-1)[0]) == 0.0):
        return _training_dropout(node)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return node.value(0)
    # Before opset 12 the mask at inference is left open; ONNX Runtime gives zeros.
    mask = node.full(node.shape(), node.opset >= 12, "bool")
    return node.value(0), mask if node.opset >= 10 else node.astype(mask, node.dtype())


def _training_dropout(node: Node) -> Any:
    x, dtype = node.x(), node.dtype()
    ratio = node.astype(node.reshape(node.x(1), ()), "float64") if node.has(1) else node.scalar(0.5, "float64")
    draws = _drawn(node, "RandomUniform", node.shape(), "float64", low=0.0, high=1.0)
    mask = node.op("greater_equal", draws, ratio)
    one = node.scalar(1.0, "float64")
    scale = node.op("divide", one, node.op("subtract", one, ratio))
    dropped = node.op("multiply", node.op("where", mask, x, node.scalar(0, dtype)), node.astype(scale, dtype))
    if node.const(2) is not None:
        return dropped, mask
    training = node.reshape(node.x(2), ())
    always = node.op("logical_or", mask, node.op("logical_not", training))
    return node.op("where", training, dropped, x), always


# --- optimizers -------------------------------------------------------------------------------------------------------


def _groups(node: Node, count: int) -> list[tuple[Any, ...]]:
    """Return tensor, gradient and states of each parameter, which come one kind after another."""
    rest = [node.x(i) for i in range(2, len(node.inputs))]
    if len(rest) % count:
        node.error("a wrong number of inputs", expected=f"2 and {count} for each tensor", found=str(len(node.inputs)))
    n = len(rest) // count
    return [tuple(rest[i::n]) for i in range(n)]


def _by_kind(results: list[tuple[Any, ...]]) -> list[Any]:
    return [x for kind in zip(*results, strict=True) for x in kind]


def _rate(node: Node, x: Any) -> tuple[Any, Any]:
    """Return the learning rate and the number of updates as numbers of a tensor's type."""
    rate, step = (node.astype(node.reshape(node.x(i), ()), x.ty.dtype) for i in (0, 1))
    return rate, step


@converter("Adagrad", domain="ai.onnx.preview.training")
def _adagrad(node: Node) -> Any:
    decay, norm, epsilon = (
        node.attr(k, v) for k, v in (("decay_factor", 0.0), ("norm_coefficient", 0.0), ("epsilon", 1e-6))
    )
    results = []
    for x, g, h in _groups(node, 3):
        rate, step = _rate(node, x)
        gradient = node.emit(x * norm + g)
        squares = node.emit(h + gradient * gradient)
        slowed = node.emit(rate / (step * decay + 1.0))
        new = node.emit(x - slowed * gradient / (node.op("sqrt", squares) + epsilon))
        results.append((new, squares))
    return _by_kind(results)


@converter("Momentum", domain="ai.onnx.preview.training")
def _momentum(node: Node) -> Any:
    alpha, beta, norm, mode = (node.attr(k) for k in ("alpha", "beta", "norm_coefficient", "mode"))
    if mode not in ("standard", "nesterov"):
        node.error("an unknown mode", expected="standard or nesterov", found=str(mode))
    results = []
    for x, g, v in _groups(node, 3):
        rate, step = _rate(node, x)
        gradient = node.emit(x * norm + g)
        later = node.op("greater", step, node.scalar(0, x.ty.dtype))
        kept = node.op("where", later, node.scalar(beta, x.ty.dtype), node.scalar(1.0, x.ty.dtype))
        moved = node.emit(v * alpha + kept * gradient)
        by = moved if mode == "standard" else node.emit(gradient + moved * alpha)
        results.append((node.emit(x - rate * by), moved))
    return _by_kind(results)


@converter("Adam", domain="ai.onnx.preview.training")
def _adam(node: Node) -> Any:
    alpha, beta, epsilon, norm, after = (
        node.attr(k, v)
        for k, v in (
            ("alpha", 0.9),
            ("beta", 0.999),
            ("epsilon", 1e-6),
            ("norm_coefficient", 0.0),
            ("norm_coefficient_post", 0.0),
        )
    )
    results = []
    for x, g, v, h in _groups(node, 4):
        rate, step = _rate(node, x)
        dtype = x.ty.dtype
        gradient = node.emit(x * norm + g)
        moved = node.emit(v * alpha + gradient * (1 - alpha))
        squares = node.emit(h * beta + gradient * gradient * (1 - beta))

        def left(base: float, step: Any = step, dtype: str = dtype) -> Any:
            return node.emit(1.0 - node.op("power", node.scalar(base, dtype), step))

        started = node.op("greater", step, node.scalar(0, dtype))
        corrected = node.op("where", started, node.emit(rate * node.op("sqrt", left(beta)) / left(alpha)), rate)
        new = node.emit(x - corrected * moved / (node.op("sqrt", squares) + epsilon))
        results.append((node.emit(new * (1 - after)), moved, squares))
    return _by_kind(results)
