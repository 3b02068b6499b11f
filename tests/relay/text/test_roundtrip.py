"""Whatever programs there are survive being printed and parsed: operators, networks, lowered modules."""

import pytest

from tests.relay.op import cases  # noqa: F401 - registers the cases
from tests.relay.op.contract import CASES, drawn, typed_call
from tests.relay.text.programs import PROGRAMS
from weft import ir, relay
from weft.relay import analysis, parse, testing, transform


def check(mod):
    ir.assert_structural_equal(parse(mod.astext()), mod, map_free_vars=True)  # variables of kernels' dimensions


@pytest.mark.parametrize("name", sorted(CASES))
def test_operators(name):
    for index in range(len(CASES[name])):
        node = typed_call(name, next(iter(drawn(name, index))))
        func = relay.Function(analysis.free_vars(node), node)
        ir.assert_structural_equal(parse(ir.IRModule.from_expr(func).astext())["main"], func)


@pytest.mark.parametrize(
    ("network", "sizes"), [("mlp", (1,)), ("lstm", (2, 3)), ("dcgan", (1,)), ("resnet", (1, 10, 18))]
)
def test_networks(network, sizes):
    check(ir.IRModule.from_expr(getattr(testing, network).get_net(*sizes)))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"patterns"}))
def test_programs_on_their_way_to_the_machine(name):
    mod = parse(PROGRAMS[name])
    for step in (
        transform.InferType(),
        transform.ToANormalForm(),
        transform.LambdaLift(),
        transform.InferType(),
        transform.LowerRegions("llvm"),
        transform.ManifestAlloc("llvm"),
    ):
        mod = step(mod)
        check(mod)
        ir.assert_structural_equal(ir.load_json(ir.save_json(mod)), mod, map_free_vars=True)


def test_attributes_of_modules():
    infos = {"vdevice": (ir.VDevice("llvm", 1, "global"), ir.VDevice("cuda"))}
    check(ir.IRModule({"f": parse("def @f() { 1 }")["f"]}, {"executor": "vm", "sizes": (1, 2.5)}, infos))


def test_spans_are_annotated():
    x = relay.var("x", shape=(2,))
    mod = transform.AnnotateSpans()(ir.IRModule.from_expr(relay.Function([x], x + relay.exp(x))))
    body = mod["main"].body
    assert body.ty == relay.TensorType((2,)) and body.span.line == 4 and body.args[1].span.line == 3
    assert "GeneratedSource" in body.span.file
