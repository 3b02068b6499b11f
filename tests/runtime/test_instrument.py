"""What instruments in Python see, beyond the basics in test_vm: values, errors, nesting, lifetime, global functions."""

import gc
import threading
import weakref

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from tests.runtime.programs import Assembler, add_twice, imm, r
from weft import runtime


def test_both_callbacks_get_the_same_values():
    machine = runtime.VirtualMachine(add_twice(1))
    before, after = [], []

    def watch(func, name, before_run, ret_value, *args):
        (before if before_run else after).append((func, name, args))
        if name == "vm.builtin.alloc_tensor":
            storage, offset, shape, dtype = args
            assert (offset, tuple(shape), str(dtype)) == (0, (2, 4), "float32")
            assert isinstance(ret_value, runtime.Tensor) != before_run
        elif name == "add":
            assert all(isinstance(a, runtime.Tensor) and a.shape == (2, 4) for a in args)
            assert ret_value is None
            if not before_run:
                np.testing.assert_array_equal(args[2].numpy(), np.full((2, 4), 2))
        assert name.startswith("vm.builtin.") or name == "add"
        assert isinstance(func, weft.ffi.PackedFunc)

    machine.set_instrument(watch)
    machine["main"](np.ones((2, 4), np.float32))
    machine["main"](np.ones((2, 4), np.float32))
    assert len(before) == len(after) > 0
    for (f, n, x), (g, m, y) in zip(before, after, strict=True):
        assert f is g
        assert n == m
        assert all(a is b for a, b in zip(x, y, strict=True))


def test_nested_functions_and_errors():
    a = Assembler()
    a.func("inner")
    a.begin("inner", ["x"], 2)
    a.call(1, "vm.builtin.copy", r(0))
    a.call(1, "vm.builtin.tuple_getitem", r(1), imm(0))
    a.end(1)
    a.begin("main", ["x"], 2)
    a.call(1, "inner", r(0))
    a.end(1)
    machine = runtime.VirtualMachine(a.build())
    events = []
    machine.set_instrument(lambda func, name, before, ret, *args: events.append((name, before)))
    inner = [(n, b) for n in ("vm.builtin.copy", "vm.builtin.tuple_getitem") for b in (True, False)]
    assert machine["main"]((5, 6)) == 5
    assert events == [("inner", True), *inner, ("inner", False)]
    events.clear()
    refuses(TypeError, "tuple_getitem", machine["main"], 3)  # no callback after a call that fails
    assert events == [("inner", True), *inner[:3]]
    events.clear()
    assert machine["main"]((7,)) == 7
    assert events == [("inner", True), *inner, ("inner", False)]


@pytest.mark.parametrize("when", [True, False])
def test_an_error_of_the_instrument_is_the_error_of_the_call(when):
    machine = runtime.VirtualMachine(add_twice(1))

    def refuse(func, name, before_run, ret_value, *args):
        if before_run == when and name == "add":
            raise KeyError("not this one")

    machine.set_instrument(refuse)
    x = np.ones((2, 4), np.float32)
    refuses(KeyError, "not this one", machine["main"], x)
    machine.set_instrument(None)
    np.testing.assert_array_equal(machine["main"](x).numpy(), 2 * x)


def test_threads_do_not_mix_their_calls():
    machine = runtime.VirtualMachine(add_twice(2))
    wrong = []

    def watch(func, name, before_run, ret_value, *args):
        if name == "add" and {a.shape[0] for a in args} != {threading.current_thread().rows}:
            wrong.append(name)

    machine.set_instrument(watch)

    def work():
        x = np.ones((threading.current_thread().rows, 4), np.float32)
        for _ in range(50):
            np.testing.assert_array_equal(machine["main"](x).numpy(), 4 * x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for i, thread in enumerate(threads):
        thread.rows = i + 1
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_machine_with_an_instrument_is_freed():
    class Watch:
        def __call__(self, *_args):
            return 0

    watch = Watch()
    gone = weakref.ref(watch)
    machine = runtime.VirtualMachine(add_twice(1))
    machine.set_instrument(watch)
    machine["main"](np.ones((1, 4), np.float32))
    del machine, watch
    gc.collect()
    assert gone() is None


def test_a_global_function_gets_the_documented_arguments():
    seen = []

    def watch(func, name, before_run, ret_value, *args):
        seen.append((type(func), str(name), bool(before_run), ret_value is None, len(args)))

    tvm_ffi.register_global_func("weft.test.instrument", watch, override=True)
    machine = runtime.VirtualMachine(add_twice(1))
    machine.set_instrument("weft.test.instrument")
    machine["main"](runtime.tensor(np.ones((1, 4), np.float32)))
    names = [n for _, n, before, _, _ in seen if before]
    assert "add" in names
    assert len(seen) == 2 * len(names)
    assert {n for _, name, _, _, n in seen if name == "add"} == {3}
