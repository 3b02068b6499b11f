"""Recursion, closures, nested ifs, effects and several devices, from TVMScript to the virtual machine."""

import os
import re
import sys

import numpy as np
import pytest

import weft
from tests import clock
from weft import relax, script
from weft.relax.analysis import well_formed

HEAD = "@I.ir_module\nclass Module:\n"
N = 'R.Tensor(("n",), "float32")'
BOOL, INT = 'R.Tensor((), "bool")', 'R.Tensor((), "int64")'


def machine(source, devices=None, exec_mode="bytecode"):
    mod = script.from_source(HEAD + source)
    well_formed(mod)
    well_formed(script.from_source(mod.script(show_meta=True)))
    return relax.VirtualMachine(weft.compile(mod, target="llvm", exec_mode=exec_mode), devices or weft.cpu())


def run(source, *args, devices=None, name="main", exec_mode="bytecode"):
    return plain(machine(source, devices, exec_mode)[name](*args))


def plain(value):
    return tuple(map(plain, value)) if isinstance(value, tuple) else value.numpy()


MUTUAL = f"""
    @R.function
    def main(x: {INT}) -> {BOOL}:
        r = Module.even(x)
        return r
"""
for head, name, other in ("", "even", "odd"), ("(private=True)", "odd", "even"):
    MUTUAL += f"""
    @R.function{head}
    def {name}(x: {INT}) -> {BOOL}:
        z = R.equal(x, R.const(0, "int64"))
        if z:
            r = R.const({name == "even"}, "bool")
        else:
            y = R.subtract(x, R.const(1, "int64"))
            r = Module.{other}(y)
        return r
"""


MODES = pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])


@MODES
@pytest.mark.parametrize("n", [0, 1, 40, 30_001])
def test_mutual_recursion(n, exec_mode):
    assert bool(run(MUTUAL, np.array(n), exec_mode=exec_mode)) is (n % 2 == 0)


FUNCTIONS_AS_STATE = f"""
    @R.function
    def main(x: {INT}) -> {INT}:
        r = Module.ping(x, Module.pong)
        return r

    @R.function(private=True)
    def ping(x: {INT}, f: R.Callable(({INT},), {INT}, True)) -> {INT}:
        z = R.equal(x, R.const(0, "int64"))
        if z:
            r = R.const(5, "int64")
        else:
            y = R.subtract(x, R.const(1, "int64"))
            r = f(y)
        return r

    @R.function(private=True)
    def pong(x: {INT}) -> {INT}:
        r = Module.ping(x, Module.pong)
        return r
"""


@MODES
def test_tail_calls_of_functions_that_are_passed(exec_mode):
    assert run(FUNCTIONS_AS_STATE, np.array(30_001), exec_mode=exec_mode) == 5


SUM = f"""
    @R.function
    def main(x: {INT}) -> {INT}:
        z = R.equal(x, R.const(0, "int64"))
        if z:
            r = x
        else:
            y = R.subtract(x, R.const(1, "int64"))
            s = Module.main(y)
            r = R.add(s, x)
        return r
"""


@MODES
def test_recursion_that_is_no_tail_call_has_the_depth_of_its_threads_stack(exec_mode):
    """In a process of its own, which a stack that overflows would take down."""
    code = (
        "import threading\nfrom tests.relax.test_control_flow import SUM, machine, np\n"
        f"total = machine(SUM, exec_mode={exec_mode!r})['main']\n"
        "def check(deep):\n"
        "    assert total(np.array(deep)).numpy() == deep * (deep + 1) // 2\n"
        "    try:\n        total(np.array(1_000_000))\n"
        "    except RecursionError as e:\n        print(e)\n"
        "for kilobytes, deep in ((0, 900), (64, 9), (1 << 13, 3_000)):\n"
        "    threading.stack_size(kilobytes << 10)\n"
        "    thread = threading.Thread(target=check, args=(deep,))\n    thread.start()\n    thread.join()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = clock.run([sys.executable, "-c", code], env=env)
    lines = out.stdout.splitlines()
    assert len(lines) == 6, out.stderr
    for message, place in zip(lines[::2], lines[1::2], strict=True):
        assert re.fullmatch(r"main: more than \d+ nested calls fill this thread's stack", message), out.stderr
        assert place.startswith("  --> <script "), place


def test_groups_of_recursive_functions():
    groups = relax.analysis.detect_recursion(script.from_source(HEAD + MUTUAL))
    assert [[v.name_hint for v in g] for g in groups] == [["even", "odd"]]


LOOP = f"""
    @R.function
    def main(x: {N}, k: {INT}) -> {N}:
        n = T.int64()

        @R.function
        def loop(i: {INT}, acc: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            c = R.less(i, k)
            if c:
                j = R.add(i, R.const(1, "int64"))
                a = R.add(acc, x)
                r = loop(j, a)
            else:
                r = acc
            return r

        z = R.zeros((n,), "float32")
        out = loop(R.const(0, "int64"), z)
        return out
"""


@pytest.mark.parametrize("n", [1, 5, 0])
@pytest.mark.parametrize("k", [0, 3])
def test_recursive_closures_with_symbolic_sizes(n, k):
    x = np.arange(n, dtype="float32")
    np.testing.assert_allclose(run(LOOP, x, np.array(k)), k * x)


RETURNED = f"""
    @R.function
    def main(c: {BOOL}, x: {N}, y: {N}):
        n = T.int64()

        @R.function
        def add(v: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            w = R.add(v, x)
            return w

        @R.function
        def mul(v: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            w = R.multiply(v, x)
            s = R.multiply(w, R.full((n,), R.const(2.0, "float32"), "float32"))
            return s

        if c:
            f = add
        else:
            f = mul
        r = f(y)
        t = (f(r), r)
        return t
"""


@pytest.mark.parametrize("c", [True, False])
def test_closures_chosen_at_run_time(c):
    x, y = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    f = (lambda v: v + x) if c else (lambda v: v * x * 2)
    found = run(RETURNED, np.array(c), x, y)
    np.testing.assert_allclose(found[0], f(f(y)))
    np.testing.assert_allclose(found[1], f(y))


TUPLES = f"""
    @R.function
    def main(c: {BOOL}, d: {BOOL}, x: {N}):
        if c:
            a = R.add(x, x)
            if d:
                p = (a, (x, a))
            else:
                b = R.multiply(a, a)
                p = (b, (a, x))
            r = p
        else:
            r = (x, (x, x))
        u = r[1]
        v = u[0]
        w = R.add(v, r[0])
        return (w, r)
"""


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
def test_nested_ifs_with_tuples(c, d):
    x = np.float32([1, 2, 3])
    a = x + x
    r = ((a, (x, a)) if d else (a * a, (a, x))) if c else (x, (x, x))
    found, whole = run(TUPLES, np.array(c), np.array(d), x)
    np.testing.assert_allclose(found, r[0] + r[1][0])
    np.testing.assert_allclose(whole[0], r[0])
    np.testing.assert_allclose(whole[1][0], r[1][0])
    np.testing.assert_allclose(whole[1][1], r[1][1])


def test_effects_happen_in_order(capfd):
    source = f"""
    @R.function(pure=False)
    def main(c: {BOOL}, x: {N}):
        _ = R.print(format="first")
        if c:
            _1 = R.print(x, format="x is {{}}")
            y = Module.told(x)
        else:
            y = x
        _2 = R.print(format="last")
        return y

    @R.function(pure=False)
    def told(x: {N}) -> {N}:
        _ = R.print(format="told")
        _1 = R.assert_op(R.const(True, "bool"), format="never")
        return x
"""
    run(source, np.array(True), np.float32([1]))
    assert capfd.readouterr().out.split() == ["first", "x", "is", "[1.]", "told", "last"]


def test_failing_assertions_in_forced_functions():
    source = f"""
    @R.function
    def main(x: {N}):
        n = T.int64()
        R.func_attr({{"relax.force_pure": True}})
        c = R.less(R.sum(x), R.const(10.0, "float32"))
        _ = R.assert_op(c, x, format="the sum of {{}} is too large")
        return x
"""
    run(source, np.float32([1, 2]))
    with pytest.raises(Exception, match=r"the sum of \[10. 20.\] is too large"):
        run(source, np.float32([10, 20]))


DEVICES = """
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor(("n", 4), "float32", "llvm:0"), w: R.Tensor((4, 4), "float32", "llvm:1")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.matmul(b, w)
            d = R.to_vdevice(c, "llvm:0")
            e = R.add(d, x)
            R.output(c, e)
        return (c, e)
"""


def test_two_devices():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4), np.float32), rng.standard_normal((4, 4), np.float32)
    c, e = run(DEVICES, x, w, devices=[weft.cpu(0), weft.cpu(1)])
    np.testing.assert_allclose(c, 2 * x @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(e, 2 * x @ w + x, rtol=1e-5, atol=1e-6)


def test_copies_between_devices_are_instructions():
    text = weft.compile(script.from_source(HEAD + DEVICES), target="llvm").as_text()
    calls = [line for line in text.splitlines() if line.startswith("  call  vm.builtin.to_device")]
    copies = [line.split("in:")[1].split("dst")[0].split(", ")[1:] for line in calls]
    assert [[w.strip() for w in words] for words in copies] == [["i1", "i1"], ["i1", "i0"]]
