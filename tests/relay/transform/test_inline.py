"""Bodies take the place of calls; arguments with effects are computed once."""

from tests.refusals import refuses
from weft import error, ir, relay
from weft.relay.bind import bind, bind_params_by_name
from weft.relay.expr import lets
from weft.relay.transform import Inline
from weft.relay.walk import bound_by, subexpressions

CELL = relay.TensorType((2,))
MARK = {"Inline": 1}


def module(main, **functions):
    return ir.IRModule({**functions, "main": main})


def check(mod, expected, **options):
    result = Inline(**options)(mod)
    ir.assert_structural_equal(result, expected)
    bound = [v for f in result.functions.values() for e in subexpressions(f) for v in bound_by(e)]
    assert len(bound) == len(set(bound))
    assert Inline(**options)(result) is result


def test_levels():
    x, y, p = relay.var("x", CELL), relay.var("y", CELL), relay.var("p", CELL)
    g, h = relay.GlobalVar("g"), relay.GlobalVar("h")
    mod = ir.IRModule(
        {
            g: relay.Function([x], x + x, attrs=MARK),
            h: relay.Function([y], y - g(y), attrs=MARK),
            "main": relay.Function([p], g(p) * h(p)),
        }
    )
    check(mod, module(relay.Function([p], (p + p) * (p - (p + p)))))


def test_functions_as_values():
    p, g, h = relay.var("p", "bool"), relay.GlobalVar("g"), relay.GlobalVar("h")
    one, two = relay.Function([], relay.const(1), attrs=MARK), relay.Function([], relay.const(2), attrs=MARK)
    mod = ir.IRModule({g: one, h: two, "main": relay.Function([p], relay.Call(relay.If(p, g, h), ()))})
    check(mod, module(relay.Function([p], relay.Call(relay.If(p, one, two), ()))))


def test_recursive_functions_stay():
    x, y, main = relay.var("x", CELL), relay.var("y", CELL), relay.var("p", CELL)
    even, odd = relay.GlobalVar("even"), relay.GlobalVar("odd")
    mod = ir.IRModule(
        {
            even: relay.Function([x], odd(x), attrs=MARK),
            odd: relay.Function([y], even(y), attrs=MARK),
            "main": relay.Function([main], odd(main)),
        }
    )
    assert Inline()(mod) is mod and Inline(used_once=True)(mod) is mod


def test_effects_and_loops_get_names():
    x, y, z, p = (relay.var(n, CELL) for n in "xyzp")
    g = relay.GlobalVar("g")
    body = relay.Tuple([x, y, relay.Function([], z)])
    mod = ir.IRModule(
        {g: relay.Function([x, y, z], body, attrs=MARK), "main": relay.Function([p], g(relay.RefRead(p), p * p, p + p))}
    )
    body = relay.Tuple([x, p * p, relay.Function([], z)])
    check(mod, module(relay.Function([p], lets([(x, relay.RefRead(p)), (z, p + p)], body))))


def test_used_once():
    x, y, p = relay.var("x", CELL), relay.var("y", CELL), relay.var("p", CELL)
    g, h = relay.GlobalVar("g"), relay.GlobalVar("h")
    twice = relay.Function([y], y * y)
    mod = ir.IRModule({g: relay.Function([x], x + h(x)), h: twice, "main": relay.Function([p], g(p) - h(p))})
    check(mod, ir.IRModule({h: twice, "main": relay.Function([p], (p + h(p)) - h(p))}), used_once=True)
    assert Inline()(mod) is mod


def test_external_functions_are_called():
    x, p, g = relay.var("x", CELL), relay.var("p", CELL), relay.GlobalVar("g")
    ext = relay.Function([x], x + x, attrs={**MARK, "Compiler": "test"})
    mod = ir.IRModule({g: ext, "main": relay.Function([p], g(p))})
    check(mod, module(relay.Function([p], ext(p))))


def test_types_of_polymorphic_functions():
    t, p = relay.TypeVar("T"), relay.var("p", CELL)
    x, y, g = relay.var("x", t), relay.var("y", t), relay.GlobalVar("g")
    mod = ir.IRModule(
        {
            g: relay.Function([x], lets([(y, x)], y), t, [t], MARK),
            "main": relay.Function([p], relay.Call(g, (p,), ty_args=(CELL,))),
        }
    )
    y = relay.var("y", CELL)
    check(mod, module(relay.Function([p], lets([(y, p)], y))))


def test_bind():
    x, y, z = (relay.var(n, CELL) for n in "xyz")
    func = relay.Function([x, y], x + y)
    ir.assert_structural_equal(bind(func, {x: z * z}), relay.Function([y, z], z * z + y))
    assert bind(func, {z: x}) is func
    ir.assert_structural_equal(bind(x + y, {x: y}), y + y, map_free_vars=True)
    made = bind(relay.Function([y], x + y), {x: y})
    assert made.params[0] is not y and made.body.args[0] is y and made.body.args[1] is made.params[0]


def test_bind_params_by_name():
    x, y = relay.var("x", CELL), relay.var("y", CELL)
    made = bind_params_by_name(relay.Function([x, y], x + y), {"y": relay.const([1.0, 2.0]).data, "other": None})
    assert made.params == (x,) and made.body.args[1].data.numpy().tolist() == [1.0, 2.0]
    whole = relay.Function([n := relay.var("n", shape=(), dtype="int32")], n)
    assert bind_params_by_name(whole, {"n": 2.0}).body.data.numpy() == 2
    refuses(error.InvalidArgument, "'n' is no int32", bind_params_by_name, whole, {"n": -0.5})
