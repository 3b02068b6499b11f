"""Closures and recursion, from TVMScript to the virtual machine."""

import numpy as np
import pytest

import weft
from weft import ir, relax
from weft.ir.spec import violations
from weft.relax.analysis.well_formed import WELL_FORMED
from weft.script import from_source

HEAD = "@I.ir_module\nclass Module:\n"

MAIN = f"""{HEAD}
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
"""

SUM_AND_PRODUCT = """\
        @R.function
        def f(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(z, x)
        @R.function
        def g(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.multiply(z, y)
"""

CAPTURES = f"""{MAIN}\
        @R.function
        def inner(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.subtract(z, x)
        a = inner(y)
        return a
"""

RECURSION = f"""{MAIN}\
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

NOTHING_CAPTURED = f"""{MAIN}\
        @R.function
        def double(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return R.add(z, z)
        a = double(x)
        b = double(a)
        return b
"""

NESTED = f"""{MAIN}\
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

SYMBOLIC_ONLY = f"""{MAIN}\
        @R.function
        def inner(z: R.Tensor((), "float32")) -> R.Tensor((n,), "float32"):
            return R.broadcast_to(z, (n,))
        a = inner(R.const(3.0, "float32"))
        return a
"""

TUPLE = f"""{MAIN}{SUM_AND_PRODUCT}\
        t = (f, g)
        h = t[1]
        a = h(x)
        k = t[0]
        b = k(a)
        return b
"""

MUTUAL = f"""{HEAD}
    @R.function
    def even(i: R.Tensor((), "int64"), acc: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        c: R.Tensor((), "bool") = R.greater(i, R.const(0, "int64"))
        if c:
            r: R.Tensor((n,), "float32") = cls.odd(R.subtract(i, R.const(1, "int64")), R.add(acc, acc))
        else:
            r = acc
        return r
    @R.function
    def odd(i: R.Tensor((), "int64"), acc: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        c: R.Tensor((), "bool") = R.greater(i, R.const(0, "int64"))
        if c:
            r: R.Tensor((n,), "float32") = cls.even(
                R.subtract(i, R.const(1, "int64")), R.add(acc, R.const(1.0, "float32"))
            )
        else:
            r = acc
        return r
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        a: R.Tensor((n,), "float32") = cls.even(R.const(4, "int64"), x)
        return a
"""

CURRIED = f"""{MAIN}\
        @R.function
        def f(z: R.Tensor((n,), "float32")) -> R.Callable(
            (R.Tensor((n,), "float32"),), R.Tensor((n,), "float32"), True
        ):
            @R.function
            def g(w: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                return R.subtract(R.add(w, z), x)
            return g
        h = f(y)
        a = h(y)
        return a
"""

GLOBAL_VALUE = f"""{HEAD}
    @R.function
    def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(x, x)
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        f = cls.twice
        @R.function
        def inner(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return cls.twice(z)
        return R.add(f(x), inner(y))
"""

BRANCH = f"""{HEAD}
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32"),
             c: R.Tensor((), "bool")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
{SUM_AND_PRODUCT}\
        if c:
            h = f
        else:
            h = g
        a = h(x)
        return a
"""

RETURNED = f"""{HEAD}
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Any:
        n = T.int64()
        @R.function
        def f(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            @R.function
            def g(w: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                return R.add(R.add(w, z), x)
            return g(y)
        return f
"""

PROGRAMS = {
    "captures": (CAPTURES, lambda x, y: y - x),
    "recursion": (RECURSION, lambda x, y: y + 5 * x),
    "nothing captured": (NOTHING_CAPTURED, lambda x, y: 4 * x),
    "nested": (NESTED, lambda x, y: y * x + y),
}
MORE = {
    "symbolic size only": (SYMBOLIC_ONLY, lambda x, y: 3 + 0 * x),
    "closures in a tuple": (TUPLE, lambda x, y: x * y + x),
    "mutual recursion": (MUTUAL, lambda x, y: 2 * (2 * x + 1) + 1),
    "a closure returned and called": (CURRIED, lambda x, y: 2 * y - x),
    "a function of the module as a value, and called inside": (GLOBAL_VALUE, lambda x, y: 2 * x + 2 * y),
}
ALL = {**PROGRAMS, **MORE}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_programs_run(exec_mode, name):
    source, expected = ALL[name]
    vm = relax.VirtualMachine(weft.compile(from_source(source), target="llvm", exec_mode=exec_mode), weft.cpu())
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
    assert all(isinstance(b, relax.SeqExpr) for b in bodies)
    assert not [b for s in bodies for block in s.blocks for b in block.bindings if isinstance(b.value, ir.Function)]
    assert not violations(out, WELL_FORMED)
    again = relax.transform.lambda_lift()(out)
    assert all(again[v] is out[v] for v in out.functions)
    assert not ir.structural_equal(mod, out)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_a_branch_chooses_a_closure(exec_mode, first):
    vm = relax.VirtualMachine(weft.compile(from_source(BRANCH), target="llvm", exec_mode=exec_mode), weft.cpu())
    x, y = np.random.default_rng(0).standard_normal((2, 5), np.float32)
    found = vm["main"](*[weft.runtime.tensor(v) for v in (x, y, np.array(first))]).numpy()
    np.testing.assert_allclose(found, 2 * x if first else x * y, rtol=1e-5)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_a_closure_is_called_from_outside(exec_mode):
    vm = relax.VirtualMachine(weft.compile(from_source(RETURNED), target="llvm", exec_mode=exec_mode), weft.cpu())
    for n in (0, 1, 7):
        x, y, z = np.random.default_rng(n).standard_normal((3, n), np.float32)
        closure = vm["main"](weft.runtime.tensor(x), weft.runtime.tensor(y))
        found = vm.invoke_closure(closure, weft.runtime.tensor(z)).numpy()
        np.testing.assert_allclose(found, y + z + x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_symbolic_sizes_of_built_functions_are_captured(exec_mode):
    n = ir.Var("n", "int64")
    x, z = relax.Var("x", ir.tensor_type((n,), "float32")), relax.Var("z", ir.tensor_type((), "float32"))
    bb = relax.BlockBuilder()
    inner = ir.Function((z,), relax.op.broadcast_to(z, (n,)), ir.tensor_type((n,), "float32"))
    with bb.function("main", [x]):
        f = bb.emit(inner)
        bb.emit_func_output(bb.emit(relax.Call(f, (relax.const(2.0, "float32"),))))
    vm = relax.VirtualMachine(weft.compile(bb.get(), target="llvm", exec_mode=exec_mode), weft.cpu())
    np.testing.assert_array_equal(vm["main"](weft.runtime.tensor(np.zeros(3, np.float32))).numpy(), [2, 2, 2])
