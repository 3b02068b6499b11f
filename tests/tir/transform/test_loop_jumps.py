"""Loops with ``break`` and ``continue``: the interpreter, code of two targets and Python agree."""

import numpy as np
import pytest

from weft import build, error, ir, runtime, tir
from weft.ir import IRModule, assert_structural_equal
from weft.script import from_source
from weft.tir.interpret import interpret

BODIES = {
    "leaves a for": """for i in range(n):
    if A[i] > 5:
        break
    B[i] = A[i] + 1""",
    "nested, both": """for i in range(n):
    if A[i] == 3:
        continue
    B[i] = 1
    for j in range(n):
        if j == 1:
            continue
        B[i] = B[i] + A[j]
        if A[j] > 6:
            break
        B[i] = B[i] * 2
    B[i] = B[i] + 100""",
    "the last of a while": """k[0] = 0
while k[0] < n:
    k[0] = k[0] + 1
    if A[k[0] - 1] == 2:
        continue
    if A[k[0] - 1] > 7:
        B[k[0] - 1] = 9
        break
    elif A[k[0] - 1] > 4:
        B[k[0] - 1] = 7
        continue
    else:
        B[k[0] - 1] = 5""",
    "one iteration": """for i in range(1):
    if n < 3:
        break
    B[0] = 7
for i in range(1):
    if n > 3:
        continue
    B[1] = 8""",
    "at once": """for i in range(n):
    B[i] = 3
    break
    B[i] = 4
for i in range(2, n):
    continue
    B[i] = 5""",
}


def program(body):
    lines = "\n".join("    " + line for line in body.splitlines())
    return from_source(f"""@T.prim_func
def f(n: T.int32, a: T.handle, b: T.handle):
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (8,), "int32")
    k = T.alloc_buffer((1,), "int32")
{lines}""")


@pytest.mark.parametrize("name", BODIES)
def test_what_runs_is_what_python_runs(name):
    func = program(BODIES[name])
    assert_structural_equal(from_source(func.script()), func)
    kernels = [build(func, target=t)["f"] for t in ("llvm", "c")]
    for values in ([1, 2, 6, 3], [], [0, 3, 4, 2, 8, 1, 3], [7], [1, 1, 1, 5, 2]):
        a, expected = np.array(values, "int32"), np.zeros(8, "int32")
        exec(BODIES[name], {"A": a, "B": expected, "n": len(a), "k": np.zeros(1, int)})
        got = np.zeros(8, "int32")
        interpret(func, len(a), a, got)
        np.testing.assert_array_equal(got, expected)
        for kernel in kernels:
            out = runtime.tensor(np.zeros(8, "int32"))
            kernel(len(a), runtime.tensor(a), out)
            np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize(
    "make", ["UnrollLoop", "Simplify", "simplify", "LowerOpaqueBlock", "RemoveNoOp", "LoopPartition"]
)
@pytest.mark.parametrize("body", ["one iteration", "nested, both"])
def test_passes_by_name_leave_such_loops(make, body):
    func = program(BODIES[body].replace("range(n)", "range(4)"))
    with ir.PassContext(config={"tir.UnrollLoop": {"auto_max_step": 64, "explicit_unroll": True}}):
        after = getattr(tir.transform, make)()(IRModule({"f": func}))["f"]
    a, got, expected = np.array([4, 3, 9, 1], "int32"), np.zeros(8, "int32"), np.zeros(8, "int32")
    interpret(after, 4, a, got)
    interpret(func, 4, a, expected)
    np.testing.assert_array_equal(got, expected)


def test_what_is_refused():
    with pytest.raises(error.ParseError, match="written out"):
        program("for i in [1, 2]:\n    break")
    for kind in ("parallel", "vectorized", "unroll"):
        with pytest.raises(error.LoweringError, match="'i' has 'break'"):
            build(program(f"for i in T.{kind}(4):\n    if A[i] == 0:\n        break\n    B[i] = 1"), target="llvm")
    with pytest.raises(error.LoweringError, match="outside of a loop"):
        build(program("T.evaluate(T.break_loop())"), target="llvm")
    func = program('for i in range(4):\n    if A[i] == 0:\n        break\n    with T.block("b"):\n        B[i] = 1')
    schedule = tir.Schedule(func)
    for change in (lambda: schedule.get_loops("b"), lambda: schedule.compute_inline("b")):
        with pytest.raises(error.ScheduleError, match="'break'"):
            change()
