"""Passes and analyses around layouts and sizes: AlterOpImpl, suggested layouts, views, sizes that casts name."""

import numpy as np
import pytest

from weft import compile, cpu, error, ir, relax, runtime, tir
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


def run(mod, *arrays):
    found = relax.VirtualMachine(compile(mod), cpu())["main"](*map(runtime.tensor, arrays))
    return (
        [f.numpy() for f in found] if isinstance(found, (list, tuple)) or not hasattr(found, "numpy") else found.numpy()
    )


@I.ir_module
class Twice:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((14,), "float32"), y: T.Buffer((14,), "float32"), z: T.Buffer((14,), "float32")):
        T.func_attr({"operator_name": "my.both"})
        for i in range(14):
            with T.sblock("both"):
                v = T.axis.spatial(14, i)
                y[v] = x[v] * T.float32(2)
                z[v] = x[v] + T.float32(1)

    @R.function
    def main(x: R.Tensor((14,), "float32")):
        with R.dataflow():
            both = R.call_tir(Twice.kernel, (x,), out_ty=[R.Tensor((14,), "float32"), R.Tensor((14,), "float32")])
            R.output(both)
        return both


@T.prim_func(private=True)
def blocked(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32"), z: T.Buffer((14,), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("doubled"):
            v, w = T.axis.remap("SS", [i, j])
            y[v, w] = x[v, w] * T.float32(2)
    for i in range(14):
        with T.sblock("more"):
            u = T.axis.spatial(14, i)
            z[u] = x[u // 4, u % 4] + T.float32(1)


def test_kernels_of_an_operator_become_others_in_another_layout_with_padding():
    blocks = lambda i: (i // 4, i % 4)  # noqa: E731
    new = relax.transform.AlterOpImpl({"my.both": blocked}, {"my.both": [blocks, blocks, lambda i: i]})(Twice)
    names = {v.name_hint for v in new}
    assert {"my_both_replacement", "remove_pad"} <= names and "kernel" in names
    text = new["main"].script()
    assert text.count("R.layout_transform") == 2 and "kernel" not in text  # the identity moves nothing
    x = np.arange(14, dtype="float32")
    for got, want in zip(run(new, x), (2 * x, x + 1), strict=True):
        np.testing.assert_array_equal(got, want)
    assert relax.transform.AlterOpImpl({"other": blocked}, {})(Twice) is Twice
    with pytest.raises(error.InvalidArgument, match="1 of arguments and 2 of results"):
        relax.transform.AlterOpImpl({"my.both": blocked}, {"my.both": [blocks]})(Twice)


@T.prim_func
def pooled(x: T.Buffer((2, 8, 6, 6), "float32"), w: T.Buffer((8,), "float32"), y: T.Buffer((2, 8, 3, 3), "float32")):
    for n, c, i, j, p, q in T.grid(2, 8, 3, 3, 2, 2):
        with T.sblock("pool"):
            vn, vc, vi, vj, vp, vq = T.axis.remap("SSSSRR", [n, c, i, j, p, q])
            with T.init():
                y[vn, vc, vi, vj] = T.float32(0)
            y[vn, vc, vi, vj] = y[vn, vc, vi, vj] + x[vn, vc, vi * 2 + vp, vj * 2 + vq] * w[vc]


def test_layouts_that_go_with_that_of_the_result_compute_the_same():
    maps = relax.analysis.suggest_layout_transforms(pooled, [lambda n, c, h, w: (n, h, w, c // 4, c % 4)])
    ((block, found),) = maps.items()
    names = {k.name if isinstance(k, tir.Buffer) else k.name_hint: str(m) for k, m in found.items()}
    assert set(names) == {"pool", "x", "w", "y"} and block.name_hint == "pool"
    sch = tir.Schedule(pooled)
    for key, layout in found.items():
        if isinstance(key, tir.Buffer):
            sch.transform_layout("pool", key.name, layout)
        else:
            sch.transform_block_layout("pool", layout)
    x, w = (np.random.default_rng(0).random(s, "float32") for s in ((2, 8, 6, 6), (8,)))
    got = runtime.tensor(np.zeros((2, 3, 3, 2, 4), "float32"))
    shown = x.reshape(2, 2, 4, 6, 6).transpose(0, 3, 4, 1, 2)
    compile(sch.mod)["main"](runtime.tensor(np.ascontiguousarray(shown)), runtime.tensor(w.reshape(2, 4)), got)
    want = x.astype("float64").reshape(2, 8, 3, 2, 3, 2).sum((3, 5)) * w[None, :, None, None]
    np.testing.assert_allclose(got.numpy(), want.reshape(2, 2, 4, 3, 3).transpose(0, 3, 4, 1, 2), rtol=1e-5)
    (region,) = (r for r in sch.get(sch.get_sblock("pool")).reads if r.buffer.name == "w")
    assert "//" not in str(region) and "y" not in {r.buffer.name for r in sch.get(sch.get_sblock("pool")).reads}


@pytest.mark.parametrize("layout", [lambda n, c, h, w: (n, c // 3, c % 3, h, w), lambda n, c, h, w: (n * h, c, w)])
def test_layouts_that_do_not_divide_are_not_suggested(layout):
    assert relax.analysis.suggest_layout_transforms(pooled, [layout]) == {}
    with pytest.raises(error.InvalidArgument, match="Mismatch between output buffer shape"):
        relax.analysis.suggest_layout_transforms(pooled, [lambda n, c: (c, n)])
    with pytest.raises(error.InvalidArgument, match="Incompatible PrimFunc"):
        relax.analysis.suggest_layout_transforms(pooled, [layout] * 4)


def test_kernels_that_only_copy_are_views_where_their_results_stay_inside():
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def flat(x: T.Buffer((3, 4), "float32"), y: T.Buffer((12,), "float32")):
            for i in range(12):
                with T.sblock("flat"):
                    v = T.axis.spatial(12, i)
                    y[v] = x[v // 4, v % 4]

        @T.prim_func(private=True)
        def part(x: T.Buffer((12,), "float32"), y: T.Buffer((5,), "float32")):
            for i in range(5):
                with T.sblock("part"):
                    v = T.axis.spatial(5, i)
                    y[v] = x[v]

        @R.function
        def main(x: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                a = R.call_tir(Before.flat, (x,), out_ty=R.Tensor((12,), "float32"))
                b = R.call_tir(Before.part, (a,), out_ty=R.Tensor((5,), "float32"))
                c = R.call_tir(Before.flat, (x,), out_ty=R.Tensor((12,), "float32"))
                R.output(b, c)
            return (b, c)

    after = relax.transform.RewriteDataflowReshape()(Before)
    kinds = [b.value.op.name for b in after["main"].body.blocks[0].bindings]
    assert kinds == ["relax.reshape", "relax.call_tir", "relax.call_tir"]
    x = np.random.default_rng(0).random((3, 4), "float32")
    part, whole = run(after, x)
    np.testing.assert_array_equal(part, x.reshape(-1)[:5])
    np.testing.assert_array_equal(whole, x.reshape(-1))


def test_sizes_that_a_cast_names_are_those_of_its_value():
    @R.function
    def before(x: R.Tensor(("m", 4), "float32"), y: R.Tensor("float32", ndim=1)):
        a, b, k = T.int64(), T.int64(), T.int64()
        z = R.match_cast(x, R.Tensor((a, b), "float32"))
        w = R.match_cast(y, R.Tensor((k,), "float32"))
        s = R.add(z, x)
        return (s, w)

    once = relax.transform.CanonicalizeBindings()(ir.IRModule({"before": before}))
    text = once["before"].script()
    assert "R.add(x, x)" in text and "match_cast(y" in text and "match_cast(x" not in text
    assert str(once["before"].ret_ty.fields[0]) == 'R.Tensor((m, 4), dtype="float32")'
    assert relax.transform.CanonicalizeBindings()(once) is once

    @R.function
    def wrong(x: R.Tensor((2,), "float32"), y: R.Tensor((3,), "float32")):
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.match_cast(y, R.Tensor((n,), "float32"))
        return (a, b)

    with pytest.raises(ValueError, match="MatchCast statements must be consistent: 'n' has two values"):
        relax.transform.CanonicalizeBindings()(ir.IRModule({"wrong": wrong}))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_handle_that_a_kernel_takes_is_what_describes_a_tensor(target):
    @T.prim_func
    def rank(x: T.handle) -> T.int64:
        T.func_attr({"tir.is_host_func": T.bool(True), "tir.noalias": 1})
        T.ret(T.Cast("int64", T.tvm_struct_get(x, 0, 4, "int32")))

    assert rank.attrs["tir.noalias"] is True is rank.attrs["tir.is_host_func"]
    assert compile(ir.IRModule({"rank": rank}), target)["rank"](runtime.tensor(np.zeros((2, 3, 5)))) == 3


@pytest.mark.parametrize("index", [1, -1])
def test_the_index_of_take_may_be_a_scalar(index):
    bb, x = relax.BlockBuilder(), relax.Var("x", R.Tensor((4, 3), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(relax.Tuple([bb.emit(relax.op.take(x, relax.prim_value(index), axis=1))]))
    given = np.random.default_rng(0).random((4, 3), "float32")
    np.testing.assert_array_equal(run(bb.get(), given)[0], given[:, index])
    with pytest.raises(error.IndexOutOfRange):
        bb.normalize(relax.op.take(x, relax.prim_value(3), axis=1))
