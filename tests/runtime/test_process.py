"""The process around the machine: memory over many calls, forks, and Python threads beside native code."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tvm_ffi

from tests.runtime.programs import HERE, Assembler, add_twice, include_flags, r
from weft import runtime

_statistics = tvm_ffi.get_global_func("weft.pool_statistics")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def live_bytes():
    return int(_statistics()[0])


@linux
def test_memory_does_not_grow_over_calls_at_changing_shapes():
    machine = runtime.VirtualMachine(add_twice(3))
    main = machine["main"]
    inputs = [runtime.tensor(np.ones((rows, 4), np.float32)) for rows in (1, 3, 17, 200, 1000, 30_000)]

    def calls(n):
        for i in range(n):
            main(inputs[i % 6] if i % 60 > 5 else inputs[i % 5])

    calls(1000)
    before, live = resident_bytes(), live_bytes()
    calls(10_000)
    assert resident_bytes() - before < 2 << 20
    assert live_bytes() == live


def test_memory_of_a_result_is_given_back_after_the_call():
    machine = runtime.VirtualMachine(add_twice(3))
    x = runtime.tensor(np.ones((50_000, 4), np.float32))
    machine["main"](x)
    before = live_bytes()
    result = machine["main"](x)
    held = live_bytes() - before
    assert x.nbytes <= held < 2 * x.nbytes  # the result, and no tensor of the way to it
    del result
    assert live_bytes() == before


def test_errors_give_memory_back():
    machine = runtime.VirtualMachine(add_twice(2))
    wrong = runtime.tensor(np.ones((50_000, 5), np.float32))
    before = live_bytes()
    for _ in range(20):
        with pytest.raises(ValueError, match="dimension 1"):
            machine["main"](wrong)
    assert live_bytes() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_both_sides_of_a_fork_go_on():
    machine = runtime.VirtualMachine(add_twice(2))
    rows = 100_000  # large enough for the thread pool

    def right(value):
        x = np.full((rows, 4), value, np.float32)
        return bool((machine["main"](x).numpy() == 4 * value).all())

    runtime.set_num_threads(3)
    try:
        assert right(1)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if right(2) and right(3) else 1)
        assert right(4)
        end = time.monotonic() + 40
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            assert time.monotonic() < end, "the forked process hangs"
            time.sleep(0.01)
        assert done[1] == 0
        assert right(5)
    finally:
        runtime.set_num_threads(0)


def test_python_runs_beside_native_code(tmp_path):
    source, library = HERE / "wait_kernel.c", tmp_path / "wait.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), *include_flags()], check=True)
    a = Assembler()
    a.begin("main", ["x"], 2)
    a.call(1, "wait", r(0))
    a.ret(1)
    a.end()
    machine = runtime.VirtualMachine(a.build(runtime.load_module(library)))
    flag = runtime.tensor(np.zeros(1, np.float32))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(machine["main"](flag)))
    thread.start()
    time.sleep(0.05)
    flag.numpy()[0] = 1  # needs the interpreter, which the waiting call must have let go
    thread.join()
    assert seen == [True]
