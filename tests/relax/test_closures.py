"""Closures and recursion, from TVMScript to the virtual machine."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import relax
from weft.ir import Function, structural_equal
from weft.ir.spec import violations
from weft.relax.analysis.well_formed import WELL_FORMED
from weft.relax.expr import SeqExpr
from weft.script import from_source

HEAD = "@I.ir_module\nclass Module:\n"

CAPTURES = (
    HEAD
    + """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        @R.function
        def inner(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.subtract(z, x)
        a = inner(y)
        return a
"""
)

RECURSION = (
    HEAD
    + """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        @R.function
        def count(i: R.Tensor((), "int64"), acc: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            c: R.Tensor((), "bool") = R.greater(i, R.const(0, "int64"))
            if c:
                j = R.subtract(i, R.const(1, "int64"))
                a = R.add(acc, x)
                r: R.Tensor((n,), "float32") = count(j, a)
            else:
                r = acc
            return r
        b = count(R.const(5, "int64"), y)
        return b
"""
)

NOTHING_CAPTURED = (
    HEAD
    + """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        @R.function
        def double(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(z, z)
        a = double(x)
        b = double(a)
        return b
"""
)

NESTED = (
    HEAD
    + """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        @R.function
        def outer(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            @R.function
            def inner(w: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                p = R.multiply(w, x)
                return R.add(p, z)
            q = inner(y)
            return q
        a = outer(y)
        return a
"""
)

PROGRAMS = {
    "captures": (CAPTURES, lambda x, y: y - x),
    "recursion": (RECURSION, lambda x, y: y + 5 * x),
    "nothing captured": (NOTHING_CAPTURED, lambda x, y: 4 * x),
    "nested": (NESTED, lambda x, y: y * x + y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name):
    source, expected = PROGRAMS[name]
    vm = relax.VirtualMachine(weft.compile(from_source(source), target="llvm"), weft.cpu())
    for n in (0, 1, 7):
        x, y = np.random.default_rng(n).standard_normal((2, n), np.float32)
        found = vm["main"](weft.runtime.tensor(x), weft.runtime.tensor(y)).numpy()
        np.testing.assert_allclose(found, expected(x, y), rtol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_inner_function_is_left(name):
    mod = from_source(PROGRAMS[name][0])
    out = relax.transform.lambda_lift()(mod)
    bodies = [f.body for f in out.functions.values()]
    assert len(bodies) == (3 if name == "nested" else 2)
    assert all(isinstance(b, SeqExpr) for b in bodies)
    assert not [b for s in bodies for block in s.blocks for b in block.bindings if isinstance(b.value, Function)]
    assert not violations(out, WELL_FORMED)
    again = relax.transform.lambda_lift()(out)
    assert all(again[v] is out[v] for v in out.functions)
    assert not structural_equal(mod, out)
