"""Memory, devices, errors, threads and the stateful interface of the Relay virtual machine."""

import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.runtime.relay_programs import CONS, NIL, I, counting_loop, executable, function, kernels, list_of, machine
from tests.threads import at_once
from weft.error import ExecutableError, InvalidArgument
from weft.runtime.relay_vm import VirtualMachine

F = np.arange(6, dtype=np.float32).reshape(2, 3)


# ---- memory and shapes ----------------------------------------------------------------------------------------------


def test_shapes_and_views():
    vm = machine(
        function("shape", ["x"], 2, I.shape_of(0, 1), I.ret(1)),
        function("reshape", ["x", "shape"], 3, I.reshape_tensor(0, 1, 2), I.ret(2)),
        function(
            "scalar",
            [],
            3,
            I.load_consti(5, 0),
            I.shape_of(0, 1),
            I.load_const(0, 2),
            I.reshape_tensor(0, 2, 2),
            I.alloc_adt(0, [1, 2], 2),
            I.ret(2),
        ),
        constants=[weft.runtime.shape_constant((1, 1))],
    )
    shape = vm.invoke("shape", F)
    assert shape.dtype == "int64"
    assert shape.numpy().tolist() == [2, 3]
    assert vm.invoke("shape", np.float32(1)).shape == (0,)
    assert vm.invoke("shape", np.zeros((0, 4))).numpy().tolist() == [0, 4]
    for dtype in ("int32", "int64"):
        np.testing.assert_array_equal(vm.invoke("reshape", F, np.array([3, 1, 2], dtype)).numpy(), F.reshape(3, 1, 2))
    x = weft.nd.array(F)
    assert vm.invoke("reshape", x, np.array([6])).handle.data_ptr() == x.handle.data_ptr()
    none, five = vm.invoke("scalar")
    assert none.shape == (0,)
    assert five.numpy().tolist() == [[5]]
    refuses(ValueError, r"cannot view float32 elements \[2, 3\] as \[4\]", vm.invoke, "reshape", F, np.array([4]))
    refuses(TypeError, "vector of integers", vm.invoke, "reshape", F, F)
    with pytest.raises(TypeError, match="expected a tensor, found an object weft.RelayClosure"):
        machine(function("main", ["f"], 2, I.alloc_closure(0, [], 1), I.shape_of(1, 1), I.ret(1))).run(1)


def alloc(offset=0, shape=(3,), dtype="float32"):
    return function(
        "main",
        ["size"],
        3,
        I.alloc_storage(0, 64, dtype, 0, 1),
        I.alloc_tensor(1, offset, shape, dtype, 2),
        I.alloc_adt(0, [1, 2], 2),
        I.get_field(2, 1, 2),
        I.ret(2),
    )


def test_tensors_stay_inside_their_storage():
    vm = machine(alloc(offset=4))
    assert vm.run(16).shape == (3,)
    refuses(ValueError, r"float32\[3\] at offset 4 does not fit in a storage of 15 bytes", vm.run, 15)
    refuses(ValueError, "a storage of -1 bytes", vm.run, -1)
    refuses(TypeError, "expected a size in bytes, found a tensor float32", vm.run, 1.5)
    refuses(MemoryError, "cannot allocate", vm.run, 2**60)
    with pytest.raises(TypeError, match="expected a storage, found a tensor"):
        machine(function("main", ["x"], 2, I.alloc_tensor(0, 0, [1], "int8", 1), I.ret(1))).run(F)
    sub = machine(alloc(offset=0, shape=(2, 0, 5), dtype="bfloat16")).run(0)
    assert (sub.shape, sub.dtype) == ((2, 0, 5), "bfloat16")


def test_killed_registers_free_their_tensors():
    statistics = weft.ffi.get_global_func("weft.pool_statistics")
    seen = []
    weft.register_func("test_relay.live", lambda: seen.append(int(statistics()[0])), override=True)
    size = 8 << 20
    machine(
        function(
            "main",
            [],
            3,
            I.load_consti(size, 0),
            I.alloc_storage(0, 64, "int8", 0, 1),
            I.invoke_packed(0, 0, 0, []),
            I.kill_register(1),
            I.invoke_packed(0, 0, 0, []),
            I.ret(0),
        ),
        primitives=["test_relay.live"],
    ).run()
    assert seen[0] - seen[1] == size


# ---- devices --------------------------------------------------------------------------------------------------------


def test_two_devices():
    """Constants, storages, parameters and copies on a second CPU device."""
    program = executable(
        function(
            "main",
            ["x"],
            6,
            I.load_const(0, 1),
            I.device_copy(0, 0, 1, 2),
            I.load_consti(24, 3),
            I.alloc_storage(3, 64, "float32", 1, 3),
            I.alloc_tensor(3, 0, [6], "float32", 4),
            I.invoke_packed(0, 3, 1, [2, 1, 4]),
            I.device_copy(4, 1, 0, 5),
            I.alloc_adt(0, [4, 5], 5),
            I.ret(5),
        ),
        function("placed", ["x", "y"], 3, I.alloc_adt(0, [0, 1], 2), I.ret(2), devices=[1, 0]),
        function("scalar", ["n"], 2, I.load_consti(3, 0), I.device_copy(0, 0, 1, 1), I.ret(1)),
        constants=[np.full(6, 10, np.float32)],
        constant_devices=[1],
        primitives=["add"],
        lib=kernels(),
    )
    devices = [weft.cpu(0), weft.cpu(1)]
    vm = VirtualMachine(program, devices)
    x = F.reshape(6)
    there, here = vm.run(x)
    assert (there.device, here.device) == (weft.cpu(1), weft.cpu(0))
    np.testing.assert_array_equal(here.numpy(), x + 10)
    assert there.handle.data_ptr() != here.handle.data_ptr()
    placed, second = vm.invoke("placed", x, there)
    assert (placed.device, second.device) == (weft.cpu(1), weft.cpu(0))
    np.testing.assert_array_equal(placed.numpy(), x)
    assert vm.invoke("scalar", 1).device == weft.cpu(1)
    with pytest.raises(ExecutableError, match="the program is for 2 devices, the virtual machine has 1"):
        VirtualMachine(program, weft.cpu(0))
    assert VirtualMachine(program, devices, {weft.cpu(0): "naive", weft.cpu(1): "pooled"}).run(x)
    refuses(InvalidArgument, "unknown allocator", VirtualMachine, program, devices, "other")


# ---- errors ---------------------------------------------------------------------------------------------------------


def frames(error):
    return [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__) if "weft:" in f.filename]


def test_fatal_says_its_message_and_place():
    vm = machine(
        function("main", ["x"], 3, I.load_consti(0, 1), I.invoke(1, [0, 1], 2), I.alloc_adt(0, [2], 2), I.ret(2)),
        function("choose", ["x", "n"], 3, I.get_tag(0, 2), I.if_(2, 1, 2, 1), I.fatal(0), I.fatal()),
        constants=["model.relay:14:5: no clause matches Cons"],
    )
    caught = refuses(RuntimeError, "model.relay:14:5: no clause matches Cons", vm.run, list_of([1]))
    assert frames(caught) == [("<weft:main>", 1, "choose"), ("<weft:choose>", 2, "Fatal")]
    refuses(RuntimeError, "the program stopped at a Fatal instruction", vm.run, (1, 2))


def test_errors_of_kernels_tell_where_the_program_was():
    vm = machine(
        function("main", ["x"], 4, I.move(0, 1), I.invoke(1, [1], 2), I.move(2, 3), I.alloc_adt(0, [3], 3), I.ret(3)),
        function("inner", ["x"], 2, I.load_const(0, 1), I.invoke_packed(0, 3, 1, [0, 1, 1]), I.ret(1)),
        constants=[np.zeros(3, np.float32)],
        primitives=["add"],
        lib=kernels(),
    )
    assert vm.run(np.ones(3, np.float32))[0].shape == (3,)
    caught = refuses(ValueError, r"shape\[0\]|must be|expected", vm.run, np.ones(4, np.float32))
    assert frames(caught) == [("<weft:main>", 1, "inner"), ("<weft:inner>", 1, "add")]
    refuses(TypeError, "float32", vm.run, np.ones(3))

    def fail(*_):
        raise KeyError("from Python")

    weft.register_func("test_relay.fail", fail, override=True)
    vm = machine(function("main", ["x"], 1, I.invoke_packed(0, 1, 0, [0]), I.ret(0)), primitives=["test_relay.fail"])
    caught = refuses(KeyError, "from Python", vm.run, 1)
    assert frames(caught)[-1] == ("<weft:main>", 0, "test_relay.fail")


def test_wrong_arguments():
    vm = machine(function("main", ["x", "y"], 2, I.ret(0)))
    refuses(TypeError, r"main\(x, y\): expected 2 arguments, found 1", vm.run, 1)
    refuses(InvalidArgument, "unknown: z", vm.run, 1, z=2)
    refuses(InvalidArgument, "no function 'other'", vm.invoke, "other")
    refuses(InvalidArgument, "no function 'other'", lambda: vm["other"])
    np.testing.assert_array_equal(vm.run(y=1, x=F).numpy(), F)
    refuses(InvalidArgument, "runs a Relay executable", VirtualMachine, 3)
    with pytest.raises(ExecutableError, match="2 functions that it calls are neither") as caught:
        machine(
            function("main", ["x"], 1, I.ret(0)), primitives=["test_relay.no1", "vm.builtin.copy", "test_relay.no2"]
        )
    assert "- test_relay.no1\n- test_relay.no2" in str(caught.value)


def test_a_program_that_primitives_call_again():
    """A primitive calls the machine: the outer call's registers stay as they are, and too deep a nest is an error."""
    holder = {}
    weft.register_func("test_relay.again", lambda n, out: out.copyfrom(holder["vm"].run(n).numpy() + 1), override=True)
    vm = holder["vm"] = machine(
        function(
            "main",
            ["n"],
            7,
            I.load_consti(0, 1),
            I.load_consti(1, 2),
            I.if_(0, 1, 7, 1),
            I.scalar("subtract", 0, 2, 3),
            I.load_consti(8, 4),
            I.alloc_storage(4, 64, "int64", 0, 5),
            I.alloc_tensor(5, 0, [], "int64", 6),
            I.invoke_packed(0, 2, 1, [3, 6]),
            I.goto(2),
            I.ret(1),
            I.scalar("add", 6, 0, 6),
            I.ret(6),
        ),
        primitives=["test_relay.again"],
    )
    for n in (0, 1, 2, 9):
        assert int(vm.run(np.int64(n)).numpy()) == n + n * (n + 1) // 2
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        refuses(RecursionError, "", vm.run, np.int64(100_000))
    finally:
        sys.setrecursionlimit(limit)
    assert int(vm.run(np.int64(1)).numpy()) == 2


def test_a_loop_without_end_can_be_interrupted():
    vm = machine(function("main", ["x"], 1, I.goto(0)), function("tail", ["x"], 1, I.invoke(1, [0], 0), I.ret(0)))

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for name in ("main", "tail"):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            refuses(Stop, "", vm.invoke, name, F)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_many_threads_use_one_machine():
    vm = machine(
        counting_loop("count"),
        function(
            "main",
            ["x", "n"],
            6,
            I.invoke(0, [1], 2),
            I.load_consti(12, 3),
            I.alloc_storage(3, 64, "float32", 0, 4),
            I.alloc_tensor(4, 0, [3], "float32", 5),
            I.invoke_packed(0, 2, 1, [0, 5]),
            I.alloc_adt(CONS, [5, 2], 5),
            I.ret(5),
        ),
        primitives=["double"],
        lib=kernels(),
    )
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x, n = rng.random(3, np.float32), int(rng.integers(50))
            out = vm.run(x, n)
            if not np.array_equal(out[0].numpy(), 2 * x) or int(out[1].numpy()) != n:
                wrong.append((x, n))

    at_once(work, 6)
    assert not wrong


def test_a_cell_that_threads_share():
    vm = machine(
        function("make", ["x"], 2, I.alloc_ref(0, 1), I.ret(1)),
        function(
            "main",
            ["r", "n"],
            6,
            I.load_consti(0, 2),
            I.load_consti(1, 3),
            I.if_(2, 1, 6, 1),
            I.read_ref(0, 4),
            I.alloc_adt(NIL, [2], 5),
            I.write_ref(0, 5),
            I.scalar("add", 2, 3, 2),
            I.goto(-5),
            I.ret(4),
        ),
    )
    cell = vm.invoke("make", F)
    at_once(lambda _: vm.run(cell, np.int64(30_000)), 4)
    assert int(cell.value[0].numpy()) == 29_999


def test_other_threads_run_python_meanwhile():
    vm = machine(counting_loop())
    done = []
    thread = threading.Thread(target=lambda: done.append(vm.run(np.int64(30_000_000))))
    thread.start()
    steps = 0
    while not done and steps < 10**7:
        steps += 1
        time.sleep(0)
    thread.join()
    assert steps > 50


# ---- the rest of the interface --------------------------------------------------------------------------------------


def test_stateful_calls():
    vm = machine(
        function("main", ["x", "y"], 3, I.alloc_adt(0, [1, 0], 2), I.ret(2)),
        function("one", ["x"], 1, I.ret(0)),
        function("none", [], 1, I.load_consti(1, 0), I.ret(0)),
    )
    refuses(ValueError, "call set_input first", vm.invoke_stateful, "main")
    vm.set_input("main", F, y=3)
    vm.invoke_stateful("main")
    y, x = vm.get_outputs()
    assert int(y.numpy()) == 3
    np.testing.assert_array_equal(x.numpy(), F)
    vm.invoke_stateful("one", F)
    np.testing.assert_array_equal(vm.get_outputs()[0].numpy(), F)
    np.testing.assert_array_equal(vm.get_outputs("main")[1].numpy(), F)
    vm.invoke_stateful("none")
    assert int(vm.get_outputs()[0].numpy()) == 1
    assert vm.get_input_index("y") == 1
    assert vm.get_input_index("z") == -1
    refuses(TypeError, "main: expected 2 arguments, found 1", vm.set_input, "main", F)
    refuses(ValueError, "no output yet", machine(function("main", [], 1, I.ret(0))).get_outputs, "main")


def kernel_machine():
    return machine(
        function(
            "main",
            ["x"],
            5,
            I.load_consti(12, 1),
            I.alloc_storage(1, 64, "float32", 0, 2),
            I.alloc_tensor(2, 0, [3], "float32", 3),
            I.invoke_packed(0, 2, 1, [0, 3]),
            I.invoke_packed(0, 2, 1, [3, 3]),
            I.ret(3),
        ),
        primitives=["double"],
        lib=kernels(),
    )


def test_benchmark_and_profile():
    vm = kernel_machine()
    x = np.ones(3, np.float32)
    result = vm.benchmark(weft.cpu(), x, func_name="main", repeat=3, number=7)
    assert len(result.results) == 3
    assert 0 < result.mean < 1
    report = vm.profile(x)
    assert [call.name for call in report.calls] == ["double", "double"]
    assert report.calls[0].shapes == "float32[3], float32[3]"
    assert "double" in str(report)
    np.testing.assert_array_equal(vm.run(x).numpy(), 4 * x)


def test_instrument():
    vm = kernel_machine()
    seen = []

    def watch(func, name, before, result, *args):
        seen.append((name, before, [a.shape for a in args]))
        return 1 if before and len(seen) > 2 else 0  # the second call is left out

    vm.set_instrument(watch)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(vm.run(x).numpy(), 2 * x)
    shapes = [(3,), (3,)]
    assert seen == [("double", True, shapes), ("double", False, shapes), ("double", True, shapes)]
    vm.set_instrument(None)
    np.testing.assert_array_equal(vm.run(x).numpy(), 4 * x)
    assert len(seen) == 3

    def fail(*_):
        raise KeyError("instrument")

    vm.set_instrument(fail)
    refuses(KeyError, "instrument", vm.run, x)
