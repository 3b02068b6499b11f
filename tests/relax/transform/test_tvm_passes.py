"""The passes under TVM's names: the results that programs written for TVM compare, and the same numbers."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import error, ir, relax, tir
from weft.relax import transform as t
from weft.relax.transform.legalize_ops import register_legalize
from weft.script import from_source


def module(body, params="x: (4, 8), y: (4, 8)"):
    return written(params, *body)


def kernels(mod):
    return [v.name_hint for v, f in mod.items() if isinstance(f, tir.PrimFunc)]


def run(mod, *arrays):
    return relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())["main"](*arrays).numpy()


RNG = np.random.default_rng(5)
X, Y = (RNG.standard_normal((4, 8)).astype("float32") for _ in range(2))


# --- LegalizeOps ------------------------------------------------------------------------------------------------------


def test_each_operator_is_a_private_kernel_with_its_scalars():
    steps = ["a = R.exp(x)", "b = R.greater(a, y)", "z = R.where(b, R.add(a, R.const(2.0, 'float32')), y)"]
    mod = t.LegalizeOps()(module(steps))
    assert kernels(mod) == ["tir_exp", "greater", "add", "where"]
    for name in kernels(mod):
        assert dict(mod[name].attrs.items) == {"tir.noalias": True}
    assert "R.const" not in mod.script() and "a[v_i0, v_i1] + 2.0" in mod["add"].script()
    np.testing.assert_allclose(run(mod, X, Y), np.where(np.exp(X) > Y, np.exp(X) + 2, Y), rtol=1e-5)


def test_scalar_parameters_reach_kernels():
    mod = module(["z = R.multiply(x, s)"], 'x: (3), s: R.Prim("float32")')
    legal = t.LegalizeOps()(mod)
    assert len(legal["multiply"].params) == 3 and legal["multiply"].params[1].dtype == "float32"


def test_a_legalization_of_ones_own_is_used_and_forgotten():
    op = weft.ir.Op.get("relax.nn.relu")
    before = op.get_attr("FLegalize")

    @register_legalize("relax.nn.relu")
    def doubled(bb, call):
        return relax.op.add(call.args[0], call.args[0])

    try:
        mod = module(["z = R.nn.relu(x)"])
        assert kernels(t.LegalizeOps()(mod)) == ["add"]
        np.testing.assert_allclose(run(mod, X, Y), 2 * X)
        ir.assert_structural_equal(t.FoldConstant()(mod), mod)
    finally:
        op.reset_attr("FLegalize")
    assert op.get_attr("FLegalize") is before and kernels(t.LegalizeOps()(mod)) == ["relu"]


def test_what_has_no_shape_stays_and_is_warned_of():
    mod = module(["z = R.exp(x)"], 'x: R.Tensor(ndim=2, dtype="float32")')
    assert t.LegalizeOps()(mod) is mod
    with pytest.warns(RuntimeWarning, match=r"relax\.exp has operands or results of unknown shape"):
        t.LegalizeOps(enable_warning=True)(mod)


# --- FuseOps, FuseTIR -------------------------------------------------------------------------------------------------

STEPS = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FuseOps(), t.FuseTIR()]
FUSED = {
    "epilogue": (["a = R.matmul(x, R.permute_dims(y))", "b = R.nn.relu(a)", "z = R.exp(b)"],
                 ["transpose", "fused_matmul_relu_tir_exp"], lambda: np.exp(np.maximum(X @ Y.T, 0))),
    "diamond": (["a = R.exp(x)", "b = R.add(a, y)", "z = R.multiply(a, b)"], ["fused_tir_exp_add_multiply"],
                lambda: np.exp(X) * (np.exp(X) + Y)),
    "two reductions": (["a = R.exp(x)", "b = R.sum(a, axis=[1])", "z = R.exp(b)"], ["tir_exp1", "fused_tir_exp_sum"],
                       lambda: np.exp(np.exp(X).sum(1))),
    "same twice": (["a = R.exp(R.negative(x))", "b = R.exp(R.negative(y))", "z = R.matmul(a, R.permute_dims(b))"], None,
                   lambda: np.exp(-X) @ np.exp(-Y).T),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_groups_have_the_names_of_their_kernels(name):
    body, names, expected = FUSED[name]
    mod = ir.Sequential(STEPS)(module(body))
    if names is not None:
        assert sorted(kernels(mod)) == sorted(names)
    assert all("global_symbol" not in mod[n].attrs for n in kernels(mod))
    np.testing.assert_allclose(run(mod, X, Y), expected(), rtol=2e-5, atol=1e-5)


def test_equal_groups_share_a_function():
    body = ["a = R.exp(R.negative(x))", "b = R.exp(R.negative(y))", "z = (a, b)"]
    mod = ir.Sequential(STEPS[:3])(module(body))
    assert [v.name_hint for v, f in mod.items() if f.attrs.get("Primitive")] == ["fused_tir_negative_tir_exp"]


def test_constants_and_sizes_are_arguments_of_groups():
    with ir.PassContext(config={"relax.FuseOps.max_depth": 2}):
        limited = ir.Sequential(STEPS[:3])(module(["a = R.exp(x)", "b = R.exp(a)", "z = R.exp(b)"]))
    assert [v.name_hint for v, f in limited.items() if f.attrs.get("Primitive")] == ["fused_tir_exp_tir_exp"]
    mod = ir.Sequential(STEPS[:3])(module(["a = R.add(x, R.const([1.0] * 8, 'float32'))", "z = R.exp(a)"]))
    assert len(mod["fused_add_tir_exp"].params) == 2
    assert t.FuseOps(0)(t.LegalizeOps()(module(["a = R.exp(x)", "z = R.exp(a)"])))["main"] is not None


# --- FoldConstant, Normalize ------------------------------------------------------------------------------------------


def test_kernels_run_on_constants():
    mod = from_source("""
@I.ir_module
class Module:
    @T.prim_func
    def split(A: T.Buffer((4,), "float32"), B: T.Buffer((2,), "float32"), C: T.Buffer((2,), "float32")):
        for i in range(2):
            B[i] = A[i]
            C[i] = A[i + 2] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = R.call_tir(cls.split, (R.const([1.0, 2.0, 3.0, 4.0], "float32"),),
                       out_ty=[R.Tensor((2,), "float32"), R.Tensor((2,), "float32")])
        b = a[1]
        z = R.add(b, x)
        return z
""")
    folded = t.FoldConstant()(mod)
    assert "call_tir" not in folded["main"].script()
    np.testing.assert_allclose(run(folded, np.array([1, 1], "float32")), [7, 9])


def test_operators_are_folded_in_dataflow_blocks_and_large_ones_stay():
    mod = module(["a = R.zeros(R.shape([4, 8]), 'float32')", "b = R.zeros(R.shape([40, 80]), 'float32')",
                  "c = R.add(a, a)", "d = R.sum(b)", "z = (c, d)"])  # fmt: skip
    text = t.FoldConstant()(mod).script()
    assert text.count("R.zeros") == 1 and "R.add" not in text


def test_blocks_become_one():
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        with R.dataflow():
            a = R.exp(x)
            R.output(a)
        with R.dataflow():
            b = R.exp(a)
            R.output(b)
        return b
""")
    new = t.Normalize()(mod)["main"]
    assert len(new.body.blocks) == 1


# --- StaticPlanBlockMemory --------------------------------------------------------------------------------------------


def planned(attrs, shape='R.Tensor(("n", 4), "float32")'):
    mod = from_source(f"""
@I.ir_module
class Module:
    @T.prim_func
    def exp(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            B[i, j] = T.exp(A[i, j])

    @R.function
    def main(x: {shape}):
        n = T.int64()
        R.func_attr({attrs})
        with R.dataflow():
            a = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((n, 4), "float32"))
            b = R.call_tir(cls.exp, (a,), out_ty=R.Tensor((n, 4), "float32"))
            c = R.call_tir(cls.exp, (b,), out_ty=R.Tensor((n, 4), "float32"))
            d = R.call_tir(cls.exp, (c,), out_ty=R.Tensor((n, 4), "float32"))
            R.output(d)
        return d
""")
    before = ir.Sequential([t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()])(mod)
    return t.StaticPlanBlockMemory()(before)


def storages(mod):
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if relax.core_ops.is_op(b.value, "memory.alloc_storage")]
    return [str(c.args[0].values[0]) for c in calls]


def test_tensors_that_do_not_live_together_share_storage():
    assert storages(planned({})) == ["16 * n", "16 * n"]
    assert storages(planned({"tir_var_upper_bound": {"n": 10}})) == ["160", "160"]
    outputs = {"tir_var_upper_bound": {"n": 10}, "relax.memory_plan_dynamic_func_output": True}
    assert storages(planned(outputs)) == ["160", "160", "160"]


def test_planned_programs_run():
    mod = planned({"tir_var_upper_bound": {"n": 10}})
    np.testing.assert_allclose(run(mod, X[:, :4].copy() / 9), np.exp(np.exp(np.exp(np.exp(X[:, :4] / 9)))), rtol=1e-4)


def test_a_bound_is_an_integer():
    with pytest.raises(error.InvalidArgument, match="the bound of 'n' is no integer"):
        planned({"tir_var_upper_bound": {"n": [4]}})


# --- DecomposeOps -----------------------------------------------------------------------------------------------------

NORM = "x: (2, 3, 4), g: (3), b: (3), m: (3), v: (3)"


def test_batch_norms_use_the_batch_in_training():
    mod = module(["z = R.nn.batch_norm(x, g, b, m, v, axis=1, momentum=0.25)"], NORM)
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    g, b, m, v = (RNG.uniform(0.5, 2, 3).astype("float32") for _ in range(4))

    def results(pass_):
        vm = relax.VirtualMachine(relax.build(pass_(mod), "llvm"), weft.cpu())
        return [r.numpy() for r in vm["main"](x, g, b, m, v)]

    def normal(mean, variance):
        return (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5) * g[:, None] + b[:, None]

    out = results(t.DecomposeOpsForInference("main"))
    np.testing.assert_allclose(out[0], normal(m, v), rtol=1e-4, atol=1e-5)
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    out = results(t.DecomposeOpsForTraining("main"))
    np.testing.assert_allclose(out[0], normal(mean, variance), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[1], 0.75 * m + 0.25 * mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[2], 0.75 * v + 0.25 * variance, rtol=1e-4, atol=1e-5)
