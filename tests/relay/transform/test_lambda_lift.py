"""Local functions move into the module; what they capture goes into closures."""

from weft import ir, relay
from weft.relay.expr import let_chain
from weft.relay.transform import LambdaLift, ToANormalForm
from weft.relay.transform.free import Captures
from weft.relay.walk import subexpressions

CELL = relay.TensorType((2,))


def lift(body, *params):
    mod = ir.IRModule({"main": relay.Function(params, body)})
    lifted = LambdaLift()(mod)
    assert LambdaLift()(lifted) is lifted
    for f in lifted.functions.values():
        assert not Captures().variables(f)
        code = f.body if f.attrs.get("Closure") else f
        assert not any(type(e) is relay.Function for e in subexpressions(code.body))
    return lifted


def test_closures_of_closures():
    x, y = relay.var("x", CELL), relay.var("y", CELL)
    outer = relay.Function([y], relay.Function([x], x + y))
    mod = lift(outer(relay.const([1.0, 2.0]))(relay.const([0.0, 0.0])))
    assert [v.name_hint for v in mod] == ["main", "lifted_name1", "lifted_name2"]
    assert not mod["lifted_name1"].attrs.get("Closure") and mod["lifted_name2"].attrs["Closure"] == 1


def test_a_recursive_closure_makes_itself():
    x, i, s, loop = relay.var("x", CELL), relay.var("i", "int32"), relay.var("s", CELL), relay.var("loop")
    func = relay.Function([i, s], relay.If(i < 10, loop(i + 1, s + x), s))
    mod = lift(relay.Let(loop, func, loop), x)
    assert len(mod) == 2
    holder = mod["lifted_name1"]
    (held,), itself = holder.params, relay.var("loop")
    own = relay.Function(
        [i, s],
        relay.Let(itself, mod.get_global_var("lifted_name1")(held), relay.If(i < 10, itself(i + 1, s + held), s)),
    )
    assert held is not x
    ir.assert_structural_equal(holder.body, own)


def test_functions_that_are_only_called_take_what_they_captured():
    x, i, s, loop = relay.var("x", CELL), relay.var("i", "int32"), relay.var("s", CELL), relay.var("loop")
    func = relay.Function([i, s], relay.If(i < 10, loop(i + 1, s + x), s))
    mod = lift(relay.Let(loop, func, loop(0, x)), x)
    target, held = mod.get_global_var("lifted_name1"), relay.var("x", CELL)
    expected = relay.Function([held, i, s], relay.If(i < 10, target(held, i + 1, s + held), s))
    ir.assert_structural_equal(mod["lifted_name1"], expected)
    ir.assert_structural_equal(mod["main"], relay.Function([x], target(x, 0, x)))


def test_what_they_captured_is_handed_on():
    x, y, n, f, g, h = (relay.var(v, "int32") for v in "xynfgh")
    inner = relay.Function([n], f(n) + y)
    body = relay.Let(f, relay.Function([n], n + x), relay.Let(g, inner, relay.Let(h, relay.Function([], g(y)), h())))
    mod = lift(body, x, y)
    assert [len(mod[f"lifted_name{i}"].params) for i in (1, 2, 3)] == [2, 3, 2]
    assert not any(f.attrs for f in mod.functions.values())
    mod = lift(relay.Let(f, relay.Function([n], n + x), relay.Function([n], f(n))), x)
    assert mod["lifted_name2"].attrs["Closure"] == 1 and [p.name_hint for p in mod["lifted_name2"].params] == ["x"]


def test_functions_without_captures_are_called_by_name():
    n, f = relay.var("n", "int32"), relay.var("f")
    func = relay.Function([n], relay.If(n < 1, n, f(n - 1)))
    mod = lift(relay.Let(f, func, f(10)))
    target = mod.get_global_var("lifted_name1")
    assert mod["main"].body.op is target
    assert mod["lifted_name1"].body.false_branch.op is target and not mod["lifted_name1"].attrs


def test_closures_capture_recursive_functions():
    x, n, m, f, g = (
        relay.var("x", CELL),
        relay.var("n", "int32"),
        relay.var("m", "int32"),
        relay.var("f"),
        relay.var("g"),
    )
    again = relay.Function([m], f(m - 1))
    func = relay.Function([n], relay.If(n < 1, x, relay.Let(g, again, g(n))))
    mod = lift(relay.Let(f, func, f(3)), x)
    assert len(mod) == 3 and [p.name_hint for p in mod["lifted_name2"].params] == ["x", "m"]
    mod = lift(relay.Let(f, func, f), x)
    assert len(mod) == 3 and [p.name_hint for p in mod["lifted_name2"].params] == ["f", "m"]
    mod = lift(relay.Let(f, relay.Function([n], relay.Tuple([x, again])), f), x)
    assert mod["lifted_name2"].attrs["Closure"] == 1 and mod["lifted_name2"].params[0].name_hint == "f"
    assert lift(relay.Let(f, relay.Function([n], n), f))["main"].body.name_hint == "lifted_name1"
    free_of_x = relay.Function([n], relay.If(n < 1, n, relay.Let(g, again, g(n))))
    mod = lift(relay.Let(f, free_of_x, f(3)))
    assert len(mod) == 3 and not any(f.attrs for f in mod.functions.values())


def test_type_variables_of_the_function_around():
    t, u = relay.TypeVar("T"), relay.TypeVar("U")
    x, y, z, f = relay.var("x", t), relay.var("y", t), relay.var("z", u), relay.var("f")
    for result in (y, relay.Tuple([x, y])):
        mod = LambdaLift()(ir.IRModule({"main": relay.Function([x], relay.Function([y], result), type_params=[t])}))
        assert mod["lifted_name1"].type_params == (t,) and mod["lifted_name1"].attrs["Closure"] == 1
        assert mod["main"].body.ty_args == (t,)
    nil = relay.Constructor("Nil", (), relay.GlobalTypeVar("List"))
    inner = relay.Function([z], relay.Tuple([relay.Call(nil, (), ty_args=(t,)), z]), type_params=[u])
    body = relay.Let(f, inner, relay.Call(f, (x,), ty_args=(t,)))
    mod = LambdaLift()(ir.IRModule({"main": relay.Function([x], body, type_params=[t])}))
    assert mod["lifted_name1"].type_params == (t, u) and mod["main"].body.ty_args == (t, t)


def test_names_that_are_taken():
    x = relay.var("x", CELL)
    mod = ir.IRModule({"lifted_name1": relay.Function([x], x), "main": relay.Function([], relay.Function([x], x + x))})
    assert set(v.name_hint for v in LambdaLift()(mod)) == {"main", "lifted_name1", "lifted_name2"}


def test_deep_nests_and_long_chains():
    x = relay.var("x", CELL)
    body = x
    for i in range(300):
        v = relay.var(f"v{i}", CELL)
        body = relay.Function([v], relay.Tuple([body, v, x]))
    assert len(lift(body, x)) == 301
    chain = x
    for _ in range(10_000):
        chain = relay.Call(relay.Function([], chain), ()) if _ % 1000 == 0 else chain + x
    mod = ToANormalForm()(ir.IRModule({"main": relay.Function([x], chain)}))
    lifted = LambdaLift()(mod)
    assert len(lifted) == 11 and len(let_chain(lifted["lifted_name1"].body)[0]) == 1000


def test_a_function_that_also_stands_without_its_name_is_a_closure():
    x, a = relay.var("x", CELL), relay.var("a")
    func = relay.Function([], x + x)
    mod = lift(relay.Let(a, func, relay.Tuple([a(), func])), x)
    mod = relay.transform.InferType()(mod)
    assert str(mod["main"].ret_type) == "(Tensor[(2), float32], fn () -> Tensor[(2), float32])"
