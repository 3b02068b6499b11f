"""The interpreter: every kind of expression, order, sharing, tail calls and errors."""

import numpy as np
import pytest
import tvm_ffi

from tests.refusals import refuses
from weft import error, ir, relay
from weft.relay.interpreter import Interpreter, RecursionTooDeep
from weft.relay.values import Closure, ConstructorValue, RefValue
from weft.runtime import Tensor, tensor

INT = relay.scalar_type("int32")


def op(name, *args, **attrs):
    return relay.Call(ir.Op.get(name), args, attrs)


def num(value, dtype="int32"):
    return relay.const(value, dtype)


def run(expr, mod=None):
    return Interpreter(mod).evaluate(expr)


def lists():
    """A module with lists of any type, and its constructors."""
    header, a = relay.GlobalTypeVar("List"), relay.TypeVar("A")
    cons = relay.Constructor("Cons", (a, relay.TypeCall(header, (a,))), header)
    nil = relay.Constructor("Nil", (), header)
    mod = ir.IRModule()
    mod[header] = relay.TypeData(header, (a,), (cons, nil))
    return mod, cons, nil


def seq(*exprs):
    """Evaluate expressions in order; the value is the last one's."""
    *first, last = exprs
    for i, e in reversed(list(enumerate(first))):
        last = relay.Let(relay.var(f"_{i}"), e, last)
    return last


def logged(log, value):
    """An expression that puts a digit behind what a cell holds, and gives it."""
    write = relay.RefWrite(log, op("add", op("multiply", relay.RefRead(log), num(10)), num(value)))
    return seq(write, num(value))


def log_of(make):
    """Evaluate ``make(log)`` and return (its value, what the log holds then)."""
    log, out = relay.var("log"), relay.var("out")
    pair = relay.Let(out, make(log), relay.Tuple((out, relay.RefRead(log))))
    value, written = run(relay.Let(log, relay.RefCreate(num(0)), pair))
    return value, int(written.numpy())


def test_tensors_and_operators():
    x = np.random.default_rng(0).normal(size=(3, 1, 5)).astype("float32")
    y = np.random.default_rng(1).normal(size=(4, 5)).astype("float32")
    a, b = relay.var("a"), relay.var("b")
    got = run(relay.Function([a, b], op("add", op("exp", a), b)))(x, y)
    np.testing.assert_allclose(got.numpy(), np.exp(x) + y, rtol=1e-6)
    empty = run(relay.Function([a], op("add", a, a)))(np.zeros((0, 3), "int64"))
    assert empty.shape == (0, 3) and empty.dtype == "int64"
    assert run(num(2.5, "float32")).numpy() == np.float32(2.5)


def test_tuples():
    t = relay.Tuple((num(1), relay.Tuple((num(2), num(3)))))
    one, (two, three) = run(t)
    assert [int(v.numpy()) for v in (one, two, three)] == [1, 2, 3]
    assert int(run(relay.TupleGetItem(relay.TupleGetItem(t, 1), 0)).numpy()) == 2
    assert run(relay.Tuple(())) == ()


def test_closures_see_the_variables_they_were_made_among():
    x, y, add = relay.var("x"), relay.var("y"), relay.var("add")
    adder = relay.Function([x], relay.Function([y], op("subtract", x, y)))
    two = relay.Let(
        add,
        adder,
        relay.Tuple(
            (relay.Call(relay.Call(add, (num(5),)), (num(1),)), relay.Call(relay.Call(add, (num(7),)), (num(1),)))
        ),
    )
    assert [int(v.numpy()) for v in run(two)] == [4, 6]
    closure = run(relay.Call(adder, (num(10),)))
    assert isinstance(closure, Closure) and int(closure(3).numpy()) == 7


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_recursion_by_let_and_by_global(n):
    i, loop = relay.var("i"), relay.var("loop")
    body = relay.If(op("equal", i, num(0)), num(0), op("add", i, relay.Call(loop, (op("subtract", i, num(1)),))))
    by_let = relay.Let(loop, relay.Function([i], body), relay.Call(loop, (num(n),)))
    assert int(run(by_let).numpy()) == n * (n + 1) // 2
    mod, main, j = ir.IRModule(), relay.GlobalVar("f"), relay.var("j")
    again = relay.Call(main, (op("subtract", j, num(1)),))
    mod[main] = relay.Function([j], relay.If(op("equal", j, num(0)), num(0), op("add", j, again)))
    assert int(run(relay.Call(main, (num(n),)), mod).numpy()) == n * (n + 1) // 2


def test_tail_calls_need_no_depth():
    even, odd, i = relay.GlobalVar("even"), relay.GlobalVar("odd"), relay.var("i")
    mod = ir.IRModule()
    for name, other, base in ((even, odd, True), (odd, even, False)):
        again, x = relay.Call(other, (op("subtract", i, num(1)),)), relay.var("x")
        rest = relay.Let(x, again, x) if base else relay.Match(i, (relay.Clause(relay.PatternWildcard(), again),))
        mod[name] = relay.Function([i], relay.If(op("equal", i, num(0)), num(base, "bool"), rest))
    assert bool(Interpreter(mod, max_depth=3).function("even")(2).numpy())
    mod[even] = relay.Function(
        [i], relay.If(op("equal", i, num(0)), num(True, "bool"), relay.Call(odd, (op("subtract", i, num(1)),)))
    )
    assert not bool(Interpreter(mod, max_depth=1).function("odd")(20_000).numpy())


def test_fold_over_a_long_list():
    mod, cons, nil = lists()
    fold, build = relay.GlobalVar("fold"), relay.GlobalVar("build")
    f, acc, xs, h, t, n = (relay.var(v) for v in ("f", "acc", "xs", "h", "t", "n"))
    step = relay.Call(fold, (f, relay.Call(f, (acc, h)), t))
    mod[fold] = relay.Function(
        [f, acc, xs],
        relay.Match(
            xs,
            (
                relay.Clause(relay.PatternConstructor(cons, (relay.PatternVar(h), relay.PatternVar(t))), step),
                relay.Clause(relay.PatternConstructor(nil), acc),
            ),
        ),
    )
    more = relay.Call(build, (op("subtract", n, num(1)), relay.Call(cons, (n, xs))))
    mod[build] = relay.Function([n, xs], relay.If(op("equal", n, num(0)), xs, more))
    a, b = relay.var("a"), relay.var("b")
    total = relay.Call(fold, (relay.Function([a, b], op("add", a, b)), num(0), relay.Call(build, (num(6_000), nil()))))
    assert int(run(total, mod).numpy()) == 6_000 * 6_001 // 2
    long = run(relay.Call(build, (num(1), nil())), mod)
    assert long.constructor is cons and int(long.fields[0].numpy()) == 1
    for _ in range(100_000):
        long = type(long)(long.tag, [long.fields[0], long], cons)
    del long  # a list of 100,000 nodes is freed without recursion


def test_deep_recursion_ends_with_an_error():
    down, i = relay.GlobalVar("down"), relay.var("i")
    mod = ir.IRModule({down: relay.Function([i], op("negative", relay.Call(down, (i,))))})
    refuses(RecursionTooDeep, "down: more than 5000 nested calls", Interpreter(mod, max_depth=5000).function("down"), 1)


def test_nested_expressions_of_any_depth():
    expr = num(0)
    for _ in range(30_000):
        expr = op("add", expr, num(1))
    assert int(run(expr).numpy()) == 30_000
    x = relay.var("x0")
    chain = x
    for i in range(20_000):
        chain = relay.Let(relay.var(f"y{i}"), x, chain)
    assert int(run(relay.Let(x, num(7), chain)).numpy()) == 7


def test_references():
    r = relay.var("r")
    body = seq(relay.RefWrite(r, op("add", relay.RefRead(r), num(1))), relay.Tuple((relay.RefRead(r), r)))
    value, cell = run(relay.Let(r, relay.RefCreate(num(4)), body))
    assert int(value.numpy()) == 5 and isinstance(cell, RefValue) and int(cell.value.numpy()) == 5
    cell.value = 9
    assert int(run(relay.Function([r], relay.RefRead(r)))(cell).numpy()) == 9


def test_arguments_are_evaluated_left_to_right():
    value, log = log_of(lambda log: op("subtract", logged(log, 7), logged(log, 3)))
    assert (int(value.numpy()), log) == (4, 73)
    value, log = log_of(lambda log: relay.Tuple((logged(log, 1), logged(log, 2), logged(log, 3))))
    assert log == 123
    a, b = relay.var("a"), relay.var("b")
    chosen = lambda log: relay.Call(seq(logged(log, 1), relay.Function([a, b], b)), (logged(log, 2), logged(log, 3)))  # noqa: E731
    assert log_of(chosen)[1] == 123


def test_only_the_chosen_branch_is_evaluated():
    for cond, expected in ((True, 1), (False, 2)):
        _, log = log_of(lambda log, c=cond: relay.If(num(c, "bool"), logged(log, 1), logged(log, 2)))
        assert log == expected


def test_a_shared_expression_is_evaluated_once():
    def twice(log):
        s = logged(log, 1)
        return op("add", s, s)

    assert log_of(twice)[1] == 1

    def in_both_branches(log):
        s = logged(log, 1)
        return relay.If(num(False, "bool"), s, op("add", s, logged(log, 2)))

    assert log_of(in_both_branches)[1] == 12

    def in_a_branch_and_behind(log):
        s = logged(log, 1)
        return op("add", relay.If(num(False, "bool"), s, logged(log, 2)), s)

    assert log_of(in_a_branch_and_behind)[1] == 12

    def in_a_function_and_outside(log):
        s, f = logged(log, 1), relay.var("f")
        call = relay.Call(f, ())
        return relay.Let(f, relay.Function([], op("add", s, s)), relay.Tuple((call, relay.Call(f, ()), s)))

    assert log_of(in_a_function_and_outside)[1] == 1

    def in_a_function_only(log):
        s, f = logged(log, 1), relay.var("f")
        return relay.Let(f, relay.Function([], op("add", s, s)), relay.Tuple((relay.Call(f, ()), relay.Call(f, ()))))

    assert log_of(in_a_function_only)[1] == 11

    def two_levels_of_branches(log):
        s = logged(log, 1)
        inner = relay.If(num(True, "bool"), s, op("negative", s))
        return op("add", relay.If(num(True, "bool"), inner, logged(log, 3)), logged(log, 2))

    assert log_of(two_levels_of_branches)[1] == 12


def test_a_graph_of_exponentially_many_paths():
    expr = num(1, "int64")
    for _ in range(60):
        expr = op("add", expr, expr)
    assert int(run(expr).numpy()) == 2**60


def test_match_of_nested_patterns():
    mod, cons, nil = lists()
    x, y, rest, other = (relay.var(v) for v in ("x", "y", "rest", "other"))
    var, con = relay.PatternVar, relay.PatternConstructor
    two = con(cons, (relay.PatternTuple((var(x), relay.PatternWildcard())), con(cons, (var(y), var(rest)))))
    f = relay.Function(
        [other],
        relay.Match(
            other,
            (
                relay.Clause(two, relay.Tuple((x, relay.TupleGetItem(y, 1)))),
                relay.Clause(relay.PatternWildcard(), relay.Tuple((num(-1), num(-1)))),
            ),
        ),
    )
    pairs = ConstructorValue(1, [(1, 2), ConstructorValue(1, [(3, 4), ConstructorValue(2)])])
    run_f = Interpreter(mod).evaluate(f)
    assert [int(v.numpy()) for v in run_f(pairs)] == [1, 4]
    assert [int(v.numpy()) for v in run_f(ConstructorValue(2, [], nil))] == [-1, -1]


def test_a_match_without_a_clause_for_the_value_says_where():
    mod, cons, nil = lists()
    span = ir.Span("program.rly", 3, 3, 9, 20)
    match = relay.Match(
        relay.Call(cons, (num(1), nil())),
        (relay.Clause(relay.PatternConstructor(nil), num(0)),),
        complete=False,
        span=span,
    )
    e = refuses(error.EvaluationError, "no clause", run, match, mod)
    assert e.where is span and "Cons" in str(e) and "program.rly:3:9" in str(e)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (relay.If(num(1), num(1), num(2)), "scalar bool"),
        (relay.var("x"), "'x' is not bound"),
        (relay.Call(num(1), ()), "only a function"),
        (relay.Call(relay.Function([relay.var("x")], num(1)), ()), "other arguments"),
        (relay.TupleGetItem(num(1), 0), "not a tuple"),
        (relay.RefRead(num(1)), "not a reference"),
        (relay.GlobalVar("f"), "no function 'f'"),
        (op("add", num([1, 2]), num([1, 2, 3])), "add"),
    ],
)
def test_errors(expr, message):
    refuses((error.EvaluationError, error.InvalidArgument), message, run, expr)


def test_arguments_must_have_the_parameters_types():
    f = run(relay.Function([relay.var("x", shape=(2, relay.Any()), dtype="float32")], num(1)))
    f(np.zeros((2, 0), "float32"))
    for bad, message in (
        (np.zeros((2, 2)), "data type"),
        (np.zeros((3, 2), "float32"), "shape"),
        (np.zeros(2, "float32"), "shape"),
        ("text", "no value"),
    ):
        refuses(error.InvalidArgument, message, f, bad)
    refuses(error.InvalidArgument, "other arguments", f)


def test_results_are_tensors_of_the_runtime():
    x = relay.var("x")
    f = run(relay.Function([x], relay.Tuple((x, num([1, 2])))))
    for t in (*f(np.float32([1, 2])), *f(tensor(np.zeros((0, 2), "int8")))):
        assert isinstance(t, Tensor) and isinstance(t.handle, tvm_ffi.Tensor)


def test_operators_that_say_where_something_is_computed_give_it():
    mod, cons, nil = lists()
    x = relay.var("x")
    for value in (num(3), relay.Call(cons, (num(3), nil())), relay.Function([x], x), relay.Tuple((num(1), num(2)))):
        got, plain = run(relay.annotation.on_device(value, "cpu:0"), mod), run(value, mod)
        assert type(got) is type(plain)
