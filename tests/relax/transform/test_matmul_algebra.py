"""Products reordered by algebra are the same products, whatever the ranks, sizes and broadcasts; and not more work."""

import re

import numpy as np
import pytest

from weft import ir, relax
from weft.relax.core_ops import is_op
from weft.relax.interpreter import evaluate
from weft.relax.rewriter import all_bindings
from weft.script import from_source

PASSES = {
    p: getattr(relax.transform, p)()
    for p in ("AdjustMatmulOrder", "ExpandMatmulOfSum", "ReorderTakeAfterMatmul", "ReorderPermuteDimsAfterConcat")
}
# Each operand with a letter for each dimension (i: of indices), under the pass that must have work to do.
PROGRAMS = {
    "AdjustMatmulOrder": """
        matmul(x__nk, matmul(a__km, b__mq))               matmul(matmul(x__nk, a__km), b__mq)
        matmul(x__k, matmul(a__km, b__mq))                matmul(matmul(x__nk, a__km), b__m)
        matmul(matmul(x__nk, a__k), b__nq)                matmul(x__k, matmul(a__pkm, b__pmq))
        matmul(x__pnk, matmul(a__1km, b__pmq))            matmul(matmul(x__pnk, a__km), b__omq)
        matmul(matmul(x__onk, a__pkm), b__mq)             matmul(x__nk, permute_dims(matmul(a__qm, b__mk)))
        matmul(x__knq, permute_dims(matmul(a__pqm, b__pmk)))
        matmul(permute_dims(matmul(x__pmk, a__pkn), axes=[0, 2, 1]), b__mq)
        matmul(x__knq, permute_dims(matmul(a__qm, b__pmk), axes=[2, 1, 0]))
        matmul(permute_dims(matmul(x__km, a__mn), axes=[1, 0]), matmul(b__km, c__mq))""",
    "ExpandMatmulOfSum": """
        matmul(x__nk, add(a__km, b__km))                  matmul(x__nk, permute_dims(add(a__mk, b__mk)))
        matmul(x__pnk, add(a__k, b__k))""",
    "ReorderTakeAfterMatmul": """
        matmul(x__pnk, take(a__kt, i__i, axis=1))         matmul(x__nk, take(a__pkt, i__i, axis=-1))
        matmul(x__ink, take(a__tkm, i__i, axis=-3))""",
    "ReorderPermuteDimsAfterConcat": """
        concat((permute_dims(x__nk), permute_dims(a__nk), permute_dims(x__nk)), axis=-1)
        concat((permute_dims(x__nkm, axes=[1, -1, 0]), permute_dims(a__nkp, axes=[1, 2, 0])), axis=1)""",
    "": """
        matmul(x__nk, add(a__km, b__1m))                  matmul(x__nk, add(a__m, b__km))
        matmul(x__1nk, take(a__tkm, i__i, axis=0))        matmul(x__ni, take(a__tm, i__i, axis=0))
        matmul(x__ni, take(a__t, i__i, axis=0))
        concat((permute_dims(x__kkk, axes=[1, 2, 0]), permute_dims(a__kkk)), axis=1)""",
}
CASES = [(e.strip(), name) for name, rows in PROGRAMS.items() for e in re.split(r"\n|  (?=\w)", rows) if e.strip()]


def program(expr, rng):
    """The program, and operands that are small integers, so that every order gives the same numbers exactly."""
    names = sorted(set(re.findall(r"\w+__\w+", expr)))
    size = {c: int(rng.integers(0 if c == "n" else 2, 7)) for c in "nkmqpit"} | {"1": 1, "o": 1}
    shapes = [tuple(size[c] for c in n.split("__")[1]) for n in names]
    types = ["int64" if n == "i__i" else "float64" for n in names]
    code = re.sub(r"(matmul|permute_dims|add|take|concat)\(", r"R.\1(", expr)
    params = ", ".join(f'{n}: R.Tensor({s}, "{t}")' for n, s, t in zip(names, shapes, types, strict=True))
    mod = from_source(f"@I.ir_module\nclass M:\n    @R.function\n    def main({params}):\n        return {code}\n")
    lows = [0 if t == "int64" else -4 for t in types]
    args = [
        rng.integers(low, size["t"] if t == "int64" else 5, s).astype(t)
        for low, t, s in zip(lows, types, shapes, strict=True)
    ]
    return mod, args


def multiplications(mod):
    values = [b.value for b in all_bindings(mod["main"]) if is_op(b.value, "matmul")]
    return sum(np.prod([ir.as_int(d) for d in (*v.ty.shape, v.args[0].ty.shape[-1])]) for v in values)


@pytest.mark.parametrize(("expr", "worker"), CASES)
def test_the_same_numbers(expr, worker):
    rng = np.random.default_rng(len(expr))
    for _ in range(6):
        mod, args = program(expr, rng)
        for name, p in PASSES.items():
            after = p(mod)
            np.testing.assert_array_equal(evaluate(after, *args)[0], evaluate(mod, *args)[0], err_msg=name)
            assert p(after)["main"] is after["main"]
            if name == "AdjustMatmulOrder":
                assert multiplications(after) <= multiplications(mod)
            else:
                assert (after["main"] is not mod["main"]) == (worker == name), name


@pytest.mark.parametrize(
    ("known", "result", "stays"), [(9, "y", False), (9, "(w, y)", True), (1, "y", True), (0, "y", True)]
)
def test_what_is_known_is_grouped_and_what_is_needed_twice_stays(known, result, stays):
    mod = from_source(f"""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((9, 1)), a: R.Tensor((9, 1)), b: R.Tensor((1, 9))):
        R.func_attr({{"num_input": {known}}})
        w = R.matmul(a, b)
        y = R.matmul(w, x)
        return {result}
""")
    assert (PASSES["AdjustMatmulOrder"](mod)["main"] is mod["main"]) == stays
