"""Kernels of symbolic shapes are compiled for the shapes that stay hot, behind everybody's back."""

import os
import sys
import threading

import numpy as np
import pytest

import weft
from tests.arrays import floats
from tests.clock import eventually, run
from tests.refusals import refuses
from tests.relax_models import computed
from tests.threads import at_once
from weft import relay
from weft.relay.vm import VirtualMachine
from weft.runtime import jit

rand = floats(np.random.default_rng(0))


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A shape is hot after 32 calls, however short."""
    monkeypatch.setattr(jit, "HOT_CALLS", 32)
    monkeypatch.setattr(jit, "HOT_NS", 1)


@pytest.fixture
def softmax():
    x = relay.var("x", relay.TensorType((relay.Any(), relay.Any()), "float32"))
    return relay.vm.compile(weft.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x))), "llvm")


def run_until(vm, *args, states=("specialised", "slower"), seconds=60):
    """Run until there is a shape in one of the states; the shapes."""
    return eventually(
        lambda: [vm.run(*args) for _ in range(50)] and [h for h in vm.hot_shapes() if h.state in states], seconds
    )


def test_hot_shape_gets_a_kernel_and_others_do_not(softmax):
    vm, x = VirtualMachine(softmax, weft.cpu(), jit=True), rand(5, 37)
    (hot,) = run_until(vm, x)
    assert hot.shape == (5, 37) and hot.calls >= 32
    for shape in ((5, 37), (1, 37), (5, 36), (3, 1), (0, 4)):
        y = rand(*shape)
        np.testing.assert_allclose(vm.run(y).numpy(), computed("nn.softmax", y) if y.size else y, rtol=1e-5, atol=1e-6)
    states = {h.shape: h.state for h in vm.hot_shapes()}
    assert states[1, 37] == "counting"


def test_profile_tells(softmax):
    vm, x = VirtualMachine(softmax, weft.cpu(), jit=True), rand(4, 33)
    run_until(vm, x)
    before = next(h for h in vm.hot_shapes() if h.shape == (4, 33))
    report = vm.profile(x)
    (found,) = [h for h in report.hot_shapes if h.shape == (4, 33)]
    assert found.calls == before.calls + 1
    if found.state == "specialised":
        assert found.specialised_calls == before.specialised_calls + 1
        assert f"{found.name}[4, 33]: a kernel of its own, {found.specialised_calls:,} of" in str(report)


def test_switched_off(softmax, monkeypatch):
    vm = VirtualMachine(softmax, weft.cpu(), jit=False)
    monkeypatch.setenv("WEFT_JIT", "0")
    other = VirtualMachine(softmax, weft.cpu())
    for m in (vm, other):
        for _ in range(100):
            m.run(rand(2, 3))
        assert m.hot_shapes() == []
    assert VirtualMachine(softmax, weft.cpu(), jit=True).run(rand(2, 3)).shape == (2, 3)


def test_thresholds(softmax, monkeypatch):
    monkeypatch.setattr(jit, "HOT_NS", 10**12)
    vm = VirtualMachine(softmax, weft.cpu(), jit=True)
    for _ in range(200):
        vm.run(rand(2, 3))
    (row,) = vm.hot_shapes()
    assert row.state == "counting" and row.calls == 200 and row.best_us > 0 and row.specialised_best_us is None


def test_failed_compilation_leaves_the_kernel(softmax, monkeypatch):
    def broken(shape):
        raise RuntimeError("no such luck")

    for name, kernel in softmax.recompilable.items():
        monkeypatch.setitem(softmax.recompilable, name, kernel._replace(compile=broken))
    vm, x = VirtualMachine(softmax, weft.cpu(), jit=True), rand(3, 3)
    run_until(vm, x, states=("failed",))
    np.testing.assert_allclose(vm.run(x).numpy(), computed("nn.softmax", x), rtol=1e-5)
    assert any("no such luck" in str(e) for e in jit._COMPILER.errors)


def test_calls_do_not_wait_for_the_compiler(softmax, monkeypatch):
    go, seen = threading.Event(), threading.Event()
    for name, kernel in softmax.recompilable.items():

        def slow(shape, compile=kernel.compile):
            seen.set()
            go.wait(60)
            return compile(shape)

        monkeypatch.setitem(softmax.recompilable, name, kernel._replace(compile=slow))
    vm, x = VirtualMachine(softmax, weft.cpu(), jit=True), rand(6, 9)
    while not seen.is_set():
        vm.run(x)
    for _ in range(200):
        vm.run(x)
    assert vm.hot_shapes()[0].state == "requested"
    go.set()
    run_until(vm, x)


def test_many_threads(softmax):
    vm = VirtualMachine(softmax, weft.cpu(), jit=True)
    inputs = [rand(i + 1, 8 + i) for i in range(4)]
    expected = [computed("nn.softmax", x) for x in inputs]
    wrong = []

    def work(i):
        for k in range(600):
            j = (i + k) % 4 if k % 5 == 0 else i
            if not np.allclose(vm.run(inputs[j]).numpy(), expected[j], rtol=1e-4, atol=1e-6):
                wrong.append((i, k))

    at_once(work, 4)
    assert not wrong
    run_until(vm, inputs[0])


def test_rare_shapes_are_not_compiled(softmax):
    """Calls of very many shapes: each runs as before, and none is asked for."""
    vm = VirtualMachine(softmax, weft.cpu(), jit=True)
    for n in range(1, 200):
        x = rand(1, n)
        np.testing.assert_allclose(vm.run(x).numpy(), computed("nn.softmax", x), rtol=1e-5, atol=1e-6)
    rows = vm.hot_shapes()
    assert 30 < len(rows) <= 64 and all(h.state == "counting" for h in rows)


def test_products_stay_as_they_are():
    """Their tiles take symbolic rows as they are, and compiling them would take a core for seconds."""
    x, w = relay.var("x", relay.TensorType((relay.Any(), 48), "float32")), rand(40, 48)
    y = relay.nn.relu(relay.nn.dense(x, relay.const(w)))
    exe = relay.vm.compile(weft.IRModule.from_expr(relay.Function([x], y)), "llvm")
    vm = VirtualMachine(exe, weft.cpu(), jit=True)
    for m in (1, 7):
        a = rand(m, 48)
        for _ in range(300):
            vm.run(a)
        assert not vm.hot_shapes()
        np.testing.assert_allclose(vm.run(a).numpy(), np.maximum(a @ w.T, 0), rtol=1e-4, atol=1e-4)


def test_wrong_arguments_are_errors_still(softmax):
    vm, x = VirtualMachine(softmax, weft.cpu(), jit=True), rand(5, 6)
    run_until(vm, x)
    refuses(ValueError, "expected 2, found 3", vm.run, np.zeros((5, 6, 7), np.float32))
    refuses((TypeError, ValueError), "", vm.run, x.astype(np.int8))
    np.testing.assert_allclose(vm.run(x).numpy(), computed("nn.softmax", x), rtol=1e-5)


def test_machines_come_and_go(softmax):
    before = len(jit._COMPILER.kernels)
    for _ in range(5):
        vm = VirtualMachine(softmax, weft.cpu(), jit=True)
        for _ in range(40):
            vm.run(rand(2, 5))
        del vm
    assert len(jit._COMPILER.kernels) == before


def test_process_ends_while_the_compiler_works(tmp_path):
    program = """
import numpy as np, weft
from weft import relay
from weft.runtime import jit
jit.HOT_CALLS, jit.HOT_NS = 32, 1
x = relay.var("x", relay.TensorType((relay.Any(), relay.Any()), "float32"))
exe = relay.vm.compile(weft.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x))), "llvm")
vm = relay.vm.VirtualMachine(exe, weft.cpu())
while vm.run(np.ones((3, 5), "float32")) and vm.hot_shapes()[0].state == "counting":
    pass
print("asked")
"""
    env = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path)}
    done = run([sys.executable, "-c", program], env=env)
    assert done.returncode == 0 and done.stdout == "asked\n", done.stderr
