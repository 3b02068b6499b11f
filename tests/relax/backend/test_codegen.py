"""External code generators: groups by registered patterns, compiled to C, run by the machine."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import written
from weft import error, relax
from weft.relax.backend import get_pattern, get_patterns_with_prefix, patterns, register_patterns
from weft.relax.dpl import is_op, wildcard
from weft.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen

MODULE = written("""
x: (4, 6), y: (4, 6)
a = R.add(x, y)
b = R.nn.relu(a)
c = R.multiply(b, x)
d = R.sum(c, axis=[1])
""")
SUM = is_op("relax.add")(wildcard(), wildcard())
RULES = [
    ("ccompiler.add_relu", is_op("relax.nn.relu")(SUM)),
    ("ccompiler.multiply", is_op("relax.multiply")(wildcard(), wildcard())),
]


def compiled(merge):
    register_patterns(RULES)
    mod = FuseOpsByPattern(get_patterns_with_prefix("ccompiler."), annotate_codegen=not merge)(MODULE)
    return RunCodegen()(MergeCompositeFunctions()(mod) if merge else mod)


@pytest.mark.parametrize("merge", [True, False])
def test_groups_run_as_c(merge):
    mod = compiled(merge)
    assert [v.name_hint for v, _ in mod.items()] == ["main"]
    assert len(mod.attrs["external_mods"]) == (1 if merge else 2)
    assert "R.call_dps_packed" in mod.script()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 6)).astype("float32") for _ in range(2))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())
    np.testing.assert_allclose(vm["main"](x, y).numpy(), (np.maximum(x + y, 0) * x).sum(1), rtol=1e-5, atol=1e-5)


def test_a_generator_of_ones_own_gets_functions_and_options():
    seen = []

    @weft.register_global_func("relax.ext.test_own", override=True)
    def generate(functions, options, names):
        seen.append((len(functions), dict(options)))
        return relax.backend.c_source.compile_to_c(functions)

    mod = FuseOpsByPattern([("test_own.sum", SUM)], annotate_codegen=True)(MODULE)
    RunCodegen({"test_own": {"level": 3}})(mod)
    assert seen == [(1, {"level": 3})]


def test_an_unknown_generator_is_said():
    mod = FuseOpsByPattern([("nobody.sum", SUM)], annotate_codegen=True)(MODULE)
    refuses(error.CodegenError, r"relax\.ext\.nobody", RunCodegen(), mod)
    assert RunCodegen()(MODULE) is MODULE


def test_patterns_are_found_by_name():
    register_patterns([("reg.a", SUM), ("reg.b", SUM)])
    assert [p.name for p in get_patterns_with_prefix("reg.")] == ["reg.b", "reg.a"]
    assert get_pattern("reg.a").name == "reg.a" and get_pattern("reg.c") is None
    refuses(error.InvalidArgument, "FusionPattern", register_patterns, ["reg.a"])


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        (
            patterns.make_matmul_pattern(with_bias=True, activation="relax.nn.relu", transposed_rhs=True),
            {"lhs", "rhs", "root", "bias"},
        ),
        (patterns.make_conv2d_pattern(), {"input", "weight", "root"}),
        (patterns.make_residual_block_pattern(patterns.make_conv2d_pattern()), {"input", "weight", "root", "residual"}),
    ],
)
def test_ready_patterns_name_their_parts(made, parts):
    assert set(made[1]) == parts
