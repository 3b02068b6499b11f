"""Groups of operators by pattern: which form, what their functions are, and that results stay."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import error, relax
from weft.relax.analysis import well_formed
from weft.relax.dpl import is_const, is_op, is_tuple_get_item, make_fused_bias_activation_pattern, wildcard
from weft.relax.transform import FuseOpsByPattern, FusionPattern

MOD = written("""
x: (4, 8), w: (8, 8), b: (8)
a = R.matmul(x, w)
c = R.add(a, b)
d = R.nn.relu(c)
e = R.matmul(d, w)
f = R.nn.relu(e)
g = R.multiply(f, R.const(2.0, "float32"))
h = R.add(g, e)
s = R.split(h, 2, axis=1)
i = R.exp(s[1])
""")


def run(mod):
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, np.float32) for s in ((4, 8), (8, 8), (8,))]
    return relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"](*args).numpy()


EXPECTED = run(MOD)


def groups(mod):
    return {v.name_hint: f for v, f in mod.items() if f.attrs.get("Composite")}


def check(new):
    well_formed(new)
    np.testing.assert_allclose(run(new), EXPECTED, rtol=1e-4, atol=1e-5)
    return groups(new)


def test_bias_and_activation():
    pattern = make_fused_bias_activation_pattern("relax.matmul", with_bias=True, activation="relax.nn.relu")
    found = check(FuseOpsByPattern([("cublas.dense", pattern)])(MOD))
    assert list(found) == ["fused_relax_matmul_relax_add_relax_nn_relu"]
    func = next(iter(found.values()))
    assert (func.attrs["Composite"], func.attrs["Primitive"]) == ("cublas.dense", 1)
    assert [p.name_hint for p in func.params] == ["x", "w", "b"]


def test_values_used_outside_are_no_part_of_a_group():
    pattern = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))
    assert FuseOpsByPattern([("a.b", pattern)])(MOD) is MOD


def test_earlier_patterns_come_first():
    relu = ("a.relu", is_op("relax.nn.relu")(wildcard()))
    long = ("a.long", make_fused_bias_activation_pattern("relax.matmul", with_bias=True, activation="relax.nn.relu"))
    found = check(FuseOpsByPattern([relu, long])(MOD))
    assert [f.attrs["Composite"] for f in found.values()] == ["a.relu", "a.relu"]
    found = check(FuseOpsByPattern([long, relu])(MOD))
    assert sorted(f.attrs["Composite"] for f in found.values()) == ["a.long", "a.relu"]


@pytest.mark.parametrize("bind", [True, False])
def test_constants(bind):
    pattern = is_op("relax.multiply")(wildcard(), is_const())
    (func,) = check(FuseOpsByPattern([("a.scale", pattern)], bind_constants=bind)(MOD)).values()
    assert len(func.params) == (1 if bind else 2)


def test_elements_of_tuples():
    """A group with a tuple inside is no kernel, but a function."""
    pattern = is_op("relax.exp")(is_tuple_get_item(is_op("relax.split")(wildcard()), 1))
    (func,) = check(FuseOpsByPattern([("a.half", pattern)])(MOD)).values()
    assert len(func.body.blocks[0].bindings) == 3


def test_checks_and_attributes():
    x, w = wildcard(), wildcard()
    matmul = is_op("relax.matmul")(x, w)
    seen = []

    def accept(context):
        seen.append(context)
        return context.annotated_expr["lhs"].name_hint == "x"

    parts = {"lhs": x, "rhs": w, "root": matmul}
    pattern = FusionPattern("a.matmul", matmul, parts, accept, lambda found: {"weight": found["rhs"].name_hint})
    (func,) = check(FuseOpsByPattern([pattern])(MOD)).values()
    assert func.attrs["weight"] == "w"
    assert len(seen) == 2
    context = seen[-1]
    assert context.matched_expr.op.name == "relax.matmul"
    assert [v.name_hint for v in context.matched_bindings] == ["a"]
    assert context.value_to_bound_var[context.matched_expr].name_hint == "a"
    assert [v.name_hint for v in context.var_usages[context.annotated_expr["rhs"]]] == ["a", "e"]


def test_code_generators():
    pattern = is_op("relax.matmul")(wildcard(), wildcard())
    new = FuseOpsByPattern([("blas.matmul", pattern)], annotate_codegen=True)(MOD)
    well_formed(new)
    outer = [f for _, f in new.items() if f.attrs.get("Codegen")]
    assert {f.attrs["Codegen"] for f in outer} == {"blas"}
    assert all(f.attrs["global_symbol"].startswith("fused_relax_matmul") for f in outer)
    np.testing.assert_allclose(run(new), EXPECTED, rtol=1e-4, atol=1e-5)


def test_only_where_asked():
    pattern = is_op("relax.matmul")(wildcard(), wildcard())
    assert FuseOpsByPattern([("a.b", pattern)], entry_functions=[])(MOD) is MOD
    assert len(check(FuseOpsByPattern([("a.b", pattern)], entry_functions=["main"])(MOD))) == 2
    with pytest.raises(error.InvalidArgument, match="no function 'other'"):
        FuseOpsByPattern([("a.b", pattern)], entry_functions=["other"])(MOD)
    once = FuseOpsByPattern([("a.b", pattern)])(MOD)
    assert FuseOpsByPattern([("a.b", pattern)])(once) is once
