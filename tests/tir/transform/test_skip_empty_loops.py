"""SkipEmptyLoops: what is tested before which loop, and tensors of billions of rows without columns."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.clock import soon
from weft import ir, tir
from weft.script import tir as T

ROWS = 2**34  # 5 seconds at the least, when they are counted


def body_of(func) -> str:
    return tir.transform.skip_empty_loops()(ir.IRModule({"f": func}))["f"].script().split("):\n", 1)[1].strip()


def test_the_parts_of_a_row_are_tested_before_the_rows():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int64, m: T.int64):
        for _i in range(n):
            for j in range(m // 4):
                A[j] = 1.0
            for j in range(m % 4):
                A[j] = 2.0

    assert body_of(f).startswith("if m // 4 > 0 or m % 4 > 0:\n        for _i in range(n):\n            for j in")


def test_memory_that_is_released_does_not_count_as_effect():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int64, m: T.int64):
        with T.allocate([4], "float32") as data:
            rows = T.decl_buffer((4,), "float32", data=data)
            for _i in range(n):
                rows[0] = 0.0
                for j in range(m):
                    rows[0] = rows[0] + A[j]
                for j in range(m):
                    A[j] = rows[0]

    assert body_of(f).startswith("if m > 0 and n > 0:") or body_of(f).startswith("if n > 0 and m > 0:")


def test_a_loop_of_loops_that_are_known_to_be_empty_stays():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int64):
        for _i in range(n):
            for j in range(0):
                A[j] = 1.0

    assert body_of(f).startswith("for _i, j in T.grid(n, 0):")


@pytest.mark.parametrize("extent", ["A[0]", "n // m", "i"])
def test_what_may_not_be_computed_before_the_loop_is_not_tested(extent):
    source = f"""
@T.prim_func
def f(A: T.Buffer((16,), "int64"), n: T.int64, m: T.int64):
    for i in range(n):
        for j in range({extent}):
            A[j] = T.int64(1)
"""
    func = weft.script.from_source(source, {"T": T})
    assert ir.structural_equal(tir.transform.skip_empty_loops()(ir.IRModule({"f": func}))["f"], func)


def test_an_effect_of_each_row_is_kept():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int64, m: T.int64):
        for i in range(n):
            A[i] = 0.0
            for j in range(m):
                A[j] = 1.0

    assert body_of(f).startswith("for i in range(n):")


def floats(*shape):
    return np.zeros(shape, "float32")


def sizes(*values):
    return np.array(values, "int64")


EMPTY = {
    "Add": ([floats(ROWS, 1, 0), floats(1, 3, 1)], {}, (ROWS, 3, 0)),
    "ArgMax": ([floats(ROWS, 3, 0)], {"axis": 1}, (ROWS, 1, 0)),
    "CenterCropPad": ([floats(1, 8, 0), sizes(0, ROWS)], {"axes": [0, 1]}, (0, ROWS, 0)),
    "Concat": ([floats(ROWS, 0), floats(ROWS, 0)], {"axis": 1}, (ROWS, 0)),
    "CumSum": ([floats(ROWS, 0), np.array(1)], {}, (ROWS, 0)),
    "Einsum": ([floats(ROWS, 0), floats(ROWS, 0)], {"equation": "ij,ij->"}, ()),
    "Expand": ([floats(2, 1), sizes(ROWS, 1, 0)], {}, (ROWS, 2, 0)),
    "Gather": ([floats(ROWS, 3, 0), sizes(0, 1)], {"axis": 1}, (ROWS, 2, 0)),
    "MatMul": ([floats(ROWS, 0), floats(0, 0)], {}, (ROWS, 0)),
    "MaxPool": ([floats(ROWS, 0, 4, 4)], {"kernel_shape": [2, 2]}, (ROWS, 0, 3, 3)),
    "MaxUnpool": (
        [floats(1, 1, 0, 0), np.zeros((1, 1, 0, 0), "int64"), sizes(ROWS, 1, 5, 0)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        (ROWS, 1, 5, 0),
    ),
    "OneHot": ([np.zeros((ROWS, 0), "int64"), sizes(3), floats(2)], {}, (ROWS, 0, 3)),
    "Pad": ([floats(ROWS, 0), sizes(0, 0, 0, 0)], {}, (ROWS, 0)),
    "ReduceSum": ([floats(ROWS, 0)], {"keepdims": 0}, ()),
    "Slice": ([floats(ROWS, 3, 0), sizes(0), sizes(2), sizes(1)], {}, (ROWS, 2, 0)),
    "Softmax": ([floats(ROWS, 0)], {}, (ROWS, 0)),
    "Tile": ([floats(1, 5, 4, 0), sizes(7, 1, 4, ROWS)], {}, (7, 5, 16, 0)),
    "Transpose": ([floats(ROWS, 3, 0)], {}, (0, 3, ROWS)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_billions_of_rows_without_columns_take_no_time(name):
    arrays, attrs, shape = EMPTY[name]
    dims = [a.shape if a.ndim < 2 else [f"d{i}_{j}" for j in range(a.ndim)] for i, a in enumerate(arrays)]
    inputs = {f"x{i}": (a.dtype.name, d) for i, (a, d) in enumerate(zip(arrays, dims, strict=True))}
    node = helper.make_node(name, list(inputs), ["y"], **attrs)
    result = ("int64" if name == "ArgMax" else "float32", [f"e{i}" for i in range(len(shape))])
    model = onnx_models.model([node], inputs, {"y": result}, opset=18)
    onnx.checker.check_model(model)
    session = weft.Session(model)
    given = {f"x{i}": a for i, a in enumerate(arrays)}
    assert session.run(None, given)[0].shape == shape
    soon(2, lambda: session.run(None, given), 3)
