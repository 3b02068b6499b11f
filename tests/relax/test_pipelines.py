"""Pipelines compose: after any of them, twice over, or after any part of one, `compile` gives what it gives alone."""

import numpy as np
import pytest

import weft
from tests.relax_models import computed
from tests.texts import named
from weft import error, ir, relax, script, target
from weft.relax.pipeline import _PIPELINES, default_passes

BODIES = named("""
# mlp
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.add(R.matmul(x, w), b))
            y = R.nn.softmax(R.add(R.matmul(h, w), b))
            R.output(y)
        return y
# sizes
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.reshape(R.concat((x, x), axis=0), R.shape([n, 16]))
            s = R.match_cast(R.shape_to_tensor(R.shape_of(y)), R.Tensor((2,), "int64"))
            q = R.match_cast(R.tensor_to_shape(s), R.Shape([n, m]))
            z = R.reshape(R.exp(y), R.shape([m, n]))
            R.output(z)
        return z
# branches
    @R.function(private=True)
    def twice(x: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
        return R.add(x, x)
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        cls = Module
        total = R.sum(x)
        big = R.greater(total, R.const(0, "float32"))
        if big:
            a = R.add(x, b)
            y = cls.twice(a)
        else:
            y = R.exp(x)
        return (y, R.multiply(y, y))
# kernels
    @T.prim_func
    def scale(A: T.handle, B: T.handle):
        n = T.int64()
        a = T.match_buffer(A, (n, 8), "float32")
        b = T.match_buffer(B, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.sblock("b"):
                v, w = T.axis.remap("SS", [i, j])
                b[v, w] = a[v, w] * T.float32(2) + T.float32(1)
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        n = T.int64()
        cls = Module
        a = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 8), "float32"))
        out = R.exp(a)
        before = R.add(out, out)
        _ = cls.scale(a, out)
        after = R.add(out, out)
        c = R.exp(x)
        d = R.call_tir_inplace(cls.scale, (x, c), inplace_indices=[1], out_ty=R.Tensor((n, 8), "float32"))
        return (before, after, R.add(d, d))
# packed
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        n = T.int64()
        a = R.exp(x)
        u = R.add(a, a)
        _ = R.call_packed("test.pipelines.negate", a, ty_args=R.Tuple())
        v = R.add(a, a)
        c = R.call_dps_packed("test.pipelines.copy", (v,), out_ty=R.Tensor((n, 8), "float32"))
        return (u, v, R.exp(c))
# tuples
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            parts = R.split(x, 2, axis=1)
            p = parts[0]
            q = parts[1]
            t = (R.add(p, q), p)
            r = R.matmul(x, w)
            R.output(t, r)
        return (t[0], t[1], r)
# closures
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        @R.function
        def inner(z: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
            return R.add(z, b)
        a = inner(x)
        return R.multiply(a, a)
""")
NAMES = sorted(BODIES)
RNG = np.random.default_rng(5)
INPUTS = [RNG.standard_normal(s).astype("float32") for s in ((3, 8), (8, 8), (8,))]


def negate(x):
    x.copyfrom(-x.numpy())


weft.register_global_func("test.pipelines.negate", negate, override=True)
weft.register_global_func("test.pipelines.copy", lambda x, y: y.copyfrom(x.numpy()) and None, override=True)


def program(name):
    return script.from_source("@I.ir_module\nclass Module:\n" + BODIES[name])


def expected(name):
    x, w, b = INPUTS
    e = np.exp(x)
    if name == "mlp":
        return [computed("nn.softmax", np.maximum(x @ w + b, 0) @ w + b)]
    if name == "sizes":
        return [np.exp(np.concatenate((x, x))).reshape(16, 3)]
    if name == "branches":
        y = 2 * (x + b) if x.sum() > 0 else e
        return [y, y * y]
    if name == "kernels":
        a = 2 * x + 1
        return [2 * np.exp(a), 2 * (2 * a + 1), 2 * a]
    if name == "packed":
        return [2 * e, -2 * e, np.exp(-2 * e)]
    return [x[:, :4] + x[:, 4:], x[:, :4], x @ w] if name == "tuples" else [(x + b) ** 2]


def check(name, mod, **options):
    vm = relax.VirtualMachine(weft.compile(mod, "llvm", **options), weft.cpu())
    found = vm["main"](*[weft.nd.array(a.copy()) for a in INPUTS])
    found = [found] if hasattr(found, "numpy") else list(found)
    for f, e in zip(found, expected(name), strict=True):
        np.testing.assert_allclose(f.numpy(), e, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_levels(name, level, mode):
    with ir.PassContext(opt_level=level):
        check(name, program(name), exec_mode=mode)


@pytest.mark.parametrize("pipeline", sorted(_PIPELINES.keys() - {"static_shape_tuning"}))  # which asks for trials
@pytest.mark.parametrize("name", NAMES)
def test_pipelines_before_compile_and_in_it(name, pipeline):
    mod = program(name)
    check(name, mod, relax_pipeline=pipeline)
    once = relax.get_pipeline(pipeline, target.Target("llvm"))(mod)
    check(name, once, exec_mode="compiled")
    twice = relax.get_pipeline(pipeline, target.Target("llvm"))(once)
    check(name, twice)
    check(name, twice, pipeline=pipeline)  # as TVM 0.18 calls it


@pytest.mark.parametrize("name", NAMES)
def test_any_part_of_a_pipeline_before_compile(name):
    mod = program(name)
    seen = set()
    for p in default_passes(target.Target("llvm")):
        new = p(mod)
        if new is not mod and str(new) not in seen:
            seen.add(str(new))
            check(name, new)
        mod = new


def test_the_parts_that_tvm_names_make_the_default_pipeline(tmp_path):
    made, cpu = target.Target("llvm"), relax.backend.cpu_generic
    parts = [cpu.library_dispatch_passes, cpu.legalize_passes, cpu.dataflow_lower_passes, cpu.finalize_passes]
    passes = [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan(), *(p for f in parts for p in f(made))]
    check("mlp", weft.transform.Sequential(passes)(program("mlp")))
    for make in (relax.pipeline.zero_pipeline, relax.pipeline.default_build_pipeline):
        check("sizes", make()(program("sizes")))
    check("mlp", relax.pipeline.static_shape_tuning_pipeline(0, made, work_dir=str(tmp_path))(program("mlp")))


def test_a_pipeline_of_a_users_own_makes_a_pass_or_a_list_and_takes_what_it_names():
    asked = []
    try:

        @relax.register_pipeline("test.one_pass")
        def _one_pass(steps=1):
            asked.append(steps)

            @weft.transform.module_pass(opt_level=0)
            def run(mod, _context):
                return relax.get_pipeline("zero")(mod)

            return run

        relax.register_pipeline("test.list")(lambda target, precision: asked.append((target, precision)) or [run_zero])
        run_zero = relax.get_pipeline("zero")
        check("mlp", relax.get_pipeline("test.one_pass", steps=3)(program("mlp")))
        check("mlp", program("mlp"), relax_pipeline="test.one_pass")
        check("mlp", relax.get_pipeline("test.list", target.Target("llvm"), "bf16")(program("mlp")))
        assert asked == [3, 1, (target.Target("llvm"), "bf16")]
        with pytest.raises(error.InvalidArgument, match="computes in float32"):
            relax.get_pipeline("test.one_pass", precision="bf16")
    finally:
        _PIPELINES.pop("test.one_pass", None)
        _PIPELINES.pop("test.list", None)
