"""Executors: what they evaluate, how arguments are given, and what is refused."""

import numpy as np
import pytest

from weft import ir, relay
from weft.error import InvalidArgument
from weft.relay.backend.interpreter import ConstructorValue, Executor

I32 = relay.scalar_type("int32")


def subtract(a, b):
    return relay.Call(ir.Op.get("subtract"), (a, b))


@pytest.fixture
def mod():
    x, y = relay.var("x", shape=(3,), dtype="float32"), relay.var("y", shape=(3,), dtype="float32")
    a = relay.var("a", "int32")
    return ir.IRModule({"main": relay.Function([x, y], subtract(x, y)), "neg": relay.Function([a], -a)})


def test_functions_take_arguments_by_position_and_name(mod):
    executor = relay.create_executor("debug", mod)
    assert isinstance(executor, Executor)
    x, y = np.float32([1, 2, 3]), np.float32([5, 5, 5])
    for main in (executor.evaluate(), executor.evaluate("main"), executor.evaluate(mod.get_global_var("main"))):
        for got in (main(x, y), main(y=y, x=x), main(x, y=y)):
            np.testing.assert_array_equal(got.numpy(), x - y)
    assert int(executor.evaluate("neg")(4).numpy()) == -4
    with pytest.raises(InvalidArgument, match="argument"):
        main(x)
    with pytest.raises(InvalidArgument, match="argument"):
        main(x, z=y)


def test_expressions(mod):
    executor = relay.create_executor(mod=mod)
    assert int(executor.evaluate(relay.Call(mod.get_global_var("neg"), (relay.const(3),))).numpy()) == -3
    f = relay.var("f", "int32")
    assert int(executor.evaluate(relay.Function([f], subtract(f, relay.const(1))))(8).numpy()) == 7
    assert len(mod) == 2
    x, t = relay.var("x"), relay.var("t")
    pair = relay.Tuple((subtract(x, relay.const(2)), relay.TupleGetItem(t, 1)))
    got = executor.evaluate(pair, {x: 5, t: (1, np.float32(2.5))})
    assert int(got[0].numpy()) == 3 and float(got[1].numpy()) == 2.5
    assert relay.create_executor().evaluate(relay.Tuple(())) == ()


def test_params_are_bound(mod):
    x, y = np.float32([1, 2, 3]), np.float32([5, 5, 5])
    main = relay.create_executor("debug", mod, params={"y": y}).evaluate()
    np.testing.assert_array_equal(main(x).numpy(), x - y)
    with pytest.raises(InvalidArgument):
        main(x, y)


def test_values_of_data_types_go_in_and_out():
    header = relay.GlobalTypeVar("Pair")
    ctor = relay.Constructor("Pair", (I32, I32), header)
    mod = ir.IRModule()
    mod[header] = relay.TypeData(header, (), (ctor,))
    a, b, p = relay.var("a"), relay.var("b"), relay.var("p", header())
    pattern = relay.PatternConstructor(ctor, [relay.PatternVar(a), relay.PatternVar(b)])
    mod["swap"] = relay.Function([p], relay.Match(p, [relay.Clause(pattern, ctor(b, a))]))
    got = relay.create_executor(mod=mod).evaluate("swap")(ConstructorValue(1, [3, 4], ctor))
    assert got.tag == 1 and got.constructor is ctor and [int(f.numpy()) for f in got.fields] == [4, 3]
    with pytest.raises(InvalidArgument, match="Pair"):
        ConstructorValue(1, [3], ctor)


def test_what_is_refused(mod):
    with pytest.raises(InvalidArgument, match="no such executor"):
        relay.create_executor("fast", mod)
    with pytest.raises(InvalidArgument, match="no function 'f'"):
        relay.create_executor("debug", mod).evaluate("f")
    with pytest.raises(InvalidArgument, match="no function 'main'"):
        relay.create_executor().evaluate()
