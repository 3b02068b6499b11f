"""Names of intermediate results: what is shared is computed once, where all its uses see it."""

from weft import ir, relay
from weft.relay.expr import let_chain
from weft.relay.transform import ToANormalForm, ToANormalFormExpr

CELL = relay.TensorType((2,))


def anf(body, *params, **options):
    return ToANormalForm(**options)(ir.IRModule({"main": relay.Function(params, body)}))["main"].body


def call(op, *args):
    return relay.Call(ir.Op.get(op), args)


def test_constants_get_names_in_order():
    x, y, z = relay.const(1), relay.const(2), relay.const(3)
    a, b, c, d, e = (relay.var(n, "int32") for n in "abcde")
    expected = relay.Let(e, call("add", a, relay.var("t", "int32")), e)
    p, q = relay.var("p"), relay.var("q")
    expected = relay.Let(q, call("add", a, p), q)
    expected = relay.Let(p, call("multiply", b, c), expected)
    for var, value in ((c, z), (b, y), (a, x)):
        expected = relay.Let(var, value, expected)
    ir.assert_structural_equal(anf(x + y * z), expected)
    q = relay.var("q")
    p = relay.var("p")
    expected = relay.Let(p, call("multiply", y, z), relay.Let(q, call("add", x, p), q))
    ir.assert_structural_equal(anf(x + y * z, bind_constants=False), expected)


def test_branches_are_scopes():
    x, c = relay.var("x", CELL), relay.var("c", "bool")
    shared, inner = x + x, x * x
    nested = relay.If(c, inner, call("negative", inner))
    bindings, result = let_chain(anf(relay.If(c, shared, call("add", shared, nested)), x, c))
    assert [type(v) for _, v in bindings] == [relay.Call, relay.If] and result is bindings[-1][0]
    choice = bindings[1][1]
    assert choice.true_branch is bindings[0][0]
    within, _ = let_chain(choice.false_branch)
    assert [type(v) for _, v in within] == [relay.Call, relay.If, relay.Call]
    assert within[1][1].true_branch is within[0][0]


def test_lets_in_values_are_flattened():
    x, a, b = relay.var("x", CELL), relay.var("a"), relay.var("b")
    body = relay.Let(b, relay.Let(a, x + x, call("multiply", a, a)), call("negative", b))
    bindings, _ = let_chain(anf(body, x))
    assert [v for v, _ in bindings][:2] == [a, b] and len(bindings) == 3


def test_lets_of_names_are_bound_where_all_their_uses_see_them():
    x, z, c = relay.var("x", CELL), relay.var("z", CELL), relay.var("c", "bool")
    shared = relay.Let(z, x, z)
    bindings, _ = let_chain(anf(relay.If(c, shared, shared), x, c))
    assert bindings[0] == (z, x) and bindings[1][1].true_branch is z and bindings[1][1].false_branch is z


def test_functions_and_matches_hold_lets():
    make = relay.Constructor("Make", (CELL,), relay.GlobalTypeVar("cell"))
    x, y, v = relay.var("x", CELL), relay.var("y", CELL), relay.var("v")
    shared = x * x
    f = relay.Function([y], call("add", call("add", y, shared), y))
    clause = relay.Clause(relay.PatternConstructor(make, (relay.PatternVar(v),)), call("add", v + v, shared))
    body = relay.Match(make(f(shared)), (clause,))
    bindings, _ = let_chain(anf(body, x))
    assert [type(e) for _, e in bindings] == [relay.Call, relay.Function, relay.Call, relay.Call, relay.Match]
    assert len(let_chain(bindings[1][1].body)[0]) == 2
    assert len(let_chain(bindings[4][1].clauses[0].rhs)[0]) == 2


def test_primitive_functions_stay():
    x, y = relay.var("x", CELL), relay.var("y", CELL)
    f = relay.Function([y], (y + y) * y, attrs={"Primitive": 1})
    bindings, _ = let_chain(anf(f(x + x), x))
    assert bindings[0][1] is f and len(bindings) == 3


def test_again_is_the_same():
    x = relay.var("x", CELL)
    mod = ir.IRModule({"main": relay.Function([x], relay.If(relay.const(True), x * x, x + x * x))})
    once = ToANormalForm()(mod)
    assert ToANormalForm()(once) is once


def test_graphs_with_many_paths_and_long_chains():
    x = relay.var("x", CELL)
    wide = deep = x
    for _ in range(100):
        wide = wide + wide
    assert len(let_chain(anf(wide, x))[0]) == 100
    for _ in range(10_000):
        deep = call("add", deep, x)
    assert len(let_chain(anf(deep, x))[0]) == 10_000


def test_expressions():
    x = relay.var("x", CELL)
    made = ToANormalFormExpr(x + x * x)
    assert len(let_chain(made)[0]) == 2 and ToANormalFormExpr(made) is made
    assert type(ToANormalFormExpr(relay.Function([x], x + x)).body) is relay.Let
