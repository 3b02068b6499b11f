"""Loops with ``break`` and ``continue``: the interpreter, passes by name, code of two targets and Python agree."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import build, error, ir, tir
from weft.script import from_source

BODIES = {
    "nested, both": """for i in range(n):
    if A[i] == 3:
        continue
    B[i] = 1
    for j in range(4):
        if j == 1:
            continue
        B[i] = B[i] + j
        if A[i] > 6:
            break
        B[i] = B[i] * 2
    if B[i] > 20:
        break
    B[i] = B[i] + 100""",
    "a while": """k[0] = 0
while k[0] < n:
    k[0] = k[0] + 1
    if A[k[0] - 1] > 7:
        B[k[0] - 1] = 9
        break
    elif A[k[0] - 1] > 4:
        continue
    else:
        B[k[0] - 1] = 5""",
    "one iteration, and dead code": """for i in range(1):
    if n < 3:
        break
    B[0] = 7
for i in range(1):
    if n > 3:
        continue
    B[1] = 8
for i in range(2, n):
    B[i] = 3
    break
    B[i] = 4""",
}
PASSES = ("UnrollLoop", "Simplify", "simplify", "LowerOpaqueBlock", "RemoveNoOp", "LoopPartition")


def program(body):
    return from_source(
        """@T.prim_func
def f(n: T.int32, a: T.handle, B: T.Buffer((8,), "int32")):
    A = T.match_buffer(a, (n,), "int32")
    k = T.alloc_buffer((1,), "int32")
"""
        + "\n".join("    " + line for line in body.splitlines())
    )


@pytest.mark.parametrize("name", BODIES)
def test_what_runs_is_what_python_runs(name):
    func = program(BODIES[name])
    ir.assert_structural_equal(from_source(func.script()), func)
    with ir.PassContext(config={"tir.UnrollLoop": {"auto_max_step": 64, "explicit_unroll": True}}):
        passed = [getattr(tir.transform, p)()(ir.IRModule({"f": func}))["f"] for p in PASSES]
    runs = [lambda *args, f=f: tir.interpret(f, *args) for f in (func, *passed)]
    runs += [build(func, target=t)["f"] for t in ("llvm", "c")]
    for values in ([1, 2, 6, 3], [], [0, 3, 4, 2, 8, 1, 3], [7], [1, 1, 1, 5, 2]):
        a, expected = np.array(values, "int32"), np.zeros(8, "int32")
        exec(BODIES[name], {"A": a, "B": expected, "n": len(a), "k": np.zeros(1, int)})
        for run in runs:
            got = np.zeros(8, "int32")
            run(len(a), a, got)
            np.testing.assert_array_equal(got, expected)


def test_what_is_refused():
    refuses(error.ParseError, "written out", program, "for i in [1, 2]:\n    break")
    for kind in ("parallel", "vectorized", "unroll"):
        with pytest.raises(error.LoweringError, match="'i' has 'break'"):
            build(program(f"for i in T.{kind}(4):\n    if A[i] == 0:\n        break\n    B[i] = 1"), target="llvm")
    refuses(error.LoweringError, "outside of a loop", build, program("T.evaluate(T.break_loop())"), target="llvm")
    schedule = tir.Schedule(
        program('for i in range(4):\n    if A[i] == 0:\n        break\n    with T.block("b"):\n        B[i] = 1')
    )
    refuses(error.ScheduleError, "'break'", schedule.get_loops, "b")
