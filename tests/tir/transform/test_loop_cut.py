"""LoopPartition under TVM's name: loops are cut where their conditions change; what is computed stays the same."""

import numpy as np
import pytest

from weft import ir, script, tir

CONDITIONS = {  # of i, j and n; how many tests remain where all ranges are numbers
    "i * 4 + j < {n}": 0,
    "{n} - 3 > j - i * 2": 0,
    "i == 3": 0,
    "0 - i * 3 + 7 >= j": 0,
    "i * 4 + j < 17 and i >= 2": 0,
    "(i * 4 + j) // 3 < 5": 0,
    "i % 2 == j": 1,
    "X[i] < 3": 1,
}


def program(condition, sizes, marked):
    rows, n = sizes
    condition = condition.format(n=n)
    test = f"T.likely({condition})" if marked else condition
    hint = "" if marked else ', annotations={"pragma_loop_partition_hint": 1}'
    return script.from_source(f"""
@T.prim_func
def main(X: T.Buffer((64,), "int32"), Y: T.Buffer((64,), "int32"), m: T.int32, k: T.int32):
    for i in T.serial({rows}{hint}):
        for j in T.serial(4{hint}):
            if {test}:
                Y[i * 4 + j] = X[i] * 2 + 1
            else:
                Y[i * 4 + j] = Y[i * 4 + j] - T.Select({test}, 3, i)
            X[j + 1] = X[j + 1] + 1
""")


def cut_apart(func):
    with ir.PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        return tir.transform.LoopPartition()(ir.IRModule({"main": func}))["main"]


def outcome(func, m, k):
    y = np.full(64, 5, "int32")
    tir.interpret(func, np.arange(64, dtype="int32") % 7, y, m, k)
    return y.tolist()


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("sizes", [("7", "21"), ("m", "k")])
def test_parts_compute_the_same(condition, sizes, marked):
    func = program(condition, sizes, marked)
    cut = cut_apart(func)
    tests = ir.find(cut.body, tir.IfThenElse)
    if sizes == ("7", "21") and "X" not in condition and "%" not in condition:
        assert len(tests) == CONDITIONS[condition]
    for m, k in ((7, 21), (0, 0), (1, 9), (9, 2), (16, 64), (-2, 5), (5, -3)):
        assert outcome(func, m, k) == outcome(cut, m, k)


def test_what_a_loop_of_numbers_asks_stays_without_the_option():
    func = program("i * 4 + j < {n}", ("7", "21"), marked=True)
    cut = tir.transform.LoopPartition()(ir.IRModule({"main": func}))["main"]
    assert len(ir.find(cut.body, tir.IfThenElse)) == 1


@pytest.mark.parametrize("jump", ["break", "continue"])
@pytest.mark.parametrize("end", ["4", "m", "15"])
def test_a_loop_that_jumps_stays_whole(jump, end):
    func = script.from_source(f"""
@T.prim_func
def main(X: T.Buffer((64,), "int32"), Y: T.Buffer((64,), "int32"), m: T.int32, k: T.int32):
    for i in range(16):
        if T.likely(i < {end}):
            Y[i] = i
        if i % 13 == 2:
            {jump}
        Y[i] = Y[i] + 1
""")
    assert outcome(func, 6, 0) == outcome(cut_apart(func), 6, 0)
