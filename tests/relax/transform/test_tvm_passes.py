"""The passes under TVM's names: the results that programs written for TVM compare, and the same numbers."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model, written
from weft import arith, error, ir, relax, script, tir
from weft.relax import transform as t
from weft.relax.interpreter import evaluate
from weft.relax.transform.legalize_ops import register_legalize
from weft.relax.transform.plan_memory import plan_memory


def module(body, params="x: (4, 8), y: (4, 8)", more=""):
    return written(params, *body, more=more)


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


def stages(mod):
    (name,) = kernels(mod)
    return [n.name_hint for n in ir.walk(mod[name]) if isinstance(n, tir.Block) and n.iter_vars]


@pytest.mark.parametrize(("name", "count"), [("gelu", 5), ("gelu_tanh", 9), ("silu", 2)])
def test_kernels_of_single_operators_are_stages_of_topi(name, count):
    mod = t.LegalizeOps()(module([f"z = R.nn.{name}(x)"]))
    assert len(stages(mod)) == count
    np.testing.assert_allclose(run(mod, X, Y), run(module([f"z = R.nn.{name}(x)"]), X, Y), rtol=1e-5, atol=1e-6)
    half = t.LegalizeOps()(module([f"z = R.nn.{name}(x)"], 'x: R.Tensor((4, 8), "float16")'))
    assert len(stages(half)) == 1  # between stages it would be rounded


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_results_are_limited_and_constants_are_in_kernels(dtype):
    step = f"z = R.quantize(x, R.const(0.01, 'float32'), R.const(3, '{dtype}'), out_dtype='{dtype}')"
    mod, limits, x = t.LegalizeOps()(module([step])), np.iinfo(dtype), np.where(X > 1, np.float32(np.nan), X)
    assert len(mod["quantize"].params) == 2 and f"{limits.max}.0" in mod["quantize"].script()
    expected = np.clip(np.rint(x / np.float32(0.01)) + 3, limits.min, limits.max)
    np.testing.assert_array_equal(run(mod, x, Y), np.nan_to_num(expected))  # NaN becomes 0, limited in sight or not


def test_a_sum_that_undoes_broadcasting_is_one_stage():
    assert stages(t.LegalizeOps()(module(["z = R.collapse_sum_to(x, (8,))"]))) == ["T_collapse_sum"]


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
    "epilogue": (
        ["a = R.matmul(x, R.permute_dims(y))", "b = R.nn.relu(a)", "z = R.exp(b)"],
        ["transpose", "fused_matmul_relu_tir_exp"],
        lambda: np.exp(np.maximum(X @ Y.T, 0)),
    ),
    "diamond": (
        ["a = R.exp(x)", "b = R.add(a, y)", "z = R.multiply(a, b)"],
        ["fused_tir_exp_add_multiply"],
        lambda: np.exp(X) * (np.exp(X) + Y),
    ),
    "two reductions": (
        ["a = R.exp(x)", "b = R.sum(a, axis=[1])", "z = R.exp(b)"],
        ["tir_exp1", "fused_tir_exp_sum"],
        lambda: np.exp(np.exp(X).sum(1)),
    ),
    "same twice": (
        ["a = R.exp(R.negative(x))", "b = R.exp(R.negative(y))", "z = R.matmul(a, R.permute_dims(b))"],
        None,
        lambda: np.exp(-X) @ np.exp(-Y).T,
    ),
}


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
    mod = script.from_source("""
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
    mod = module(
        [
            "a = R.zeros(R.shape([4, 8]), 'float32')",
            "b = R.zeros(R.shape([40, 80]), 'float32')",
            "c = R.add(a, a)",
            "d = R.sum(b)",
            "z = (c, d)",
        ]
    )
    text = t.FoldConstant()(mod).script()
    assert text.count("R.zeros") == 1 and "R.add" not in text


def test_blocks_become_one():
    mod = script.from_source("""
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
    assert len(t.Normalize()(mod)["main"].body.blocks) == 1


# --- StaticPlanBlockMemory --------------------------------------------------------------------------------------------


PLANNED = """
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
    def main({params}):
        {head}
        with R.dataflow():
            {steps}
            R.output({results})
        return ({results})
"""


def called(calls, **texts):
    """A module that calls ``exp`` on rows of four elements, each result, its argument and the number of rows."""
    steps = [f'{y} = R.call_tir(cls.exp, ({x},), out_ty=R.Tensor(({n}, 4), "float32"))' for y, x, n in calls]
    mod = script.from_source(PLANNED.format(steps="\n            ".join(steps), **texts))
    return ir.Sequential([t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()])(mod)


def planned(attrs, shape='R.Tensor(("n", 4), "float32")'):
    head = f"n = T.int64(); R.func_attr({attrs})"
    calls = zip("abcd", "xabc", "nnnn", strict=True)
    return t.StaticPlanBlockMemory()(called(calls, params=f"x: {shape}", head=head, results="d"))


def storages(mod):
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if relax.core_ops.is_op(b.value, "memory.alloc_storage")]
    return [str(c.args[0].values[0]) for c in calls]


def test_tensors_that_do_not_live_together_share_storage():
    assert storages(planned({})) == ["16 * n", "16 * n"]
    assert storages(planned({"tir_var_upper_bound": {"n": 10}})) == ["160", "160"]
    outputs = {"tir_var_upper_bound": {"n": 10}, "relax.memory_plan_dynamic_func_output": True}
    assert storages(planned(outputs)) == ["160", "160", "160"]


def test_sizes_are_compared_once_and_not_with_each_free_block(monkeypatch):
    names, compared, prove = "abcdefgh", [], arith.Analyzer.can_prove_equal
    before = called(
        [(f"y{n}{i}", f"y{n}{i - 1}" if i else f"x{n}", n) for n in names for i in range(6)],
        params=", ".join(f'x{n}: R.Tensor(("{n}", 4), "float32")' for n in names),
        head="; ".join(f"{n} = T.int64()" for n in names),
        results=", ".join(f"y{n}5" for n in names),
    )
    monkeypatch.setattr(arith.Analyzer, "can_prove_equal", lambda *a: compared.append(a) or prove(*a))
    assert len(storages(plan_memory(before))) == 2 * len(names), "two of each size, and results of their own"
    assert len(compared) <= len(names) * (len(names) - 1) // 2


def test_planned_programs_run():
    mod = planned({"tir_var_upper_bound": {"n": 10}})
    np.testing.assert_allclose(run(mod, X[:, :4].copy() / 9), np.exp(np.exp(np.exp(np.exp(X[:, :4] / 9)))), rtol=1e-4)


def test_a_bound_is_an_integer():
    refuses(error.InvalidArgument, "the bound of 'n' is no integer", planned, {"tir_var_upper_bound": {"n": [4]}})


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


def test_norms_lie_along_their_axes():
    arrays = [RNG.standard_normal(s).astype("float32") for s in ((3, 3, 3), 3, 3)]
    for call in ("layer_norm(x, g, b, axes=[1])", "rms_norm(x, g, axes=[0])"):
        mod = module([f"z = R.nn.{call}"], "x: (3, 3, 3), g: (3), b: (3)")
        decomposed, own = (evaluate(m, *arrays)[0] for m in (t.DecomposeOpsForTraining()(mod), mod))
        np.testing.assert_allclose(decomposed, own, rtol=1e-4, atol=1e-5)


# --- Passes of one rule -----------------------------------------------------------------------------------------------


def test_fast_functions_are_kernels_and_others_stay():
    made = t.FastMathTransform()(module(["a = R.nn.softmax(x, axis=0)", "b = R.exp(a)", "z = R.tanh(R.add(b, y))"]))
    assert kernels(made) == ["fast_softmax", "fast_exp", "fast_tanh"] and "R.add(" in made.script()
    soft = np.exp(X) / np.exp(X).sum(0)
    np.testing.assert_allclose(run(made, X, Y), np.tanh(np.exp(soft) + Y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "w", "axes"),
    [((4, 8), (3, 8), None), ((8,), (3, 8), [1, 0]), ((2, 1, 4, 8), (5, 3, 8), [0, 2, 1]), ((0, 8), (3, 8), [-1, 0])],
)
def test_products_read_matrices_that_are_transposed_for_them(x, w, axes):
    params = f'x: R.Tensor({x}, "float32"), y: R.Tensor({w}, "float32")'
    mod = module([f"a = R.permute_dims(y, axes={axes})", "z = R.matmul(x, a)"], params)
    made = t.FuseTransposeMatmul()(mod)
    assert kernels(made) == ["NT_matmul"] and "permute_dims" not in made.script()
    a, b = RNG.standard_normal(x).astype("float32"), RNG.standard_normal(w).astype("float32")
    np.testing.assert_allclose(run(made, a, b), a @ b.swapaxes(-1, -2), rtol=1e-5, atol=1e-5)
    other = module(["a = R.permute_dims(x, axes=[1, 0])", "z = R.matmul(a, y)"])
    assert t.FuseTransposeMatmul()(other) is other
    zero = "    @T.prim_func\n    def zero(y: T.Buffer((4, 8), 'float32')):\n        y[0, 0] = T.float32(0)\n"
    steps = ["a = R.permute_dims(y)", "_ = R.call_tir_inplace(cls.zero, (y,), [0], R.Tensor((4, 8), 'float32'))"]
    changed = module([*steps, "z = R.matmul(x, a)"], more=zero)
    assert t.FuseTransposeMatmul()(changed) is changed  # the product is of what the matrix was


def test_scalars_are_computed_on_the_host():
    mod = script.from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        _ = R.assert_op(n < 9, format="too many")
        if R.prim_value(n % m == 0):
            z = R.add(x, x)
        else:
            z = x
        return z
""")
    made = t.ComputePrimValue()(mod)
    names = kernels(made)
    assert len(names) == 2 and all(made[n].attrs["tir.is_host_func"] for n in names)
    assert [len(made[n].params) for n in names] == [1, 2]
    for shape, factor in (((6, 3), 2), ((5, 3), 1)):
        np.testing.assert_array_equal(run(made, np.ones(shape, "float32")), np.full(shape, factor))
    refuses(AssertionError, "too many", run, made, np.ones((9, 3), "float32"))
    assert t.ComputePrimValue()(made) is made


def test_public_functions_have_the_names_of_their_symbols():
    mod = script.from_source("""
@I.ir_module
class Module:
    @R.function(private=True)
    def f(x: R.Tensor((4, 8), "float32")):
        return R.add(x, x)

    @R.function
    def g(x: R.Tensor((4, 8), "float32")):
        R.func_attr({"global_symbol": "f"})
        return cls.f(x)
""")
    made = t.NormalizeGlobalVar()(mod)
    assert sorted(v.name_hint for v in made.get_global_vars()) == ["f", "f1"]
    vm = relax.VirtualMachine(relax.build(made, "llvm"), weft.cpu())
    np.testing.assert_array_equal(vm["f"](X).numpy(), X + X)


def test_destinations_of_nested_tuples_and_operands_in_place():
    @weft.register_func("test.tvm_passes.parts", override=True)
    def parts(x, twice, half, negative):
        for out, value in ((twice, x.numpy() * 2), (half, x.numpy() / 2), (negative, -x.numpy())):
            out.copyfrom(value)

    ty = ir.tensor_type((4, 8), "float32")
    nested = ir.TupleType((ty, ir.TupleType((ty, ty))))
    mod = model(lambda x: relax.call_dps_packed("test.tvm_passes.parts", (x,), nested), (4, 8))
    twice, rest = relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())["main"](X)
    np.testing.assert_array_equal([v.numpy() for v in (twice, *rest)], [2 * X, X / 2, -X])
    for other in (ir.tensor_type((8, 4), "float32"), ir.tensor_type((4, 8), "int32")):
        with pytest.raises(error.InvalidArgument, match="only a tensor of the result's type is written in place"):
            relax.op.call_tir_inplace(relax.GlobalVar("f"), (relax.Var("x", other),), 0, ty)
