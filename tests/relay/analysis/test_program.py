"""Kinds, features, call graphs and counts of programs."""

import pytest

from tests.refusals import refuses
from weft import error, ir, relay
from weft.relay.analysis import CallGraph, Feature, check_kind, detect_feature, get_total_mac_number
from weft.relay.op import op_call

INT = relay.scalar_type("int32")


def var(name, *shape):
    return relay.var(name, shape=shape)


def test_kinds():
    a = relay.TypeVar("A")
    assert check_kind(INT) == relay.TypeKind.Type
    assert check_kind(relay.TupleType((INT, a))) == relay.TypeKind.Type
    assert check_kind(relay.FuncType((a,), INT, (a,))) == relay.TypeKind.Type
    assert check_kind(relay.RefType(INT)) == relay.TypeKind.Type
    assert check_kind(relay.TypeVar("s", relay.TypeKind.ShapeVar)) == relay.TypeKind.ShapeVar
    assert check_kind(relay.IncompleteType()) == relay.TypeKind.Type


def test_data_types_have_kinds():
    mod = ir.IRModule()
    a, header = relay.TypeVar("A"), relay.GlobalTypeVar("List")
    data = relay.TypeData(header, (a,), (relay.Constructor("Cons", (a, header(a)), header),))
    mod[header] = data
    assert check_kind(header, mod) == relay.TypeKind.AdtHandle
    assert check_kind(data, mod) == relay.TypeKind.TypeData
    assert check_kind(header(INT), mod) == relay.TypeKind.Type
    refuses(error.InvalidArgument, "number of type parameters", check_kind, header(INT, INT), mod)
    refuses(error.InvalidArgument, "no data type 'Set'", check_kind, relay.GlobalTypeVar("Set")(INT), mod)
    refuses(error.InvalidArgument, "the kind AdtHandle", check_kind, relay.TupleType((header,)), mod)


@pytest.mark.parametrize("kind", [relay.TypeKind.ShapeVar, relay.TypeKind.BaseType, relay.TypeKind.AdtHandle])
def test_parts_that_are_no_types_of_values(kind):
    v = relay.TypeVar("v", kind)
    for wrong in (
        relay.TupleType((INT, v)),
        relay.RefType(v),
        relay.FuncType((v,), INT),
        relay.FuncType((), v),
        relay.FuncType((INT,), INT, (v,)),
        relay.TypeCall(INT, ()),
        relay.TypeCall(relay.GlobalTypeVar("L"), (v,)),
    ):
        refuses(error.InvalidArgument, "the kind", check_kind, wrong)


def test_features():
    x, y = var("x"), relay.Var("y")
    assert detect_feature(x) == {Feature.fVar}
    assert detect_feature(relay.Let(y, x + x, y)) == {Feature.fVar, Feature.fLet, Feature.fCall, Feature.fOp}
    shared = x + x
    assert Feature.fGraph in detect_feature(shared * shared)
    f = relay.Var("f")
    assert Feature.fLetRec in detect_feature(relay.Let(f, relay.Function((x,), f(x)), f))
    assert Feature.fLetRec not in detect_feature(relay.Let(f, relay.Function((x,), x), f))
    mod = ir.IRModule({"main": relay.Function((x,), relay.RefRead(relay.RefCreate(x)))})
    assert {Feature.fRefRead, Feature.fRefCreate, Feature.fFunction} <= detect_feature(mod)
    assert Feature.fIf in detect_feature(relay.If(relay.const(True), x, x), mod)


def test_call_graph():
    mod = relay.fromtext("""
def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) -> bool { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
def @loop(%n: int32) -> int32 { @loop(%n) }
def @twice(%f: fn(int32) -> bool) -> bool { logical_and(%f(1), %f(2)) }
def @main() { (@twice(@even), @twice(@even)) }
def @unused() { 1 }
""")
    graph = CallGraph(mod)

    def names(found):
        return [v.name_hint for v in found]

    assert names(graph.callees("main")) == ["twice", "even"]
    assert names(graph.callers("even")) == ["odd", "main"]
    assert graph.ref_count("even") == 3
    assert graph.global_call_count("main") == 4
    assert [graph.is_recursive(v) for v in mod.functions] == [True, True, True, False, False, False]
    assert names(graph.entries()) == ["loop", "main", "unused"]
    assert set(names(graph.reachable("main"))) == {"main", "twice", "even", "odd"}
    groups = [set(names(g)) for g in graph.groups()]
    assert {"even", "odd"} in groups
    assert groups.index({"even", "odd"}) < groups.index({"main"})
    assert "@main, referred to 0 times\n  refers to @twice 2 times" in str(graph)


def test_call_graph_of_a_long_chain():
    x = relay.Var("x", INT)
    functions = {"f0": relay.Function((x,), x, INT)}
    for i in range(1, 3000):
        functions[f"f{i}"] = relay.Function((x,), relay.GlobalVar(f"f{i - 1}")(x), INT)
    groups = CallGraph(ir.IRModule(dict(reversed(functions.items())))).groups()
    assert [g[0].name_hint for g in groups] == [f"f{i}" for i in range(3000)]


def test_multiply_accumulates():
    x, w = var("x", 2, 3, 8, 8), var("w", 16, 3, 3, 3)
    conv = op_call("nn.conv2d", x, w, strides=(2, 2), padding=(1, 1), channels=16, kernel_size=(3, 3))
    assert get_total_mac_number(relay.infer_type(conv)) == 2 * 16 * 4 * 4 * 3 * 9
    grouped = op_call("nn.conv2d", x, var("d", 3, 1, 3, 3), padding=(1, 1), channels=3, kernel_size=(3, 3), groups=3)
    assert get_total_mac_number(relay.infer_type(grouped)) == 2 * 3 * 8 * 8 * 9
    a, b = var("a", 5, 7), var("b", 11, 7)
    dense = relay.infer_type(relay.Function((a, b), op_call("nn.dense", a, b)))
    assert get_total_mac_number(dense) == 5 * 7 * 11
    batch = op_call("nn.batch_matmul", var("p", 4, 5, 7), var("q", 4, 11, 7))
    assert get_total_mac_number(relay.infer_type(batch)) == 4 * 5 * 7 * 11
    unknown = op_call("nn.dense", relay.Var("u", relay.TensorType((relay.Any(), 7), "float32")), b)
    refuses(error.InvalidArgument, "shapes are constant", get_total_mac_number, relay.infer_type(unknown))
