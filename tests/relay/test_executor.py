"""Executors: what they evaluate, how arguments are given, and what is refused."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.relay.test_interpreter import lists
from weft import error, ir, relay
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
    refuses(error.InvalidArgument, "argument", main, x)
    refuses(error.InvalidArgument, "argument", main, x, z=y)


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
    refuses(error.InvalidArgument, "", main, x, y)


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
    refuses(error.InvalidArgument, "Pair", ConstructorValue, 1, [3], ctor)


def test_what_is_refused(mod):
    refuses(error.InvalidArgument, "no such executor", relay.create_executor, "fast", mod)
    refuses(error.InvalidArgument, "no function 'f'", relay.create_executor("debug", mod).evaluate, "f")
    refuses(error.InvalidArgument, "no function 'main'", relay.create_executor().evaluate)


def test_long_lists_go_through_the_machine():
    mod, cons, nil = lists()
    xs = relay.var("xs", cons.belong_to(I32))
    mod["main"] = relay.Function([xs], cons(relay.const(-1), xs))
    given = ConstructorValue(2, [], nil)
    for i in range(20_000):
        given = ConstructorValue(1, [i, given], cons)
    got, n = relay.create_executor("vm", mod).evaluate()(given), 0
    while got.constructor is cons:
        n, got = n + 1, got.fields[1]
    assert n == 20_001 and got.constructor is nil


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_results_of_every_kind(kind):
    mod, cons, nil = lists()
    x, y = relay.var("x", "int32"), relay.var("y", "int32")
    closure = relay.Function([y], relay.Tuple((subtract(x, y), cons(relay.Tuple((x, y)), nil()))))
    mod["main"] = relay.Function([x], relay.Tuple((x, relay.Tuple(()), closure)))
    number, unit, run = relay.create_executor(kind, mod).evaluate()(7)
    assert int(number.numpy()) == 7 and unit == ()
    difference, listed = run(2)
    assert int(difference.numpy()) == 5 and listed.constructor.name_hint == "Cons"
    (a, b), rest = listed.fields
    assert (int(a.numpy()), int(b.numpy()), rest.constructor.name_hint) == (7, 2, "Nil")
    refuses(error.InvalidArgument, "argument", run)


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_arguments_of_other_types_are_refused(kind):
    mod, cons, nil = lists()
    option = relay.GlobalTypeVar("Option")
    none = relay.Constructor("None", (), option)
    mod[option] = relay.TypeData(option, (), (none,))
    empty, other = ConstructorValue(2, [], nil), ConstructorValue(1, [], none)
    for ty, good, bad in (
        (
            relay.TensorType((2,)),
            [np.zeros(2, "float32")],
            [np.zeros(3, "float32"), np.zeros(2, "int32"), (1, 2), empty],
        ),
        (I32, [3, True, np.int32(3)], [2.5, 2**40, np.int64(3), (), "3"]),
        (relay.scalar_type("bool"), [True], [0.0, np.int32(1)]),
        (relay.scalar_type("float32"), [3, 2.5], [np.float64(2.5)]),
        (relay.scalar_type("uint8"), [255], [256, -1]),
        (relay.TupleType((I32, relay.TupleType(()))), [(1, ())], [(1,), 1, (1.5, ()), (1, (2,)), empty]),
        (cons.belong_to(I32), [empty], [other, 3, (), None]),
    ):
        x = relay.var("x", ty)
        mod["main"] = relay.Function([x], x)
        main = relay.create_executor(kind, mod).evaluate()
        for value in good:
            main(value)
        for value in bad:
            refuses(error.InvalidArgument, "", main, value)


def test_the_older_place_of_executors() -> None:
    assert relay.build_module.create_executor is relay.create_executor
