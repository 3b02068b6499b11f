"""Mixtures of experts of ``com.microsoft`` against ONNX Runtime on random inputs."""

import math

import numpy as np
import onnxruntime
import pytest

from tests.arrays import floats, octets
from tests.frontend.onnx.test_microsoft import check, model
from weft.error import UnsupportedOperator
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

ROWS, HIDDEN, INNER, EXPERTS = 5, 32, 48, 8
RNG = np.random.default_rng(13)
f32, u8 = floats(RNG), octets(RNG)


def floats(fused: int = 1, bias: bool = True) -> list:
    """Weights and biases of two layers."""
    first, second = f32(EXPERTS, fused * INNER, HIDDEN), f32(EXPERTS, HIDDEN, INNER)
    return [first, f32(EXPERTS, fused * INNER) if bias else None, second, f32(EXPERTS, HIDDEN) if bias else None]


@pytest.mark.parametrize(
    ("kind", "normalised", "k"), [("relu", 0, 1), ("gelu", 1, 2), ("silu", 0, 2), ("identity", 1, 1)]
)
def test_experts(kind: str, normalised: int, k: int) -> None:
    x, router = f32(ROWS, HIDDEN), f32(ROWS, EXPERTS)
    check("MoE", [x, router, *floats(bias=k == 1)], activation_type=kind, k=k, normalize_routing_weights=normalised)


@pytest.mark.parametrize("rows", [(0,), (1,), (2, 2), (3, 7)])
def test_few_and_many_rows(rows: tuple[int, ...]) -> None:
    x, router = f32(*rows, HIDDEN), f32(math.prod(rows), EXPERTS)
    if rows == (0,):  # ONNX Runtime refuses it
        made = model("MoE", [x, router, *floats()], (1,), k=2)
        assert evaluate(from_onnx(made), x, router, *floats())[0].shape == x.shape
        return
    check("MoE", [x, router, *floats()], k=2)


@pytest.mark.parametrize("attrs", [{}, {"swiglu_limit": 1.0, "swiglu_limit_after_activation": 0}])
def test_gated_experts(attrs: dict) -> None:
    given = [f32(ROWS, HIDDEN), f32(ROWS, EXPERTS), *floats(2)]
    check("MoE", given, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.7, activation_beta=1.0, **attrs)


@pytest.mark.parametrize(
    ("rows", "zeros", "block", "bits", "shares"),
    [
        (2, False, 0, 4, False),
        (2, True, 16, 4, True),
        (30, False, 16, 8, True),
        (30, True, 0, 8, True),
        (2, True, 16, 8, False),
        (30, True, 16, 4, False),
    ],
)
def test_quantised_experts(rows: int, zeros: bool, block: int, bits: int, shares: bool) -> None:
    x, router = f32(rows, HIDDEN), f32(rows, EXPERTS)
    given: list = [x, router]
    for outputs, inputs in ((2 * INNER, HIDDEN), (HIDDEN, INNER)):
        scales = (EXPERTS, outputs, inputs // block) if block else (EXPERTS, outputs)
        given += [u8(EXPERTS, outputs, inputs * bits // 8), abs(f32(*scales)) / 2**bits, f32(EXPERTS, outputs)]
    if zeros:
        shapes = [
            (EXPERTS, n, -(-(k // block) * bits // 8)) if block else (EXPERTS, n * bits // 8)
            for n, k in ((2 * INNER, HIDDEN), (HIDDEN, INNER))
        ]
        given += [None, None, None, *(u8(*s) for s in shapes)]
    if shares:
        given += [None] * (14 - len(given)) + [abs(f32(rows, EXPERTS))]
    attrs = {"block_size": block, "normalize_routing_weights": bits // 8} if block else {}
    steps = 2 if block and bits == 8 else 0  # there ONNX Runtime rounds rows to bytes, of results up to a hundred
    constants = tuple(i for i in range(2, min(14, len(given))) if given[i] is not None)
    check(
        "QMoE",
        given,
        activation_type="swiglu",
        swiglu_fusion=1,
        k=2,
        expert_weight_bits=bits,
        tolerance=2e-3,
        steps=steps,
        weights=constants,
        **attrs,
    )


def test_sizes_known_when_it_runs() -> None:
    weights = floats()
    x, router = f32(3, HIDDEN), f32(3, EXPERTS)
    made = model("MoE", [x, router, *weights], (1,), (2, 3, 4, 5), k=2)
    for value in made.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    mod = from_onnx(made)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    for rows in (1, 4, 5, 40):
        x, router = f32(rows, HIDDEN), f32(rows, EXPERTS)
        (want,) = session.run(None, {"x0": x, "x1": router})
        assert abs(evaluate(mod, x, router) - want).max() < 2e-3


def test_what_is_not_known_is_refused() -> None:
    given = [f32(ROWS, HIDDEN), f32(ROWS, EXPERTS), *floats()]
    for attrs in (
        {"use_sparse_mixer": 1},
        {"swiglu_limit_after_activation": 1},
        {"activation_type": "geglu"},
        {"activation_type": "swiglu"},
    ):
        with pytest.raises(UnsupportedOperator, match="MoE"):
            from_onnx(model("MoE", given, (1,), **attrs))
