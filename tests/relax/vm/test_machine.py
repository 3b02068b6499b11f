"""The virtual machine's Python interface, as programs written for TVM use it."""

import numpy as np
import pytest

import weft as tvm
from tests.refusals import refuses
from weft import error, relax
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        a = R.add(x, y)
        b = R.multiply(a, x)
        c = (a, (b, x))
        return c

    @R.function
    def nested(t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((2, 3), "float32"))), s: R.Shape(["n"])):
        x = t[0]
        y = t[1][0]
        z = R.add(x, y)
        return z, s

    @R.function
    def add_one(x: R.Tensor(("n",), "float32")):
        y = R.add(x, R.const(1.0, "float32"))
        return y

    @R.function
    def closure(x: R.Tensor(("n",), "float32")):
        n = T.int64()

        @R.function
        def inner(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            z = R.subtract(y, x)
            return z

        return inner


X, Y = (np.random.default_rng(s).random((2, 3), "float32") for s in (0, 1))
V = np.float32([1, 2, 4])


@pytest.fixture(scope="module")
def executable():
    return tvm.compile(Module, target="llvm")


@pytest.fixture
def vm(executable):
    return relax.VirtualMachine(executable, tvm.cpu())


def arrays(value):
    return tuple(map(arrays, value)) if isinstance(value, tuple) else value.numpy()


def same(found, *expected):
    a, (b, c) = arrays(found)
    for f, e in zip((a, b, c), expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-6)


def test_calls(vm, executable):
    same(vm["main"](tvm.runtime.tensor(X), Y), X + Y, (X + Y) * X, X)
    same(vm.module["main"](X, Y), X + Y, (X + Y) * X, X)
    same(vm.module.get_function("main")(X, Y), X + Y, (X + Y) * X, X)
    assert vm.module.implements_function("add_one")
    assert not vm.module.implements_function("nothing")
    z, shape = vm["nested"]((X, (Y,)), tvm.runtime.ShapeTuple([4]))
    np.testing.assert_allclose(z.numpy(), X + Y)
    assert tuple(shape) == (4,)
    for module in (executable.jit(), executable.mod, executable):
        np.testing.assert_allclose(relax.VirtualMachine(module, tvm.cpu())["add_one"](V).numpy(), V + 1)
    assert (vm.get_function_arity("main"), vm.get_function_param_name("main", 1)) == (2, "y")


@pytest.mark.parametrize(
    "options",
    [
        {"memory_cfg": "naive"},
        {"memory_cfg": {tvm.cpu(): relax.VirtualMachine.NAIVE_ALLOCATOR}},
        {"memory_cfg": {tvm.cpu(): "pooled"}},
        {"device": [tvm.cpu()]},
    ],
)
def test_machines(executable, options):
    machine = relax.VirtualMachine(executable, **{"device": tvm.cpu()} | options)
    np.testing.assert_allclose(machine["add_one"](V).numpy(), V + 1)


@pytest.mark.parametrize("arguments", [lambda: ((X, Y), {}), lambda: ((), {"y": Y, "x": X}), lambda: ((X,), {"y": Y})])
def test_stateful(vm, arguments):
    args, kwargs = arguments()
    vm.set_input("main", *args, **kwargs)
    vm.invoke_stateful("main")
    out = vm.get_outputs("main")
    assert isinstance(out, tuple) and isinstance(out[1], tuple)
    same(out, X + Y, (X + Y) * X, X)
    assert [vm.get_output_arity("main", *path) for path in ((), (0,), (1,), (1, 1))] == [2, -1, 2, -1]
    vm.set_input("add_one", V)
    vm.invoke_stateful("add_one")
    assert vm.get_output_arity("add_one") == -1
    same(vm.get_outputs("main"), X + Y, (X + Y) * X, X)


def test_closures(vm):
    np.testing.assert_allclose(vm.invoke_closure(vm["closure"](V), V * 3).numpy(), V * 2)
    refuses(TypeError, "expected a function or closure, found a str", vm.invoke_closure, "add_one", V)


def test_saved_functions(vm):
    vm.save_function("main", "saved", X, Y)
    same(vm["saved"](), X + Y, (X + Y) * X, X)
    vm.save_function("main", "saved", y=X, x=Y)
    same(vm["saved"](), X + Y, (X + Y) * Y, Y)
    same(vm.module["saved"](), X + Y, (X + Y) * Y, Y)
    vm.save_function("main", "quiet", X, y=Y, include_return=False)
    assert vm["quiet"]() is None
    kept = vm["saved"]
    vm.save_function("add_one", "saved", V)
    np.testing.assert_allclose(vm["saved"]().numpy(), V + 1)
    same(kept(), X + Y, (X + Y) * Y, Y)


def test_time_evaluator(vm):
    x, y = tvm.runtime.tensor(X), tvm.runtime.tensor(Y)
    assert vm.time_evaluator("main", tvm.cpu())(x, y).mean > 0
    vm.save_function("main", "saved", x, y, include_return=False)
    result = vm.time_evaluator("saved", tvm.cpu(), number=3, repeat=4)()
    assert len(result.results) == 4 and result.min > 0
    vm.set_input("main", x, y)
    result = vm.time_evaluator("invoke_stateful", tvm.cpu(), number=2, repeat=3, min_repeat_ms=1)("main")
    assert len(result.results) == 3 and result.min > 0
    same(vm.get_outputs("main"), X + Y, (X + Y) * X, X)


def test_instrument_sees_every_call(vm):
    log = []

    def instrument(func, func_symbol, before_run, ret_value, *args):
        log.append((func_symbol, before_run, ret_value, args))
        assert callable(func)
        return relax.VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    np.testing.assert_allclose(vm["add_one"](V).numpy(), V + 1)
    names = [name for name, before, _, _ in log if before]
    assert names == [name for name, before, _, _ in log if not before]
    assert names[:3] == ["vm.builtin.alloc_shape_heap", "vm.builtin.check_tensor_info", "vm.builtin.match_shape"]
    before, after = (next(e for e in log if e[0] == "vm.builtin.alloc_tensor" and e[1] is b) for b in (True, False))
    assert before[2] is None
    assert after[2].shape == (3,)
    assert all(a.same_as(b) if hasattr(a, "same_as") else True for a, b in zip(before[3], after[3], strict=True))
    kernel = next(e for e in log if e[0].startswith("add"))
    np.testing.assert_array_equal(kernel[3][0].numpy(), V)
    count = len(log)
    vm.set_instrument(None)
    vm["add_one"](V)
    assert len(log) == count


@tvm.register_global_func("test.machine.skip", override=True)
def _skip(func, func_symbol, before_run, ret_value, *args):
    skip = before_run and func_symbol.startswith("add")
    assert before_run or not func_symbol.startswith("add")
    return relax.VMInstrumentReturnKind.SKIP_RUN if skip else relax.VMInstrumentReturnKind.NO_OP


@pytest.mark.parametrize("form", ["callable", "packed", "name"])
def test_instrument_skips_calls(vm, form):
    """The kernel that is left out writes nothing: the callback before it has filled the output."""
    name = "test.machine.skip"
    skip = {"callable": _skip, "packed": tvm.get_global_func(name), "name": name}[form]
    vm.set_instrument(skip)
    result = vm["add_one"](V).numpy()
    assert result.shape == (3,)
    vm.set_instrument(None)
    np.testing.assert_allclose(vm["add_one"](V).numpy(), V + 1)


def test_instrument_replaces_a_kernel(vm):
    def instrument(func, func_symbol, before_run, ret_value, *args):
        if before_run and func_symbol.startswith("add"):
            args[-1].copyfrom(args[0].numpy() * 10)
            return relax.VMInstrumentReturnKind.SKIP_RUN
        return None

    vm.set_instrument(instrument)
    np.testing.assert_allclose(vm["add_one"](V).numpy(), V * 10)
    assert any(c.name.startswith("add") for c in vm.profile("add_one", V).calls)
    np.testing.assert_allclose(vm["add_one"](V).numpy(), V * 10)


def test_instrument_that_fails(vm):
    def instrument(*args):
        raise KeyError("broken instrument")

    vm.set_instrument(instrument)
    refuses(KeyError, "broken instrument", vm["add_one"], V)
    vm.set_instrument(None)
    np.testing.assert_allclose(vm["add_one"](V).numpy(), V + 1)


WRONG = [
    (lambda vm: vm["main"](X), r"main\(x, y\): expected 2 arguments, found 1"),
    (lambda vm: vm["main"](X, V), "main: parameter 1 'y': expected ndim 2, found 1"),
    (lambda vm: vm["main"](X, Y.T.copy()), "main: parameter 1 'y': dimension 0 must be 2, found 3"),
    (lambda vm: vm["main"](X, Y.astype("int32")), "main: parameter 1 'y': expected dtype float32, found int32"),
    (lambda vm: vm["main"](X, "y"), "main: parameter 1 'y': expected a tensor, found a str"),
    (lambda vm: vm["nested"]((X,), tvm.runtime.ShapeTuple([4])), "nested: parameter 0 't'.*2"),
    (lambda vm: vm["nothing"], "no function 'nothing'(.|\n)*main, nested, add_one"),
    (lambda vm: vm.set_input("nothing", X), 'no function "nothing"; it has: main, nested'),
    (lambda vm: vm.set_input("main", X), "expected 2 arguments, found 1"),
    (lambda vm: vm.set_input("main", X, z=Y), "(?s)wrong argument names.*unknown: z; missing: y"),
    (lambda vm: vm.set_input("main", X, x=Y, y=Y), "(?s)wrong argument names.*given twice: x"),
    (lambda vm: vm.invoke_stateful("main"), r'invoke_stateful\("main"\): call set_input first'),
    (lambda vm: vm.get_outputs("main"), '"main" has no output yet: call invoke_stateful first'),
    (
        lambda vm: (vm.set_input("main", X, Y), vm.invoke_stateful("main"), vm.get_output_arity("main", 7)),
        "output 7 of a tuple of 2",
    ),
    (lambda vm: vm.save_function("main", "add_one", X, Y), "'add_one' is a function of the executable"),
    (lambda vm: vm.save_function("nothing", "saved", X), 'no function "nothing"'),
    (lambda vm: vm.time_evaluator("nothing", tvm.cpu()), "no function 'nothing'"),
    (lambda vm: vm.set_instrument(5), "(?s)an instrument is a function.*found int: 5"),
    (lambda vm: vm.get_function_param_name("main", 2), "(?s)main: no parameter 2 has a name.*x, y"),
    (lambda vm: relax.VirtualMachine(Module, tvm.cpu()), "(?s)a virtual machine runs an executable.*IRModule"),
    (lambda vm: relax.VirtualMachine(vm.executable, tvm.cpu(), "fast"), "unknown allocator"),
    (lambda vm: relax.VirtualMachine(vm.executable, "nowhere"), "unknown device 'nowhere'"),
]


@pytest.mark.parametrize(("act", "message"), WRONG, ids=[m for _, m in WRONG])
def test_wrong_uses(vm, act, message):
    refuses((error.WeftError, ValueError, TypeError, IndexError), message, act, vm)


@R.function
def lookup(table: R.Tensor((7, 2), "float32"), rows: R.Tensor(("n",), "int64")):
    return R.take(table, rows, axis=0)


def test_checks_of_indices_cost_three_calls():
    executable = tvm.compile(tvm.IRModule({"lookup": lookup}), "llvm")
    lines = executable.as_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "index_bounds" in line)
    assert ["match_shape" in line for line in lines[at + 1 : at + 4]] == [True, True, False]
    main = relax.VirtualMachine(executable, tvm.cpu())["lookup"]
    table = np.arange(14, dtype="float32").reshape(7, 2)
    np.testing.assert_array_equal(main(table, np.array([6, -7, 0])).numpy(), table[[6, 0, 0]])
    for wrong, count, at in ((-8, 2, 1), (7, 2, 1), (7, 8, 0), (-(2**63), 27, 26), (2**63 - 1, 27, 18), (-8, 64, 11)):
        rows = np.arange(count) % 14 - 7
        np.testing.assert_array_equal(main(table, rows).numpy(), table[rows])
        rows[at] = wrong
        refuses(error.WeftError, f"found {wrong}", main, table, rows)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("number", [-(1 << 63), (1 << 55) - 1, 1 << 55, (1 << 63) - 1])
def test_numbers_of_any_size_are_arguments(number, exec_mode):
    """Those that an instruction has no room for are constants."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        builder.emit_func_output(relax.PrimValue(tvm.ir.const(number, "int64")))
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm", exec_mode=exec_mode), tvm.cpu())
    assert vm["main"]() == number
