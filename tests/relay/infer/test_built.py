"""Errors of programs that are made by hand, which have no text or whose mistakes the parser would find first."""

from tests.refusals import refuses
from weft import error, ir, relay

INT = relay.scalar_type("int32")


def module(**functions):
    return ir.IRModule(functions)


def fails(program, *parts, mod=None):
    text = str(refuses(error.TypeInferenceError, "", relay.infer_type, program, mod))
    for p in parts:
        assert p in text, text


def test_unbound_variable():
    y = relay.Var("y", INT)
    fails(module(main=relay.Function((), y)), "variable '%y' is not bound")
    assert relay.infer_type(y).ty == INT, "a free variable of an expression is its input"


def test_unknown_operator():
    call = relay.Call(ir.Op.get("nn.densely"), (relay.const(1),), span=ir.Span("net", 3, column=7))
    fails(call, "nn.densely", "--> net:3:7")


def test_operator_that_is_a_value():
    fails(relay.Tuple((ir.Op.get("add"),)), "operator 'add' is used as a value", "wrap it")


def test_attribute_of_an_operator():
    call = relay.Call(ir.Op.get("exp"), (relay.const(1.0),), {"axis": 1}, span=ir.Span("net", 3, column=7))
    fails(call, "'exp' has no attribute 'axis'", "--> net:3:7")


def test_place_without_source():
    x = relay.Var("x", INT)
    fails(module(main=relay.Function((x,), relay.TupleGetItem(x, 0))), "--> in function 'main': `%x.0`")


def test_number_of_type_arguments():
    a = relay.TypeVar("A")
    x = relay.Var("x", a)
    mod = module(id=relay.Function((x,), x, a, (a,)))
    g = mod.get_global_var("id")
    fails(relay.Call(g, (relay.const(1),), None, (INT, INT)), "2 type arguments", "expected 1", mod=mod)
    fails(
        relay.Call(g, (relay.const(1),), None, (relay.scalar_type("float32"),)),
        "expected float32, found int32",
        mod=mod,
    )
    assert relay.infer_type(relay.Call(g, (relay.const(1),), None, (INT,)), mod).ty == INT


def test_unknown_data_types_and_constructors():
    option, lists = relay.GlobalTypeVar("Option"), relay.GlobalTypeVar("List")
    a = relay.TypeVar("A")
    some = relay.Constructor("Some", (a,), option)
    mod = ir.IRModule()
    mod[option] = relay.TypeData(option, (a,), (some,))
    fails(relay.Var("x", lists(INT)), "no data type 'List'", "found Option", mod=mod)
    fails(relay.Constructor("Nil", (), lists)(), "no data type 'List'", mod=mod)
    fails(relay.Constructor("Maybe", (a,), option)(relay.const(1)), "has no constructor 'Maybe'", "Some", mod=mod)
    assert relay.infer_type(some(relay.const(1)), mod).ty == option(INT)


def test_duplicate_definitions():
    one, two = relay.GlobalTypeVar("T"), relay.GlobalTypeVar("T")
    mod = ir.IRModule()
    mod[one] = relay.TypeData(one, (), (relay.Constructor("A", (), one),))
    mod[two] = relay.TypeData(two, (), (relay.Constructor("B", (), two),))
    fails(mod, "data type 'T' is defined twice")
    other = relay.GlobalTypeVar("U")
    mod = ir.IRModule()
    mod[one] = relay.TypeData(one, (), (relay.Constructor("A", (), one),))
    mod[other] = relay.TypeData(other, (), (relay.Constructor("A", (), other),))
    fails(mod, "constructor 'A' is defined twice", "'T'", "'U'")


def test_definition_that_names_what_is_not_there():
    t = relay.GlobalTypeVar("T")
    mod = ir.IRModule()
    mod[t] = relay.TypeData(t, (), (relay.Constructor("A", (relay.GlobalTypeVar("U")(),), t),))
    fails(mod, "no data type 'U'")


def test_parameter_that_stands_twice():
    x = relay.Var("x", INT)
    fails(module(main=relay.Function((x, x), x)), "parameter '%x' stands twice")


def test_a_mistake_is_told_once():
    x = relay.Var("x", INT)
    bad = relay.TupleGetItem(x, 3)
    body = relay.If(relay.const(True), bad + bad, relay.Call(bad, (bad,)))
    caught = refuses(error.TypeInferenceError, "", relay.infer_type, relay.Function((x,), relay.Tuple((body, bad))))
    assert str(caught).count("-->") == 1


def test_type_variable_that_nothing_binds():
    a = relay.TypeVar("A")
    x, g = relay.Var("x", a), relay.Var("g", relay.FuncType((INT,), INT))
    fails(module(main=relay.Function((x,), x)), "type variable 'A' is not bound")
    h = relay.Var("h")
    escaping = relay.Function((h,), relay.Function((x,), h(x), INT, (a,)))
    fails(module(main=escaping), "type variable 'A' is not bound")
    assert relay.infer_type(module(main=relay.Function((x, g), x, None, (a,))))
