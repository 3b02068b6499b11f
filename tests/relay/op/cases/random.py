"""Draws: from the words of generators, which ``tests/relay/op/test_random.py`` compares with published ones."""

from typing import Any

import numpy as np

from tests.relay.op.contract import Case, Sizes, call, case, cases
from weft.op import get_op_def


def _generator(s: Sizes) -> Any:
    return s.integer(10, low=1, high=1 << 62, dtype="uint64")


def _unit(gen: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    new, words = get_op_def("threefry_generate").reference(gen, out_shape=shape)  # type: ignore[misc]
    return new, (words >> np.uint64(12)).astype("float64") * 2.0**-52


def _normal(gen: Any, mean: Any, scale: Any) -> tuple[Any, Any]:
    new, (a, b) = _unit(gen, (2, 3, 5))
    return new, np.sqrt(-2 * np.log(1 - a)) * np.sin(2 * np.pi * b) * scale + mean


def _uniform(gen: Any, low: Any, high: Any) -> tuple[Any, Any]:
    new, unit = _unit(gen, (3, 5))
    return new, low + unit * (high - low)


case("random.threefry_split", make=lambda s: call(_generator(s), expect=get_op_def("threefry_split").reference))
case(
    "random.threefry_generate",
    make=lambda s: call(
        _generator(s), out_shape=(5, 3), expect=lambda g: get_op_def("threefry_generate").reference(g, out_shape=(5, 3))
    ),
)


@cases("random.uniform", "random.normal")
def _drawn(s: Sizes, name: str) -> Case:
    expect = _uniform if name == "random.uniform" else _normal
    parameters = [s.real(3, 1, dtype="float64"), s.real(1, 5, dtype="float64")]
    return call(_generator(s), *parameters, out_shape=(3, 5), out_dtype="float64", expect=expect)
