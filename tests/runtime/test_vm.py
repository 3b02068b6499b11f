import os
import sys
import traceback

import numpy as np
import pytest
import tvm_ffi

from tests import clock
from tests.refusals import refuses
from tests.runtime.programs import VM, VOID, Assembler, add_twice, context, imm, kernel_module, r
from tests.threads import at_once
from weft import error, ffi, runtime
from weft.runtime import VirtualMachine, VMInstrumentReturnKind


@pytest.fixture
def registered():
    names = []

    def register(name, function):
        ffi.register_global_func(name, function, override=True)
        names.append(name)

    yield register
    for name in names:
        ffi.remove_global_func(name)


def rand(*shape):
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def test_symbolic_shapes():
    vm = VirtualMachine(add_twice(3))
    for n in (5, 0, 1, 7, 5):
        x = rand(n, 4)
        np.testing.assert_array_equal(vm["main"](x).numpy(), x * 8)


def test_parallel_kernel():
    x = rand(100_003, 4)
    np.testing.assert_array_equal(VirtualMachine(add_twice(1))["main"](x).numpy(), x + x)


@pytest.mark.parametrize("allocator", ["pooled", "naive"])
def test_allocators(allocator):
    vm = VirtualMachine(add_twice(2), runtime.cpu(), memory_cfg=allocator)
    out = [vm["main"](rand(n, 4)) for n in (3, 300, 90_000)]
    for n, y in zip((3, 300, 90_000), out, strict=True):
        np.testing.assert_array_equal(y.numpy(), rand(n, 4) * 4)
        assert y.data_ptr() % 64 == 0


def test_argument_forms():
    main = VirtualMachine(add_twice(1))["main"]
    x = rand(6, 4)
    read_only = x.copy()
    read_only.flags.writeable = False
    big_endian = x.astype(">f4")
    unaligned = np.frombuffer(bytearray(97), np.float32, 24, 1).reshape(6, 4)
    unaligned[:] = x
    owned = runtime.from_dlpack(unaligned)
    for value in (
        x,
        read_only,
        x[::-1],
        rand(12, 4)[::2],
        np.asfortranarray(x),
        runtime.tensor(x),
        big_endian,
        unaligned,
        owned,
    ):
        np.testing.assert_array_equal(main(value).numpy(), np.array(value, np.float32) * 2)
    offset = np.zeros(25, np.float32)[1:].reshape(6, 4)  # 4 bytes off a 16-byte boundary
    offset[:] = x
    np.testing.assert_array_equal(main(offset).numpy(), x * 2)


def test_errors_name_the_argument():
    main = VirtualMachine(add_twice(1))["main"]
    refuses(ValueError, r"main: argument 'x' .*dimension 1 must be 4, found 3 in shape \[2, 3\]", main, rand(2, 3))
    refuses(TypeError, "main: argument 'x' .*expected dtype float32, found float64", main, np.zeros((2, 4)))
    refuses(ValueError, "argument 'x'.*expected ndim 2, found 1", main, rand(4))
    refuses(TypeError, "argument 'x'.*expected a tensor, found the int 3", main, 3)
    refuses(TypeError, r"main\(x\): expected 1 arguments, found 2", main, rand(1, 4), rand(1, 4))
    main(rand(2, 4))  # still usable


def two_vectors(*matches):
    """f(x, y) returns x; the length of x is kept, and that of y matched by (code, place or number)."""
    a = Assembler()
    contexts = [a.const(context("f", i, n, "R.Tensor((n,))")) for i, n in enumerate("xy")]
    a.begin("f", ["x", "y"], 3)
    a.call(2, "vm.builtin.alloc_shape_heap", VM, imm(1))
    for argument, code, place in ((0, 1, 0), *((1, *m) for m in matches)):
        a.call(VOID, "vm.builtin.match_shape", r(argument), r(2), imm(1), imm(code), imm(place), contexts[argument])
    a.end(0)
    return VirtualMachine(a.build())["f"]


def test_symbol_bound_earlier():
    f = two_vectors((3, 0))
    assert f(rand(3), rand(3)).shape == (3,)
    refuses(ValueError, r"f: argument 'y'.*dimension 0 must be 3 .*earlier argument.*found 4", f, rand(3), rand(4))


@pytest.mark.parametrize(("code", "refused"), [(4, 2), (6, 4)])
def test_at_least_and_at_most(code, refused):
    f = two_vectors((code + 1, 0), (code, 3))
    assert f(rand(3), rand(3)).shape == (3,) and f(rand(3), rand(6 - refused)).shape == (3,)
    words = "at least" if code == 4 else "at most"
    with pytest.raises(ValueError, match=rf"argument 'y'.*dimension 0 must be {words} {6 - refused} .*found 3"):
        f(rand(6 - refused), rand(3))  # by the slot
    with pytest.raises(ValueError, match=rf"argument 'y'.*dimension 0 must be {words} 3, found {refused}"):
        f(rand(refused), rand(refused))  # by the number


def loop_program():
    """count(n): adds one n times, with If and a backward Goto; the additions are Python callbacks."""
    a = Assembler()
    a.begin("count", ["n"], 4)
    a.call(1, "vm.builtin.copy", imm(0))
    a.call(2, "test.less", r(1), r(0))
    a.if_(2, 3)
    a.call(1, "test.add", r(1), imm(1))
    a.goto(-3)
    a.end(1)
    return a


def test_loop(registered):
    registered("test.less", lambda a, b: a < b)
    registered("test.add", lambda a, b: a + b)
    count = VirtualMachine(loop_program().build())["count"]
    assert [count(n) for n in (0, 1, 10)] == [0, 1, 10]


def test_if_condition_must_be_an_int():
    a = Assembler()
    a.begin("f", ["x"], 1)
    a.if_(0, 1)
    a.end(0)
    refuses(TypeError, "condition of an If", VirtualMachine(a.build())["f"], rand(2))


def test_read_if_cond():
    a = Assembler()
    a.begin("f", ["c"], 2)
    a.call(1, "vm.builtin.read_if_cond", r(0))
    a.if_(1, 3)
    a.call(1, "vm.builtin.copy", imm(7))
    a.ret(1)
    a.call(1, "vm.builtin.copy", imm(8))
    a.end(1)
    f = VirtualMachine(a.build())["f"]
    assert f(np.array(True)) == 7
    assert f(np.array(False)) == 8
    assert f(np.array(5, np.int64)) == 7
    refuses(TypeError, "scalar tensor", f, np.zeros(2, bool))


def recursion(tail=False, closure=False):
    """Count down; a call whose result is returned at once, over moves, kills and jumps, is a tail call."""
    a = Assembler()
    a.func("down")
    a.begin("down", ["n"], 5)
    a.call(1, "test.positive", r(0))
    a.if_(1, 8 if tail else 6)
    a.call(2, "test.minus", r(0))
    if closure:
        a.call(4, "vm.builtin.make_closure", a.f("down"))
        a.call(3, "vm.builtin.invoke_closure", VM, r(4), r(2))
    else:
        a.call(4, "vm.builtin.null_value")
        a.call(3, "down", r(2))
    if tail:
        a.call(2, "vm.builtin.null_value")
        a.call(4, "vm.builtin.copy", r(3))
        a.goto(1)
    else:
        a.call(4, "test.minus", r(3))
    a.ret(4)
    a.end(0)
    return a


@pytest.fixture
def counting(registered):
    registered("test.positive", lambda n: n > 0)
    registered("test.minus", lambda n: n - 1)


@pytest.mark.parametrize("closure", [False, True])
def test_depth_limit(counting, closure):
    down = VirtualMachine(recursion(closure=closure).build())["down"]
    assert down(100) == -100
    refuses(RecursionError, r"more than \d{4,} nested calls fill", down, 1_000_000)
    assert down(5) == -5


@pytest.mark.parametrize("closure", [False, True])
def test_tail_calls_take_the_frame(counting, closure):
    assert VirtualMachine(recursion(tail=True, closure=closure).build())["down"](20_000) == 0


def test_instruments_see_tail_calls_near_the_start(counting):
    """As they see other calls; further ones are jumps, so that what runs without an instrument runs with one."""
    machine, seen = VirtualMachine(recursion(tail=True).build()), []
    machine.set_instrument(lambda func, name, before, ret, *args: seen.append((name, before)))
    assert machine["down"](2000) == 0
    calls = seen.count(("down", True))
    assert calls == seen.count(("down", False)) < 100
    assert seen.count(("test.minus", True)) == 2000


def appending():
    """Append b and c to rows, and d to what was there between the two."""
    a = Assembler()
    a.begin("main", ["rows", "b", "c", "d", "n"], 9)
    for dst, rows, row in ((5, 0, 1), (6, 5, 2), (7, 5, 3)):
        a.call(dst, "vm.builtin.append", r(rows), r(row), r(4))
    a.call(8, "vm.builtin.make_tuple", r(5), r(6), r(7))
    a.end(8)
    return VirtualMachine(a.build())["main"]


@pytest.mark.parametrize("n", [0, -1, 3, 1000, 2**63 - 1])
@pytest.mark.parametrize("given", [0, 1, 70])
def test_appending_leaves_older_versions_alone(n, given):
    rows, b, c, d = rand(given, 2, 3), *rand(3, 2, 3)
    found = appending()(rows, b, c, d, np.array(n))
    for out, more in zip(found, ([b], [b, c], [b, d]), strict=True):
        np.testing.assert_array_equal(out.numpy(), np.concatenate([rows, np.stack(more)]))


def test_appending_takes_the_shape_of_the_first_row():
    found = appending()(rand(0, 0, 7), *rand(3, 2, 3), 0)
    assert [f.shape for f in found] == [(1, 2, 3), (2, 2, 3), (2, 2, 3)]
    empty = appending()(rand(0, 0), *rand(3, 0), 5)
    assert [f.shape for f in empty] == [(1, 0), (2, 0), (2, 0)]


@pytest.mark.parametrize(
    "args",
    [
        (1, rand(2), 0),
        (rand(0, 2), rand(2), 1.5),
        (rand(0, 2), rand(3, 2), 0),
        (rand(2), rand(2), 0),
        (rand(), rand(), 0),
        (rand(0, 2), np.zeros(2), 0),
        (rand(4, 2), rand(3), 0),
    ],
)
def test_refused_appending(args):
    rows, row, n = args
    with pytest.raises((TypeError, ValueError), match=r"vm\.builtin\.append|gave an output of shape \[3\]"):
        appending()(rows, row, row, row, n)


def test_deep_frames_with_many_registers(counting):
    a = recursion()
    a.functions = [f._replace(register_file_size=90) if f.name == "down" else f for f in a.functions]
    a.data += [0] * 0
    assert VirtualMachine(a.build())["down"](900) == -900


def test_closures():
    a = Assembler()
    a.func("inner")
    a.begin("inner", ["x", "y"], 3)
    a.call(2, "vm.builtin.make_tuple", r(0), r(1))
    a.end(2)
    a.begin("make", ["y"], 2)
    a.call(1, "vm.builtin.make_closure", a.f("inner"), r(0))
    a.end(1)
    a.begin("main", ["x", "y"], 4)
    a.call(2, "vm.builtin.make_closure", a.f("inner"), r(1))
    a.call(VOID, "vm.builtin.check_func_info", r(2), a.const("f"))
    a.call(3, "vm.builtin.invoke_closure", VM, r(2), r(0))
    a.end(3)
    vm = VirtualMachine(a.build())
    assert vm["main"](1, 2) == (1, 2)
    closure = vm["make"](20)
    assert vm.invoke_closure(closure, 10) == (10, 20)
    refuses(TypeError, r"inner\(x, y\): expected 2 arguments, found 3", vm.invoke_closure, closure, 1, 2)
    refuses(ValueError, "belongs to another executable", VirtualMachine(a.build()).invoke_closure, closure, 10)


def test_tuples_and_shapes():
    a = Assembler()
    a.begin("f", ["x", "t"], 8)
    a.call(2, "vm.builtin.shape_of", r(0))
    a.call(3, "vm.builtin.tuple_getitem", r(1), imm(1))
    a.call(4, "vm.builtin.reshape", r(0), a.const(tvm_ffi.Shape((4, 3))))
    a.call(5, "vm.builtin.tensor_to_shape", r(3))
    a.call(6, "vm.builtin.make_prim_value", r(VOID), imm(0), imm(9))
    a.call(7, "vm.builtin.make_tuple", r(2), r(4), r(5), r(6))
    a.end(7)
    f = VirtualMachine(a.build())["f"]
    x = rand(3, 4)
    shape, y, to_shape, nine = f(x, (1, np.array([5, 6], np.int32)))
    assert tuple(shape) == (3, 4)
    assert tuple(to_shape) == (5, 6)
    assert nine == 9
    np.testing.assert_array_equal(y.numpy(), x.reshape(4, 3))
    assert np.shares_memory(y.numpy(), x)
    refuses(IndexError, "", f, x, (1,))
    refuses(ValueError, "cannot view", f, rand(3, 3), (1, np.array([5, 6])))


def test_call_tir_dyn(registered):
    seen = []
    registered("test.dyn", lambda *args: seen.append(args))
    a = Assembler()
    a.begin("f", ["x"], 2)
    a.call(1, "vm.builtin.shape_of", r(0))
    a.call(VOID, "vm.builtin.call_tir_dyn", a.f("test.dyn"), r(0), r(1))
    a.end(0)
    VirtualMachine(a.build())["f"](rand(3, 5))
    assert seen[0][1:] == (3, 5)
    assert isinstance(seen[0][0], runtime.Tensor)


def test_python_error_keeps_class_and_shows_vm_frames(registered):
    class Mine(Exception):
        pass

    from weft.ffi import register_error

    register_error("Mine", Mine)

    def boom(_x):
        raise Mine("no")

    registered("test.boom", boom)
    a = Assembler()
    a.func("inner")
    a.begin("inner", ["x"], 1)
    a.call(VOID, "test.boom", r(0))
    a.end(0)
    a.begin("main", ["x"], 1)
    a.call(VOID, "inner", r(0))
    a.end(0)
    info = refuses(Mine, "", VirtualMachine(a.build())["main"], 1)
    text = "".join(traceback.format_exception(info))
    assert 'File "<weft:main>", line 0, in inner' in text
    assert 'File "<weft:inner>", line 0, in test.boom' in text


def test_missing_function_is_named():
    a = Assembler()
    a.begin("main", ["x"], 1)
    a.call(VOID, "no.such.kernel", r(0))
    a.call(VOID, "nor.this", r(0))
    a.end(0)
    ex = a.build()
    refuses(error.ExecutableError, r"2 functions(.|\n)*no\.such\.kernel(.|\n)*nor\.this", VirtualMachine, ex)
    refuses(error.ExecutableError, "", lambda: ex["main"])


def test_unknown_function_lists_known():
    vm = VirtualMachine(add_twice(1))
    refuses(error.InvalidArgument, "no function 'nain'", lambda: vm["nain"])


def test_stateful():
    vm = VirtualMachine(add_twice(1))
    x = rand(2, 4)
    refuses(ValueError, "set_input first", vm.invoke_stateful, "main")
    vm.set_input("main", x=x)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), x * 2)
    assert vm.get_output_arity("main") == -1
    refuses(error.InvalidArgument, "unknown: y", vm.set_input, "main", y=x)
    refuses(TypeError, "expected 1 arguments, found 2", vm.set_input, "main", x, x)
    refuses(ValueError, "no function", vm.set_input, "nope", x)


def test_stateful_tuple():
    a = Assembler()
    a.begin("f", ["x"], 3)
    a.call(1, "vm.builtin.make_tuple", r(0), imm(3))
    a.call(2, "vm.builtin.make_tuple", r(1), r(0))
    a.end(2)
    vm = VirtualMachine(a.build())
    vm.set_input("f", 7)
    vm.invoke_stateful("f")
    assert vm.get_outputs("f") == ((7, 3), 7)
    assert vm.get_output_arity("f") == 2
    assert vm.get_output_arity("f", 0) == 2


def test_save_function():
    vm = VirtualMachine(add_twice(1))
    x = rand(2, 4)
    vm.save_function("main", "saved", x)
    np.testing.assert_array_equal(vm["saved"]().numpy(), x * 2)
    vm.save_function("main", "quiet", x=x, include_return=False)
    assert vm["quiet"]() is None
    assert vm.time_evaluator("saved", number=3, repeat=2)().mean > 0
    result = vm.time_evaluator("main", runtime.cpu(), number=2, repeat=4)(x)
    assert len(result.results) == 4
    assert "mean (ms)" in str(result)


def test_instrument():
    vm = VirtualMachine(add_twice(1))
    events = []

    def watch(func, name, before_run, ret_value, *args):
        events.append((name, before_run, len(args)))
        return VMInstrumentReturnKind.NO_OP

    vm.set_instrument(watch)
    x = rand(2, 4)
    np.testing.assert_array_equal(vm["main"](x).numpy(), x * 2)
    names = [n for n, before, _ in events if before]
    assert names[0] == "vm.builtin.alloc_shape_heap"
    assert "add" in names
    assert "vm.builtin.null_value" in names
    assert len(events) == 2 * len(names)

    def skip(func, name, before_run, ret_value, *args):
        return VMInstrumentReturnKind.SKIP_RUN if name == "add" else VMInstrumentReturnKind.NO_OP

    vm.set_instrument(skip)
    assert vm["main"](x).shape == (2, 4)
    vm.set_instrument(None)
    events.clear()
    np.testing.assert_array_equal(vm["main"](x).numpy(), x * 2)
    assert events == []


def test_threads_share_one_vm():
    vm = VirtualMachine(add_twice(2))
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x = rng.random((int(rng.integers(0, 40)), 4), dtype=np.float32)
            if not np.array_equal(vm["main"](x).numpy(), x * 4):
                wrong.append(seed)

    at_once(work, 8)
    assert wrong == []


def test_outputs_outlive_everything():
    x = rand(1000, 4)
    vm = VirtualMachine(add_twice(1))
    y = vm["main"](x).numpy()
    del vm
    np.testing.assert_array_equal(y, x * 2)


def test_memory_does_not_grow():
    vm = VirtualMachine(add_twice(3))

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    rng = np.random.default_rng(1)
    inputs = [rng.random((int(n), 4), dtype=np.float32) for n in rng.integers(1, 30_000, 20)]
    for x in inputs:
        vm["main"](x)
    before = resident()
    for _ in range(20):
        for x in inputs:
            vm["main"](x)
    assert resident() - before < 16 << 20


def test_kernel_module_keeps_alive():
    f = kernel_module()["add"]
    x = runtime.tensor(rand(3))
    out = runtime.empty((3,))
    f(x, x, out)
    np.testing.assert_array_equal(out.numpy(), x.numpy() * 2)
    with pytest.raises(
        TypeError, match=r"(?s)Mismatched b.dtype on argument #1 .*`add\(a: .*expected float32, found int32"
    ):
        f(x, np.zeros(3, np.int32), out)
    refuses(TypeError, r"(?s)Expected 3 arguments .*`add\(a: .*found 1", f, x)
    refuses(TypeError, "(?s)type on argument #0 .*expected Tensor, found the int 1", f, 1, x, out)


def test_interrupt_stops_an_endless_loop():
    """Ctrl-C reaches a program that jumps to itself for ever."""
    code = (
        "import os, signal, threading\n"
        "from tests.runtime.programs import Assembler\n"
        "from weft.runtime import VirtualMachine\n"
        "a = Assembler(); a.begin('f', [], 1); a.goto(0); a.end()\n"
        "f = VirtualMachine(a.build())['f']\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n    f()\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = clock.run([sys.executable, "-c", code], env=env)
    assert out.stdout.strip() == "stopped", out.stderr


def test_process_that_forks_after_use():
    vm = VirtualMachine(add_twice(1))
    x = rand(50_000, 4)
    vm["main"](x)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if np.array_equal(vm["main"](x).numpy(), x * 2) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_array_equal(vm["main"](x).numpy(), x * 2)
