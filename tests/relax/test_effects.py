"""Calls that write to their arguments happen, where they stand; checks are not dropped."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import relax
from weft.relax import transform as t
from weft.relax.effects import is_removable, mutable_variables, written_arguments
from weft.relax.ordering import dependencies
from weft.relax.rewriter import all_bindings
from weft.script import from_source

SOURCE = """
@I.ir_module
class Module:
    @T.prim_func
    def fill(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] * T.float32(2) + T.float32(1)
    @R.function(pure=False)
    def direct(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Module
        a = R.exp(y)
        v = R.reshape(y, R.shape([2, 2]))
        e0 = R.add(v, v)
        _ = cls.fill(x, y)
        b = R.exp(y)
        c = R.subtract(b, a)
        e1 = R.add(v, v)
        return (c, e0, e1, v)
    @R.function(pure=False)
    def inplace(x: R.Tensor((4,), "float32")):
        cls = Module
        a = R.exp(x)
        _ = R.call_tir_inplace(cls.fill, (a, x), inplace_indices=[1], out_ty=R.Tensor((4,), "float32"))
        return a
    @R.function(private=True, pure=False)
    def sub(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Module
        _ = cls.fill(x, y)
        return x
    @R.function(pure=False)
    def through(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Module
        a = R.exp(y)
        _ = cls.sub(x, y)
        b = R.exp(y)
        return (a, b)
    @R.function(pure=False)
    def packed(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        _ = R.call_packed("test.effects.double", x, ty_args=R.Tuple())
        b = R.exp(x)
        return (a, b)
    @R.function(private=True)
    def checked(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=1)):
        r = R.match_cast(s, R.Shape([4]))
        return x
    @R.function
    def checks(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=1)):
        cls = Module
        _ = cls.checked(x, s)
        return x
"""


@pytest.fixture(scope="module")
def mod():
    return from_source(SOURCE)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_what_is_written_is_read_as_it_was_or_as_it_is(mod, mode):
    weft.register_global_func("test.effects.double", lambda x: x.copyfrom(x.numpy() * 2) and None, override=True)
    vm = relax.VirtualMachine(weft.compile(mod, "llvm", exec_mode=mode), weft.cpu())
    x, y = (np.array(v, "float32") for v in ([0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]))
    filled = x * 2 + 1

    def check(found, *expected):
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f.numpy(), e, rtol=1e-5)

    def fresh(*arrays):
        return [weft.nd.array(a.copy()) for a in arrays]

    tensors = fresh(x, y)
    before = (2 * y).reshape(2, 2)
    check(vm["direct"](*tensors), np.exp(filled) - np.exp(y), before, before, y.reshape(2, 2))
    check(tensors[1:], filled)
    tensors = fresh(x)
    check([vm["inplace"](*tensors)], np.exp(x))
    check(tensors, np.exp(x) * 2 + 1)
    tensors = fresh(x, y)
    check(vm["through"](*tensors), np.exp(y), np.exp(filled))
    check(vm["packed"](*fresh(x)), np.exp(x), np.exp(2 * x))
    with pytest.raises(Exception, match="must be 4"):
        vm["checks"](*fresh(x), weft.runtime.ShapeTuple([5]))


def test_effects_are_found_through_calls_and_names(mod):
    found = {}  # what a function returns may be any of its arguments
    for name in ("direct", "inplace", "through", "packed", "checks"):
        f = mod[name]
        found[name] = {v.name_hint for v in f.params if v in mutable_variables(f, mod)}
    assert found == {"direct": {"y"}, "inplace": {"x"}, "through": {"x", "y"}, "packed": {"x"}, "checks": set()}
    calls = {b.var.name_hint: b.value for b in all_bindings(mod["direct"])}
    assert [v.name_hint for v in written_arguments(calls["_"], mod)] == ["y"]
    assert is_removable(calls["a"], mod) and not is_removable(calls["_"], mod)


PASSES = [
    t.DeadCodeElimination(),
    t.EliminateCommonSubexpr(),
    t.FoldConstant(),
    t.FuseOps(),
    t.CanonicalizeBindings(),
    t.ConvertToDataflow(),
    t.TopologicalSort(),
    t.RewriteDataflowReshape(),
    t.LambdaLift(),
    t.InlinePrivateFunctions(),
    t.LegalizeOps(),
    t.RemoveUnusedParameters(),
    t.RemoveUnusedOutputs(),
]


@pytest.mark.parametrize("made", PASSES, ids=lambda p: p.name)
def test_no_pass_drops_or_reorders_effects_and_checks(mod, made):
    """What writes and what checks stand in the order in which they stood."""

    def events(m, name):
        out = []
        for b in all_bindings(m[name]):
            value = b.value
            callee = m[value.op] if isinstance(getattr(value, "op", None), weft.ir.GlobalVar) else None
            if isinstance(callee, relax.Function) and not callee.attrs.get("Primitive"):
                out += events(m, value.op.name_hint)
            elif isinstance(b, relax.MatchCast) or written_arguments(value, m):
                out.append("check" if isinstance(b, relax.MatchCast) else "write")
        return out

    new = made(mod)
    for name in ("direct", "inplace", "through", "packed", "checks"):
        assert events(new, name) == events(mod, name) != []


CHANGED = """
x: (2, 2), y: (2, 2), w: (2, 2), i: (2,) int64, z: (2,)
a = R.permute_dims(x)
b = R.permute_dims(y)
s = R.add(x, w)
t = R.take(x, i, axis=1)
m = R.matmul(x, y)
p = R.matmul(y, x)
v = R.memory.view(x, shape=R.shape([4]))
q = R.call_inplace_packed("test.effects.odd", v, inplace_indices=0, ty_args=R.Tensor((4,), "float32"))
u = R.call_inplace_packed("test.effects.odd", z, inplace_indices=0, ty_args=R.Tensor((2,), "float32"))
c = R.concat((a, b), axis=0)
d = R.add(R.matmul(w, y), z)
e = R.add(R.matmul(w, b), z)
f = R.matmul(w, s)
g = R.matmul(w, t)
h = R.matmul(m, w)
j = R.matmul(w, a)
k = R.add(p, R.matmul(y, x))
return (c, d, e, f, g, h, j, k, q, u)
"""


@pytest.mark.parametrize(
    "name",
    (
        "AdjustMatmulOrder ExpandMatmulOfSum ReorderTakeAfterMatmul ReorderPermuteDimsAfterConcat "
        "FuseTransposeMatmul CombineParallelMatmul ToMixedPrecision EliminateCommonSubexpr FuseOps "
        "TopologicalSort CanonicalizeBindings LegalizeOps DecomposeOpsForInference"
    ).split(),
)
def test_no_pass_reads_at_another_time_what_changes_in_between(name):
    """A tensor is overwritten through a view in a dataflow block; what was computed of it before stays."""
    weft.register_global_func("test.effects.odd", lambda x: x.copyfrom(x.numpy() * 2 + 1) or x, override=True)
    before = written(CHANGED)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-4, 5, s).astype("float32") for s in ((2, 2), (2, 2), (2, 2))]
    arrays += [np.array([1, 0]), np.array([3, 5], "float32")]

    def run(mod):
        vm = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
        return [o.numpy() for o in vm["main"](*(weft.nd.array(a.copy()) for a in arrays))]

    for found, expected in zip(run(getattr(t, name)()(before)), run(before), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_comparing_checks_stay_before_what_mentions_their_sizes():
    (block,) = written("""
x: (n, 4), y: (m, 4)
s = R.match_cast(R.shape([n]), R.Shape([m]))
a = R.exp(x)
b = R.add(x, y)
return (a, b)
""")["main"].body.blocks
    assert dependencies(block.bindings)[1:] == [{0}, {0}]
