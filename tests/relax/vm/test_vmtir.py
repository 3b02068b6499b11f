"""Functions compiled to native code do what bytecode does: results, errors, libraries, text, instruments."""

import re

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.texts import named
from weft import error, relax
from weft.script import from_source

MODES = ["bytecode", "compiled"]
HEAD = "@I.ir_module\nclass Module:\n"

PROGRAMS = named("""
# static
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        a = R.add(x, y)
        b = R.nn.softmax(R.multiply(a, R.const(2.0, "float32")), axis=-1)
        c = R.matmul(R.permute_dims(b), a)
        return R.tanh(c)
# symbolic
    @R.function
    def main(x: R.Tensor(("n", 5), "float32"), y: R.Tensor(("n", 5), "float32")):
        a = R.add(x, y)
        b = R.nn.softmax(R.multiply(a, R.const(2.0, "float32")), axis=-1)
        return R.matmul(b, R.permute_dims(a))
# tuples
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        p = (R.add(x, y), (R.subtract(x, y), x))
        q = p[1]
        a = R.multiply(q[0], p[0])
        return (a, q[1], (a, R.add(a, a)))
# the parameter itself
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        return y
# a constant
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        return R.const(4.0, "float32")
# functions
    @R.function
    def twice(x: R.Tensor((3, 5), "float32")) -> R.Tensor((3, 5), "float32"):
        a = R.add(x, x)
        b = R.add(a, R.const(1.0, "float32"))
        return b
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        a = R.exp(x)
        b = cls.twice(a)
        c = R.multiply(cls.twice(y), b)
        return R.add(c, a)
# reshapes
    @R.function
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        a = R.reshape(R.add(x, y), (5, 3))
        b = R.matmul(a, R.add(x, x))
        c = R.reshape(b, (25,))
        return R.add(c, R.sum(y))
""")


def arguments(shape=(3, 5)):
    return list(np.random.default_rng(0).standard_normal((2, *shape), np.float32))


def flat(value):
    return [v for item in value for v in flat(item)] if isinstance(value, (tuple, list)) else [value.numpy()]


def same(found, expected):
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(f, e)


def machine(mod, exec_mode, **options):
    return relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=exec_mode, **options), weft.cpu())


@pytest.mark.parametrize("pipeline", ["default", "zero"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree(name, pipeline, tmp_path):
    """Both modes give equal bits, again when called again, and from a library."""
    mod = from_source(HEAD + PROGRAMS[name])
    expected = flat(machine(mod, "bytecode", relax_pipeline=pipeline)["main"](*arguments()))
    ex = relax.build(mod, "llvm", exec_mode="compiled", relax_pipeline=pipeline)
    vm = relax.VirtualMachine(ex, weft.cpu())
    first = flat(vm["main"](*arguments()))
    for _ in range(3):
        vm["main"](*arguments()[::-1])
        same(flat(vm["main"](*arguments())), expected)
    same(first, expected)  # later calls leave results alone
    ex.export_library(tmp_path / "model.so")
    loaded = relax.VirtualMachine(weft.runtime.load_module(str(tmp_path / "model.so")), weft.cpu())
    same(flat(loaded["main"](*arguments())), expected)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_symbolic_sizes(n):
    mod = from_source(HEAD + PROGRAMS["symbolic"])
    found, expected = (flat(machine(mod, m)["main"](*arguments((n, 5)))) for m in MODES)
    same(found, expected)


BRANCHES = """
    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        if c:
            b = R.multiply(a, x)
            if d:
                e = R.add(b, a)
            else:
                e = b
            f = R.subtract(e, x)
        else:
            f = a
        return R.add(f, a)
"""


@pytest.mark.parametrize("exec_mode", MODES)
@pytest.mark.parametrize("pipeline", ["default", "zero"])
def test_branches(exec_mode, pipeline):
    main = machine(from_source(HEAD + BRANCHES), exec_mode, relax_pipeline=pipeline)["main"]
    x = np.array([1, -2, 3, 0.5], np.float32)
    for c in (True, False):
        for d in (True, False):
            expected = ((x * x * 2 + 2 * x if d else x * x * 2) - x if c else 2 * x) + 2 * x
            np.testing.assert_allclose(main(np.array(c), np.array(d), x).numpy(), expected, rtol=1e-6)


def test_packed_functions_see_tensors():
    """A packed function takes and returns objects, and its error arrives unchanged."""
    seen = []

    def double(x, k, text):
        seen.append((x.numpy().copy(), k, text))
        if text == "fail":
            raise ValueError("the packed function's own words")
        return weft.runtime.tensor(x.numpy() * k)

    weft.register_func("test.vmtir.double", double, override=True)
    for text in ("go", "fail"):
        source = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((3, 5), "float32"), y: R.Tensor((3, 5), "float32")):
        a = R.add(x, y)
        b = R.call_packed("test.vmtir.double", a, R.prim_value(3), R.str("{text}"),
                          ty_args=R.Tensor((3, 5), "float32"))
        return R.add(b, a)
"""
        x, y = arguments()
        vm = machine(from_source(HEAD + source), "compiled", relax_pipeline="zero")
        if text == "fail":
            refuses(ValueError, "the packed function's own words", vm["main"], x, y)
        else:
            np.testing.assert_allclose(vm["main"](x, y).numpy(), 4 * (x + y), rtol=1e-6)
        np.testing.assert_array_equal(seen[-1][0], x + y)
        assert seen[-1][1:] == (3, text)


def text_of(call):
    caught = refuses((error.WeftError, TypeError, ValueError, RuntimeError), "", call)
    return type(caught), re.sub(r"0x[0-9a-f]+", "0x", str(caught))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: (x, y[:2]),
        lambda x, y: (x, y.astype(np.float64)),
        lambda x, y: (x, y[0]),
        lambda x, y: (x, 3),
        lambda x, y: (x,),
    ],
)
def test_wrong_arguments_are_told_alike(wrong):
    mod = from_source(HEAD + PROGRAMS["static"])
    found, expected = (text_of(lambda m=m: machine(mod, m)["main"](*wrong(*arguments()))) for m in MODES)
    assert found == expected


def test_text_and_table(tmp_path):
    """Text and statistics show the functions; the file keeps them; the code is found by its name."""
    ex = relax.build(from_source(HEAD + PROGRAMS["functions"]), "llvm", exec_mode="compiled")
    assert "@main num_inputs=2 vm_tir_func;" in ex.as_text() and "@twice num_inputs=1 vm_tir_func;" in ex.as_text()
    assert not len(ex.instr_offset) and "Globals (#" in ex.stats() and "main" in ex.stats()
    assert relax.VMExecutable.from_bytes(ex.bytes).functions == ex.functions
    ex.export_library(tmp_path / "model.so")
    assert weft.runtime.load_module(str(tmp_path / "model.so")).imports[0].implements_function("__vmtir__main")


def test_instrument_sees_compiled_functions():
    """An instrument is told of each call of a compiled function, not of what it does inside; it may skip it."""
    vm = machine(from_source(HEAD + PROGRAMS["functions"]), "compiled")
    calls = []

    def instrument(func, name, before, ret, *args):
        calls.append((name, before, len(args)))
        return 0

    vm.set_instrument(instrument)
    vm["main"](*arguments())
    inner = [("twice", True, 1), ("twice", False, 1)]
    assert calls == [("main", True, 2), *inner, *inner, ("main", False, 2)]
    vm.set_instrument(lambda func, name, before, *rest: 1)
    assert vm["main"](*arguments()) is None
    vm.set_instrument(None)
    assert [c.name for c in vm.profile("main", *arguments()).calls] == ["main", "twice", "twice"]


def test_depth_is_limited():
    source = """
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.add(x, x)
        b = cls.main(a)
        c = R.add(b, a)
        return c
"""
    for mode in MODES:
        with pytest.raises(RecursionError, match="nested calls fill this thread's stack"):
            machine(from_source(HEAD + source), mode)["main"](np.ones(4, np.float32))


def test_unknown_mode():
    with pytest.raises(weft.error.InvalidArgument, match="exec_mode 'interpreted'"):
        relax.build(from_source(HEAD + PROGRAMS["static"]), "llvm", exec_mode="interpreted")
