"""EtaExpand and InlinePrimitives."""

from tests.relay.test_interpreter import lists
from weft import relay
from weft.ir import IRModule, assert_structural_equal
from weft.relay.expr import lets
from weft.relay.transform import EtaExpand, InlinePrimitives

CELL = relay.TensorType((2,))


def test_global_variables():
    x, y, f = relay.var("x", "int32"), relay.var("y", "int32"), relay.var("f")
    aux = relay.GlobalVar("aux")
    func = relay.Function([x], x, relay.scalar_type("int32"))
    mod = IRModule({aux: func, "main": relay.Function([f], relay.Tuple([f(aux), aux(f), relay.RefCreate(aux)]))})
    assert EtaExpand()(mod) is mod
    made = relay.Function([y], aux(y), relay.scalar_type("int32"))
    expected = IRModule({aux: func, "main": relay.Function([f], relay.Tuple([f(made), aux(f), relay.RefCreate(made)]))})
    result = EtaExpand(expand_global_var=True)(mod)
    assert_structural_equal(result, expected)
    assert EtaExpand(expand_global_var=True)(result) is result


def test_constructors():
    (mod, cons, nil), b = lists(), relay.TypeVar("B")
    mod["main"] = relay.Function([], relay.Tuple([cons, nil()]))
    type_of = cons.belong_to(b)
    x, xs = relay.var("x", b), relay.var("xs", type_of)
    made = relay.Function([x, xs], cons(x, xs), type_of, [b])
    result = EtaExpand(expand_constructor=True)(mod)
    assert_structural_equal(result["main"].body, relay.Tuple([made, nil()]))
    assert result["main"].body.fields[0].type_params[0] is not cons.inputs[0]


def test_primitives():
    x, y, f, g, h, z = (relay.var(n, CELL) for n in "xyfghz")
    prim = relay.Function([y], y + y, attrs={"Primitive": 1})
    plain = relay.Function([y], y * y)
    body = lets([(f, prim), (g, f), (h, plain), (z, g(x))], relay.Tuple([h(z), f(z)]))
    mod = IRModule({"main": relay.Function([x], body)})
    expected = lets([(h, plain), (z, prim(x))], relay.Tuple([h(z), prim(z)]))
    result = InlinePrimitives()(mod)
    assert_structural_equal(result["main"], relay.Function([x], expected))
    assert InlinePrimitives()(result) is result
    kept = IRModule({"main": relay.Function([x], lets([(f, prim)], relay.Tuple([f(x), f])))})
    expected = lets([(f, prim)], relay.Tuple([prim(x), f]))
    assert_structural_equal(InlinePrimitives()(kept)["main"].body, expected, map_free_vars=True)


def test_passes_as_users_write_them():
    @relay.transform.function_pass(opt_level=1)
    class Swap:
        def __init__(self, name):
            self.name = name

        def transform_function(self, func, mod, ctx):
            return func.with_attr("name", self.name)

    made = Swap("here")
    assert isinstance(made, relay.transform.FunctionPass) and made.info.opt_level == 1
    assert made(IRModule({"main": relay.Function([], relay.const(1))}))["main"].attrs["name"] == "here"
