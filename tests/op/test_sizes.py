"""Sizes of results are counted exactly: what needs more than 64 bits is refused, and never counted modulo 2**64."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import weft
from tests.frontend.models import check, model_of
from weft import error, ir, op, te, tir


def call(name: str, shape: Any, copies: int = 1, **attrs: Any) -> Any:
    x: Any = ir.ExprVar("x", ir.TensorType(shape, "int8"))
    return op.make_call(name)(ir.Tuple((x,) * copies) if copies > 1 else x, **attrs)


OPERATORS: dict[str, Callable[[int, int, int], tuple[Any, list[int]]]] = {
    "pad": lambda n, a, b: (call("nn.pad", (n, 2), pad_width=(a, b, 0, 1)), [n + a + b, 3]),
    "tile": lambda n, a, b: (call("tile", (n, 3), repeats=(a, b)), [n * a, 3 * b]),
    "repeat": lambda n, a, b: (call("repeat", (n, b), repeats=a, axis=0), [n * a, b]),
    "concat": lambda n, a, b: (call("concat", (a, n), copies=5, axis=0), [5 * a, n]),
    "flatten": lambda n, a, b: (call("flatten", (n, a, b)), [n * a * b]),
    "pool": lambda n, a, b: (call("nn.max_pool2d", (1, 1, n, 3), padding=(a, 0, b, 0)), [1, 1, n + a + b, 3]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_size_is_exact_or_refused(name: str) -> None:
    r, answered = random.Random(name), 0
    for _ in range(60):
        n, a, b = (max(0, (1 << r.choice([1, 3, 20, 31, 32, 61, 62, 63])) + r.randint(-2, 1)) for _ in range(3))
        try:
            made, sizes = OPERATORS[name](n, a, b)
            found = [ir.as_int(d) for d in weft.relax.BlockBuilder().normalize(made).ty.shape]
        except error.WeftError:
            continue
        assert found == sizes, f"{name}: {n}, {a}, {b}"
        answered += 1
    assert answered


@pytest.mark.parametrize("make", [te.placeholder, tir.decl_buffer, ir.TensorType])
def test_a_shape_takes_64_bits(make: Callable[[Any], Any]) -> None:
    for size in (1 << 63, (1 << 64) + 3):
        with pytest.raises(error.InvalidArgument, match="more than 64 bits"):
            make((size,))


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("Add", [MOST, 1], LEAST),
        ("Sub", [LEAST, 1], MOST),
        ("Mul", [2**40, 2**40], 0),
        ("Neg", [LEAST], LEAST),
        ("Abs", [LEAST], LEAST),
        ("Div", [LEAST, -1], LEAST),
    ],
)
def test_known_numbers_of_a_model_wrap_as_computed_ones(name: str, given: list[int], wanted: int) -> None:
    weights = {f"x{i}": np.array([v]) for i, v in enumerate(given)}
    model = model_of([helper.make_node(name, list(weights), ["y"])], {}, ["y"], weights=weights)
    assert weft.Session(model).run({})[0].numpy().tolist() == [wanted]


@pytest.mark.parametrize(
    ("name", "opset", "by"),
    [
        ("Resize", 17, [2.0**62, 1]),
        ("Upsample", 9, [1e30, 1]),
        ("Tile", 17, [2**62, 1]),
        ("Pad", 17, [MOST, 0, MOST, 0]),
    ],
)
def test_a_model_with_a_size_of_more_bits_is_refused(name: str, opset: int, by: list[Any]) -> None:
    node = helper.make_node(name, ["x", "", "s"] if name == "Resize" else ["x", "s"], ["y"])
    weights = {"s": np.array(by, "float32" if isinstance(by[0], float) else "int64")}
    with pytest.raises(error.WeftError, match="more than 64 bits"):
        weft.Session(model_of([node], {"x": np.ones((4, 3), "float32")}, ["y"], opset, weights))


@pytest.mark.parametrize("first", ["float32", "float64", "int32", "int8", "uint8", "uint64", "bool"])
@pytest.mark.parametrize("second", ["float64", "int64", "bool"])
def test_sizes_are_cast_as_numbers_are(first: str, second: str) -> None:
    to = [helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (first, second)]
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Sub", ["s", "two"], ["d"])]
    nodes += [helper.make_node("Cast", [a], [b], to=t) for a, b, t in zip("dc", "cy", to, strict=True)]
    x = np.zeros((2, 0, 3, 300), "int8")
    check(model_of(nodes, {"x": x}, ["y"], weights={"two": np.array(2)}), {"x": x}, ["x"])
