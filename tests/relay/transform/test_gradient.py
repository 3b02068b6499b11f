"""Gradients against differences: every operator whose expansion has one, closures, choices, recursion, references."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relay
from weft.relay.testing import check_grad, run_infer_type
from weft.relay.transform import gradient

RNG = np.random.default_rng(2)
nn = relay.nn

UNARY = """abs acos asin asinh atan atanh cos cosh erf exp log log10 log2 negative rsqrt sigmoid sin sinh sqrt tan
           tanh floor ceil""".split()


def x64(name, *shape):
    return relay.var(name, shape=shape, dtype="float64")


OPERATORS = {
    "add": lambda: relay.add(x64("a", 2, 3), x64("b", 3)),
    "divide": lambda: relay.divide(x64("a", 2, 1), x64("b", 1, 3)),
    "power": lambda: relay.power(x64("a", 2, 3), x64("b", 3)),
    "maximum": lambda: relay.maximum(x64("a", 2, 3), x64("b", 2, 3)),
    "clip": lambda: relay.clip(x64("a", 7), 0.3, 0.6),
    "leaky_relu": lambda: nn.leaky_relu(x64("a", 5) - relay.const(0.5, "float64"), 0.1),
    "sum": lambda: relay.sum(x64("a", 2, 3, 2), axis=(0, 2), exclude=True),
    "mean": lambda: relay.mean(x64("a", 2, 3), axis=1, keepdims=True),
    "max": lambda: relay.max(x64("a", 3, 4), axis=1),
    "prod": lambda: relay.prod(x64("a", 3, 2), axis=0),
    "variance": lambda: relay.variance(x64("a", 3, 4), axis=1),
    "softmax": lambda: nn.softmax(x64("a", 2, 4)) * x64("b", 2, 4),
    "log_softmax": lambda: nn.log_softmax(x64("a", 2, 4)) * x64("b", 4),
    "dense": lambda: nn.dense(x64("a", 2, 3), x64("b", 4, 3)),
    "dense of one row": lambda: nn.dense(x64("a", 1, 3), x64("b", 4, 3)),
    "batch_matmul": lambda: nn.batch_matmul(x64("a", 2, 3, 4), x64("b", 2, 2, 4)),
    "conv2d": lambda: nn.conv2d(x64("a", 1, 2, 5, 4), x64("b", 3, 2, 3, 3), strides=2, padding=1, kernel_size=(3, 3)),
    "bias_add": lambda: nn.bias_add(x64("a", 2, 3, 2), x64("b", 3)),
    "batch_norm": lambda: nn.batch_norm(x64("a", 2, 3), *(x64(n, 3) for n in "bcde"))[0],
    "layer_norm": lambda: nn.layer_norm(x64("a", 2, 3), x64("b", 3), x64("c", 3)) * x64("d", 2, 3),
    "max_pool2d": lambda: nn.max_pool2d(x64("a", 1, 2, 5, 5), pool_size=(3, 2), strides=(2, 1), padding=(1, 0)),
    "avg_pool2d": lambda: nn.avg_pool2d(
        x64("a", 1, 2, 5, 5), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True
    ),
    "global_avg_pool2d": lambda: nn.global_avg_pool2d(x64("a", 1, 2, 3, 3)),
    "pad": lambda: nn.pad(x64("a", 2, 3), ((1, 0), (0, 2))),
    "strided_slice": lambda: relay.strided_slice(x64("a", 7, 5), [6, 1], [0, 5], [-2, 3]),
    "concatenate": lambda: relay.concatenate([x64("a", 2, 1), x64("b", 2, 3)], 1) * x64("c", 2, 4),
    "split": lambda: relay.split(x64("a", 4, 3), (1, 2))[1],
    "stack": lambda: relay.stack([x64("a", 2, 3), x64("b", 2, 3)], axis=1) * x64("c", 2, 2, 3),
    "transpose": lambda: relay.transpose(x64("a", 2, 3, 4), (2, 0, 1)) * x64("b", 3),
    "reshape": lambda: relay.reshape(x64("a", 2, 6), (3, -1)) * x64("b", 3, 4),
    "tile": lambda: relay.tile(x64("a", 2, 3), (2, 1, 2)) * x64("b", 2, 2, 6),
    "repeat": lambda: relay.repeat(x64("a", 2, 3), 2, 1) * x64("b", 2, 6),
    "broadcast_to": lambda: relay.broadcast_to(x64("a", 3, 1), (2, 3, 4)) * x64("b", 4),
    "reverse": lambda: relay.reverse(x64("a", 3, 2), 0) * x64("b", 3, 2),
    "where": lambda: relay.where(relay.less(x64("a", 4), relay.const(0.5, "float64")), x64("b", 4), x64("c", 1)),
    "squeeze": lambda: relay.squeeze(x64("a", 1, 3, 1)),
    "take": lambda: relay.take(x64("a", 4, 2), relay.const(np.array([3, 0, 3])), axis=0) * x64("b", 3, 2),
    "gather_nd": lambda: relay.gather_nd(x64("a", 2, 3), relay.const(np.array([[1, 1, 0], [0, 0, 2]]))) * x64("b", 3),
    "cast": lambda: relay.cast(relay.cast(x64("a", 3), "float32"), "float64"),
}


def function(body):
    return relay.Function(relay.analysis.free_vars(body), body)


def inputs(func):
    return [RNG.uniform(0.1, 0.9, [int(d) for d in p.ty.shape]) for p in func.params]


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_element(name):
    func = function(getattr(relay, name)(x64("a", 2, 3)))
    check_grad(func, inputs(func), mode="first_order")


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    func = function(OPERATORS[name]())
    check_grad(func, inputs(func), mode="first_order", atol=1e-3 if name == "cast" else 1e-5, eps=1e-4)


def test_both_orders_agree_and_sizes_may_be_zero():
    for shape in ((0, 3), (2, 3)):
        func = function(relay.sigmoid(x64("a", *shape)) * x64("b", 3) + relay.exp(x64("c", *shape)))
        data = inputs(func)
        found = [
            relay.create_executor("debug").evaluate(gradient(func, mode=m))(*data)[1]
            for m in ("first_order", "higher_order")
        ]
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy())


def test_closures_choices_and_references():
    x = x64("x")
    double = relay.var("double")
    cell, out = relay.var("cell"), relay.var("out")
    inner = relay.Function([y := x64("y")], relay.If(relay.less(y, relay.const(1.0, "float64")), y * y, y))
    body = relay.Let(
        double,
        inner,
        relay.Let(
            cell,
            relay.RefCreate(relay.Call(double, [x])),
            relay.Let(out, relay.RefWrite(cell, relay.RefRead(cell) * x), relay.RefRead(cell)),
        ),
    )
    func = run_infer_type(relay.Function([x], body))
    for value, expected in ((0.5, 3 * 0.5**2), (2.0, 2 * 2.0)):
        _, (got,) = relay.create_executor("debug").evaluate(run_infer_type(gradient(func)))(np.float64(value))
        np.testing.assert_allclose(got.numpy(), expected)


def test_recursion_in_the_module():
    mod = weft.IRModule()
    power, x, n = relay.GlobalVar("power"), x64("x"), relay.var("n", "int32")
    again = relay.Call(power, [x, n - relay.const(1)]) * x
    mod[power] = relay.Function(
        [x, n],
        relay.If(relay.less(n, relay.const(1)), relay.const(1.0, "float64"), again),
        relay.TensorType((), "float64"),
    )
    y = x64("y")
    mod["main"] = relay.Function([y], relay.Call(power, [y, relay.const(3)]))
    mod = relay.transform.InferType()(mod)
    mod["main"] = gradient(mod["main"], mod=mod)
    value, (got,) = relay.create_executor("vm", relay.transform.InferType()(mod)).evaluate()(np.float64(1.5))
    np.testing.assert_allclose((value.numpy(), got.numpy()), (1.5**3, 3 * 1.5**2))


def test_second_order():
    x, y = x64("x", 3), x64("y", 3)
    first = run_infer_type(gradient(run_infer_type(relay.Function([x], x * x * x))))
    again = run_infer_type(relay.Function([y], relay.TupleGetItem(relay.TupleGetItem(first(y), 1), 0)))
    data = RNG.random(3)
    _, (got,) = relay.create_executor("debug").evaluate(run_infer_type(gradient(again)))(data)
    np.testing.assert_allclose(got.numpy(), 6 * data)


def test_a_program_registers_its_own():
    relay.op.register_gradient("isfinite", lambda call, g: [relay.ones_like(call.args[0])], level=20)
    try:
        func = run_infer_type(function(relay.cast(relay.isfinite(x64("a", 2)), "float64")))
        _, (got,) = relay.create_executor("debug").evaluate(gradient(func, mode="first_order"))(np.zeros(2))
        np.testing.assert_array_equal(got.numpy(), [1, 1])
    finally:
        weft.ir.Op.get("isfinite").reset_attr("FPrimalGradient")


def test_what_is_refused():
    func = run_infer_type(function(relay.sort(x64("a", 3))))
    refuses(error.UnsupportedOperator, r"relax\.sort has no gradient", gradient, func, mode="first_order")
    refuses(error.InvalidArgument, "unknown mode", gradient, func, mode="second_order")
    x, v, pair = x64("x"), relay.var("v"), x64("pair", 2)
    bound = run_infer_type(relay.Function([x], relay.Let(v, x, v)))
    refuses(error.InvalidArgument, "first order has operators and tuples only", gradient, bound, mode="first_order")
    jumps = relay.Function([pair], relay.floor(pair * relay.const(3.0, "float64")) * pair)
    refuses(AssertionError, "", check_grad, jumps, [np.array([1 / 3, 0.2])], eps=1e-3)


@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
@pytest.mark.parametrize(
    "made", [lambda x: relay.nn.avg_pool2d(x, (2, 2)), lambda x: x, lambda x: relay.Tuple([relay.reshape(x, (-1,)), x])]
)
def test_results_that_are_no_real_numbers_have_no_derivative(mode: str, dtype: str, made):
    x = relay.var("x", shape=(1, 1, 4, 4), dtype=dtype)
    with pytest.raises(error.InvalidArgument, match="only results that are real numbers have derivatives"):
        gradient(run_infer_type(relay.Function([x], made(x))), mode=mode)


def test_a_module_of_gradients():
    x = x64("x", 3)
    mod = relay.transform.InferType()(weft.IRModule({"f": relay.Function([x], x * x), "g": relay.Function([x], -x)}))
    both = relay.transform.FirstOrderGradient()(mod)
    data = RNG.standard_normal(3)
    for name, value, adjoint in (("f", data * data, 2 * data), ("g", -data, -np.ones(3))):
        result, (found,) = relay.create_executor("graph").evaluate(both[name])(data)
        np.testing.assert_allclose(result.numpy(), value)
        np.testing.assert_allclose(found.numpy(), adjoint)
