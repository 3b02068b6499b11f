"""Natural numbers, single passes, loops."""

import numpy as np
import pytest

from weft import IRModule, error, relay, testing
from weft.relay.prelude import Prelude


def _naturals() -> Prelude:
    p = Prelude(IRModule())
    p.mod.import_from_std("nat.rly")
    return p


def test_natural_numbers_in_and_out() -> None:
    p = _naturals()
    assert relay.testing.count(p, relay.testing.make_nat_value(p, 5)) == 5
    assert relay.testing.count(p, relay.testing.make_nat_value(p, 0)) == 0
    expr = relay.testing.make_nat_expr(p, 3)
    assert relay.testing.count(p, relay.create_executor("debug", p.mod).evaluate(expr)) == 3
    with pytest.raises(error.InvalidArgument, match="negative"):
        relay.testing.make_nat_expr(p, -1)


def test_large_numbers_are_counted_without_recursion() -> None:
    p = _naturals()
    assert relay.testing.count(p, relay.testing.make_nat_value(p, 100_000)) == 100_000


def test_arithmetic_of_natural_numbers() -> None:
    p = _naturals()
    run = relay.create_executor("debug", p.mod).evaluate
    add, double = (p.mod.get_global_var(n) for n in ("nat_add", "nat_double"))
    assert relay.testing.count(p, run(add(relay.testing.make_nat_expr(p, 3), relay.testing.make_nat_expr(p, 4)))) == 7
    assert relay.testing.count(p, run(double(relay.testing.make_nat_expr(p, 3)))) == 6
    x = relay.var("x", "int32")
    twice = relay.Function([x], relay.multiply(x, relay.const(2)))
    power = p.mod.get_global_var("nat_iterate")(twice, relay.testing.make_nat_expr(p, 5))
    assert int(run(relay.Call(power, [relay.const(1)])).numpy()) == 32


def test_passes_on_expressions() -> None:
    x = relay.var("x", shape=(2, 3))
    assert relay.testing.run_infer_type(relay.nn.relu(x)).checked_type == relay.TensorType((2, 3))
    func = relay.testing.run_opt_pass(relay.Function([x], relay.nn.relu(x)), relay.transform.ToANormalForm())
    assert isinstance(func.body, relay.Let)
    assert relay.testing.rand("float64", 3, 4).dtype == "float64"
    assert relay.testing.enabled_targets() == testing.enabled_targets()


def test_while_loop() -> None:
    i, total = relay.var("i", "int32"), relay.var("total", shape=(2,))
    step = relay.var("step", shape=(2,))
    loop = relay.loops.while_loop(
        lambda i, total: relay.less(i, relay.const(5)), [i, total], lambda i, total: [i + relay.const(1), total + step]
    )
    func = relay.Function([step], relay.Call(loop, [relay.const(0), relay.zeros((2,))]))
    mod = relay.transform.InferType()(IRModule.from_expr(func))
    assert mod["main"].ret_type == relay.TupleType((relay.scalar_type("int32"), relay.TensorType((2,))))
    count, result = relay.create_executor("debug", mod).evaluate()(np.float32([1, 2]))
    assert int(count.numpy()) == 5
    np.testing.assert_array_equal(result.numpy(), [5, 10])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fn (%x: Tensor[(2, 3), float32], %w) { nn.dense(%x, %w, units=4) }", (4, 3)),
        ("fn (%x: Tensor[(2, 3), float32], %w) { nn.bias_add(%x, %w, axis=-1) }", (3,)),
        (
            "fn (%x: Tensor[(1, 4, 8, 8), float32], %w) { nn.conv2d(%x, %w, channels=6, kernel_size=[3,3], groups=2) }",
            (6, 2, 3, 3),
        ),
        (
            "fn (%x: Tensor[(1, 8, 8, 4), float32], %w) { nn.conv2d(%x, %w, channels=8, kernel_size=[3, 2], groups=4, "
            'data_layout="NHWC", kernel_layout="HWOI") }',
            (3, 2, 4, 2),
        ),
        (
            "fn (%x: Tensor[(1, 4, 8, 8), float32], %w) { nn.conv2d_transpose(%x, %w, channels=6, kernel_size=[3,3]) }",
            (4, 6, 3, 3),
        ),
        ("fn (%x: Tensor[(1, 4, 8), float16], %w) { nn.prelu(%x, %w) }", (4,)),
    ],
)
def test_types_of_parameters_follow_from_the_data(text: str, expected: tuple[int, ...]) -> None:
    func = relay.testing.run_infer_type(relay.parse_expr(text))
    assert func.params[1].ty.concrete_shape == expected
    assert func.params[1].ty.dtype == func.params[0].ty.dtype
