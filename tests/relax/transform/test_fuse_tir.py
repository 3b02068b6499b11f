"""FuseOps over calls of kernels, and FuseTIR: one kernel a group, with the group's name and the same results."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import ir, relax, tir
from weft.relax import transform as t
from weft.relax.rewriter import all_bindings

ZERO = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FuseOps(), t.FuseTIR()]


def module(body, params="x: (n, 8), y: (n, 8)", more=""):
    return written(params, *body, more=more)


def kernels_called(mod):
    return [b.value.args[0].name_hint for b in all_bindings(mod["main"]) if isinstance(b.value, weft.ir.Call)]


def run(mod, *arrays):
    return relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"](*arrays).numpy()


RNG = np.random.default_rng(1)
X, Y = (RNG.standard_normal((5, 8)).astype("float32") for _ in range(2))
CASES = {
    "elementwise": (["a = R.add(x, y)", "z = R.nn.relu(a)"], ["fused_add_relu"], lambda: np.maximum(X + Y, 0)),
    "one kernel twice": (
        ["a = R.exp(R.negative(x))", "b = R.exp(a)", "z = R.add(b, a)"],
        ["fused_tir_negative_tir_exp_tir_exp_add"],
        lambda: np.exp(np.exp(-X)) + np.exp(-X),
    ),
    "an argument twice": (["a = R.multiply(x, x)", "z = R.add(a, x)"], ["fused_multiply_add"], lambda: X * X + X),
    "epilogue": (["a = R.matmul(x, R.permute_dims(y))", "z = R.nn.relu(a)"], None, lambda: np.maximum(X @ Y.T, 0)),
    "reduction": (["a = R.exp(x)", "z = R.sum(a, axis=[1])"], ["fused_tir_exp_sum"], lambda: np.exp(X).sum(1)),
    "constants": (
        ["a = R.add(x, R.const(2.0, 'float32'))", "z = R.exp(a)"],
        ["fused_add_tir_exp"],
        lambda: np.exp(X + 2),
    ),
    "sizes": (
        ["a = R.full(R.shape([n, 8]), R.const(3.0, 'float32'), dtype='float32')", "z = R.add(a, x)"],
        None,
        lambda: X + 3,
    ),
    "diamond": (
        ["a = R.exp(x)", "b = R.add(a, y)", "c = R.multiply(a, y)", "z = R.subtract(b, c)"],
        ["fused_tir_exp_add_multiply_subtract"],
        lambda: np.exp(X) + Y - np.exp(X) * Y,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_a_group_become_one(name):
    body, names, expected = CASES[name]
    mod = module(body)
    fused = ir.Sequential(ZERO)(mod)
    assert not any(f.attrs.get("Primitive") for _, f in fused.items())
    if names is not None:
        assert kernels_called(fused) == names == [v.name_hint for v, f in fused.items() if isinstance(f, tir.PrimFunc)]
    np.testing.assert_allclose(run(fused, X, Y), expected(), rtol=2e-5, atol=1e-6)
    assert kernels_called(ir.Sequential(ZERO)(fused)) == kernels_called(fused)


def test_dimensions_that_no_operand_has_come_to_a_group():
    """The suite checks the form of a module after each pass: a group names what it uses."""
    mod = module(["a = R.shape_to_tensor(R.shape([n]))", "z = R.less(R.const(2, 'int64'), a)"])
    built = weft.compile(mod, "llvm", relax_pipeline="zero")
    assert relax.VirtualMachine(built, weft.cpu())["main"](X, Y).numpy().tolist() == [True]


def test_blocks_and_variables_are_each_kernels_own():
    """One kernel merged twice shares no node that a schedule could confuse."""
    fused = ir.Sequential(ZERO)(module(["a = R.exp(x)", "z = R.exp(a)"]))
    (name,) = kernels_called(fused)
    blocks = [n for n in ir.walk(fused[name].body) if type(n) is tir.Block and n.iter_vars]
    assert len({b.name_hint for b in blocks}) == len(blocks) == 2
    assert len({id(iv.var) for b in blocks for iv in b.iter_vars}) == 4


def test_kernels_of_the_user_fuse_by_their_pattern():
    kernel = """
    @T.prim_func
    def {}(A: T.handle, B: T.handle{}):
        m = T.int64()
        a = T.match_buffer(A, (m, 8), "float32")
        b = T.match_buffer(B, (m, 8), "float32")
        for i, j in T.grid(m, 8):
            with T.sblock("b"):
                v, w = T.axis.remap("SS", [i, j])
                b[v, w] = a[v, w] {}
"""
    more = kernel.format("double", "", "* T.float32(2)")
    more += kernel.format("shift", ", by: T.int64", '+ T.Cast("float32", by)')
    body = [
        'a = R.call_tir(cls.double, (x,), out_ty=R.Tensor((n, 8), "float32"))',
        'z = R.call_tir(cls.shift, (a,), out_ty=R.Tensor((n, 8), "float32"), tir_vars=R.shape([n + 2]))',
    ]
    mod = module(body, "x: (n, 8)", more)
    assert kernels_called(ir.Sequential(ZERO[2:])(mod)) == ["double", "shift"]  # nothing says what they do
    fused = ir.Sequential(ZERO)(mod)
    assert kernels_called(fused) == ["fused_double_shift"]
    for m in (mod, fused):
        np.testing.assert_allclose(run(m, X), 2 * X + 7, rtol=1e-6)


def test_level_0_fuses_nothing():
    mod = module(["a = R.add(x, y)", "z = R.nn.relu(a)"])
    with ir.PassContext(opt_level=0):
        assert t.fuse_ops()(mod) is mod
        assert t.fuse_ops(fuse_opt_level=2)(mod) is not mod


@pytest.mark.parametrize("name", ["FuseOps", "relax.FuseOps"])
def test_disabled_and_required_passes(name):
    mod = module(["a = R.add(x, y)", "z = R.nn.relu(a)"])

    def kernels(**context):
        with ir.PassContext(**context):
            new = relax.get_pipeline("default", weft.target.Target("llvm"))(mod)
        return {v.name_hint for v, f in new.items() if isinstance(f, tir.PrimFunc) and "shape_func" not in v.name_hint}

    assert len(kernels()) == 1
    assert len(kernels(disabled_pass=[name])) == 2
    assert len(kernels(opt_level=0)) == 2
    assert len(kernels(opt_level=1)) == 1
    with ir.PassContext(disabled_pass=[name]):
        np.testing.assert_allclose(run(mod, X, Y), np.maximum(X + Y, 0), rtol=1e-6)
    passes = ir.Sequential([weft.ir.Pass("Late", lambda m: mod, opt_level=3)])
    empty = weft.IRModule({})
    with ir.PassContext(opt_level=1):
        assert passes(empty) is empty
    with ir.PassContext(opt_level=1, required_pass=["Late"]):
        assert passes(empty) is mod


def test_kernels_of_a_selective_context_are_kept_apart(tmp_path, monkeypatch):
    """What is compiled without a pass of kernels is not taken for what is compiled with it, nor the other way round."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    func = module(["z = R.exp(x)"])
    seen = []

    class Names(weft.ir.PassInstrument):
        def run_before_pass(self, mod, info):
            seen.append(info.name)

    run(func, X, Y)
    with ir.PassContext(disabled_pass=["tir.UnrollLoop"], instruments=[Names()]):
        np.testing.assert_allclose(run(func, X, Y), np.exp(X), rtol=1e-5)
    assert "VectorizeLoop" in seen and "UnrollLoop" not in seen


def kernel(name, params, *lines):
    given = ", ".join(p if ":" in p else f'{p}: T.Buffer((5, 8), "float32")' for p in params.split())
    body = "".join(f"                {line}\n" for line in lines)
    head = f"    @T.prim_func(private=True)\n    def {name}({given}):\n        for i, j in T.grid(5, 8):\n"
    return f'{head}            with T.sblock("{name}"):\n                v, w = T.axis.remap("SS", [i, j])\n{body}'


KERNELS = (
    kernel("times", "A B C", "C[v, w] = A[v, w] * B[v, w]")
    + kernel("both", "A B C D", "C[v, w] = A[v, w] + B[v, w]", "D[v, w] = A[v, w] - B[v, w]")
    + kernel("double", "A", "A[v, w] = A[v, w] * T.float32(2)")
    + kernel("scaled", "A k:T.int64 B", 'B[v, w] = A[v, w] * T.Cast("float32", k)')
)
S = 'R.Tensor((5, 8), "float32")'
TWO = f"p: {S}, q: {S}"
GROUPS = {
    "a parameter that is a tuple": (
        f"t: R.Tuple({S}, {S})",
        [
            "a = t[0]",
            "b = t[1]",
            "c = R.call_tir(cls.times, (a, b), out_ty=S)",
            "z = R.call_tir(cls.times, (c, a), out_ty=S)",
        ],
        "(x, y),",
        lambda: X * Y * X,
    ),
    "a tuple in the group": (
        TWO,
        ["t = (p, (p, q))", "a = t[0]", "u = t[1]", "b = u[1]", "z = R.call_tir(cls.times, (a, b), out_ty=S)"],
        "x, y",
        lambda: X * Y,
    ),
    "one result of several": (
        TWO,
        ["t = R.call_tir(cls.both, (p, q), out_ty=[S, S])", "a = t[1]", "z = R.call_tir(cls.times, (a, q), out_ty=S)"],
        "x, y",
        lambda: (X - Y) * Y,
    ),
    "a value written in place": (
        TWO,
        [
            "a = R.call_tir(cls.times, (p, q), out_ty=S)",
            "z = R.call_tir_inplace(cls.double, (a,), inplace_indices=[0], out_ty=S)",
        ],
        "x, y",
        lambda: 2 * X * Y,
    ),
    "an argument written in place": (
        f"{TWO}, s: R.Shape(['k'])",
        [
            "k = T.int64()",
            "a = R.call_tir(cls.scaled, (q, k), out_ty=S)",
            "z = R.call_tir_inplace(cls.times, (a, q, p), inplace_indices=[2], out_ty=S)",
        ],
        "R.zeros_like(x), y, R.shape([n])",
        lambda: 5 * Y * Y,
    ),
    "the second parameter first": (
        TWO,
        ["t = R.call_tir(cls.both, (q, p), out_ty=[S, S])", "z = t[1]"],
        "x, y",
        lambda: Y - X,
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_take_tuples_and_write_in_place(name):
    params, body, args, expected = GROUPS[name]
    lines = "\n".join("            " + line.replace("=S", f"={S}").replace("[S, S]", f"[{S}, {S}]") for line in body)
    head = "        R.func_attr({'Primitive': True})\n        cls = Module\n        with R.dataflow():\n"
    group = f"    @R.function(private=True)\n    def group({params}):\n{head}{lines}\n            R.output(z)\n"
    fused = t.FuseTIR()(module([f"z = Module.group({args})"], more=KERNELS + group + "        return z\n"))
    assert [v.name_hint for v, f in fused.items() if isinstance(f, tir.PrimFunc)] == ["group"]
    (call,) = (b.value for b in all_bindings(fused["main"]) if "group" in str(b.value))
    assert call.attrs.get("inplace_indices") == ((0,) if name == "an argument written in place" else None)
    np.testing.assert_allclose(run(fused, X, Y), expected(), rtol=1e-6)
