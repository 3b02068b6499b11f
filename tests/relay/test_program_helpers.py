"""Small things that programs of Relay use: counts of operators, recasts, names in C's styles, options."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relay
from weft.relay.backend import Executor, Runtime, name_transforms, utils
from weft.relay.transform import recast
from weft.relay.walk import subexpressions
from weft.target.cuda.nvrtc import have_fp16


def test_operators_between_dequantize_and_quantize_are_counted():
    x, zero = relay.var("x", shape=(2, 4), dtype="int8"), relay.const(0)
    q = relay.qnn.op
    real = q.dequantize(x, relay.const(2.0), zero)
    inside = relay.nn.relu(relay.concatenate([real, real], axis=1))
    out = relay.sigmoid(q.dequantize(q.quantize(inside, relay.const(1.0), zero), relay.const(1.0), zero))
    mod = weft.IRModule.from_expr(relay.Function([x], out))
    assert relay.analysis.list_fake_quantized_op_freqs(mod) == {"concatenate": 1, "nn.relu": 1}
    y = relay.var("y", shape=(2, 4))
    open_region = weft.IRModule.from_expr(relay.Function([y], q.quantize(relay.nn.relu(y), relay.const(1.0), zero)))
    assert relay.analysis.list_fake_quantized_op_freqs(open_region) == {}


def test_layers_are_those_of_the_longest_way():
    x = relay.var("x", shape=(2, 2))
    branch = relay.nn.dense(x, relay.var("a"))
    out = relay.nn.dense(branch, relay.var("b")) + relay.nn.dense(x, relay.var("c"))
    mod = weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out))
    assert relay.analysis.count_layers(mod, ["nn.dense"]) == 2
    assert relay.analysis.count_layers(mod["main"]) == 0


def test_fused_functions_are_listed_once():
    x = relay.var("x", shape=(3, 4))
    same = [
        relay.nn.softmax(relay.exp(relay.negative(v)))
        for v in (x, relay.nn.dense(x, relay.const(np.eye(4, dtype="float32"))))
    ]
    mod = weft.IRModule.from_expr(relay.Function([x], relay.Tuple(same)))
    found = relay.analysis.extract_fused_functions(mod)
    assert all("Primitive" in f.attrs for f in found.values())
    assert len(found) == len({str(f) for f in found.values()})


def test_recast_computes_between_casts():
    x, w = relay.var("x", shape=(3, 4)), relay.var("w", shape=(5, 4))
    first = relay.nn.dense(x, w, out_dtype="float32")
    func = relay.Function([x, w], relay.nn.dense(first, relay.const(np.eye(5, dtype="float32"))))
    changed = recast(func, "float64", "float64", ops=["nn.dense"], skip_layers=[-1])
    assert str(relay.infer_type(changed)).count('dtype="float64"') == 3
    a, b = np.random.rand(3, 4).astype("float32"), np.random.rand(5, 4).astype("float32")
    one, two = (relay.create_executor("debug").evaluate(f)(a, b).numpy() for f in (func, changed))
    assert two.dtype == one.dtype
    np.testing.assert_allclose(two, one, rtol=1e-5)


def test_names():
    n = name_transforms
    assert n.to_c_function_style(n.prefix_generated_name(["model", "run"])) == "TVMGenModelRun"
    assert n.to_c_variable_style(n.prefix_name("Device")) == "tvm_device"
    assert n.to_c_constant_style("TVM_Device") == "TVM_DEVICE"
    assert n.sanitize_name("a+b 1") == "a_b_1"
    assert [utils.mangle_module_name(m) for m in ("default", None)] == ["tvmgen_default", "tvmgen"]
    for fail in (
        lambda: n.to_c_function_style("x"),
        lambda: n.prefix_name([""]),
        lambda: n.prefix_name([]),
        lambda: n.sanitize_name(""),
        lambda: utils.mangle_module_name("\u018e"),
    ):
        refuses(error.InvalidArgument, "", fail)


def test_options_are_listed():
    assert "aot" in Executor.list_registered() and "cpp" in Runtime.list_registered()
    assert Executor.list_registered_options(Executor("aot"))["interface-api"] == "runtime.String"
    assert [have_fp16(v) for v in ("5.2", "5.3", "7.5", "10.0")] == [False, True, True, True]


def test_memory_that_lives_is_noted_at_each_call():
    def group(op):
        p = relay.var("p", shape=(2, 4), dtype="int16")
        return relay.Function([p], op(p)).with_attr("Primitive", 1)

    x = relay.var("x", shape=(2, 4), dtype="int16")
    twice, once = group(relay.nn.relu), group(relay.abs)
    a = relay.Call(once, [x])
    pair = relay.Tuple([relay.Call(twice, [a]), relay.Call(twice, [a])])
    t = relay.transform
    mod = weft.transform.Sequential([t.InferType(), t.ToANormalForm(), t.InferType(), t.AnnotateUsedMemory()])(
        weft.IRModule.from_expr(relay.Function([x], relay.concatenate(pair, axis=0)))
    )
    noted = [f.attrs["used_memory"] for f in subexpressions(mod["main"].body) if isinstance(f, relay.Function)]
    assert sorted([int(n) for n in sizes] for sizes in noted) == [[32], [32, 48]]
    assert int(mod["main"].attrs["io_used_memory"]) == 16 + 32
    unknown = relay.var("x", shape=(relay.Any(),))
    with pytest.raises(error.InvalidArgument, match="does not support dynamic shapes"):
        t.AnnotateUsedMemory()(t.InferType()(weft.IRModule.from_expr(relay.Function([unknown], unknown))))


def test_inputs_are_set_one_by_one():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    machine = weft.runtime.relay_vm.VirtualMachine
    vm = machine(relay.vm.compile(weft.IRModule.from_expr(relay.Function([x, y], x - y)), "llvm"), weft.cpu())
    one, two = np.ones(2, "float32"), np.full(2, 2, "float32")
    vm.set_input("main", one, two)
    np.testing.assert_array_equal(vm.invoke("main").numpy(), [-1, -1])
    vm.set_one_input("main", 1, one)
    np.testing.assert_array_equal(vm.invoke("main").numpy(), [0, 0])
    vm.set_one_input("main", x=two)
    np.testing.assert_array_equal(vm.invoke("main").numpy(), [1, 1])
    np.testing.assert_array_equal(vm.invoke("main", one, one).numpy(), [0, 0])
    for args in ((7, one), ("z", one), (one,)):
        refuses(error.InvalidArgument, "", vm.set_one_input, "main", *args)


def test_fast_math_is_built_where_it_is_required():
    x = relay.var("x", shape=(3, 4))
    mod = weft.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.exp(x))))
    assert "fast" not in str(relay.optimize(mod, "llvm")[0])
    with weft.transform.PassContext(opt_level=3, required_pass=["FastMath"]):
        assert "fast_exp" in str(relay.optimize(mod, "llvm")[0])
        lib = relay.build(mod, "llvm")
    m = weft.runtime.graph_executor.GraphModule(lib["default"](weft.cpu()))
    a = np.random.default_rng(0).random((3, 4), "float32")
    m.run(x=a)
    e = np.exp(np.exp(a) - np.exp(a).max(1, keepdims=True))
    np.testing.assert_allclose(m.get_output(0).numpy(), e / e.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
def test_checkpoints_are_what_they_mark(mode):
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    body = relay.annotation.checkpoint(x * y) * x
    func = relay.transform.gradient(relay.infer_type(relay.Function([x, y], body)), mode=mode)
    a, b = np.array([2, 3], "float32"), np.array([5, 7], "float32")
    out, (dx, dy) = relay.create_executor("debug").evaluate(func)(a, b)
    for got, expected in ((out, a * b * a), (dx, 2 * a * b), (dy, a * a)):
        np.testing.assert_allclose(got.numpy(), expected)
