"""blockize, tensorize, reindex, pad_einsum: what they make computes the same, or they are refused."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from tests.tir.schedule.test_primitives import chain, check_chain, check_matmul, matmul
from weft import error, ir, te
from weft.script import tir as T
from weft.tir import Schedule, TensorIntrin
from weft.tir.interpret import interpret


@T.prim_func
def dot_desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4, 8), "float32", offset_factor=1)
    B = T.match_buffer(b, (8, 2), "float32", offset_factor=1)
    C = T.match_buffer(c, (4, 2), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:2], A[0:4, 0:8], B[0:8, 0:2])
        T.writes(C[0:4, 0:2])
        for i, j, k in T.grid(4, 2, 8):
            with T.block("dot"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def dot_impl(
    a: T.handle, B: T.Buffer((8, 2), "float32", offset_factor=1), C: T.Buffer((4, 2), "float32", offset_factor=1)
) -> None:
    s0 = T.int64()
    s1 = T.int64()
    off = T.int64()
    A = T.match_buffer(a, (4, 8), "float32", strides=(s0, s1), elem_offset=off, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:2], A[0:4, 0:8], B[0:8, 0:2])
        T.writes(C[0:4, 0:2])
        for k, i in T.grid(8, 4):
            for j in T.unroll(2):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]


TensorIntrin.register("tests.dot_4x2x8", dot_desc, dot_impl, override=True)


def run_native(func, *arrays):
    weft.build(func, target="llvm")(*arrays)


def check_native(func, m, n, k):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    for execute in (run_native, interpret):
        out = np.full((m, n), np.nan, np.float32)
        execute(func, a, b, out)
        np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def tiled(m=8, n=6, k=16):
    """A product tiled by 4, 2, 8, and the loop of its tiles' inside."""
    sch = Schedule(matmul(m, n, k, relu=False))
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, [None, 2])
    ro, ri = sch.split(r, [None, 8])
    sch.reorder(io, jo, ro, ii, ji, ri)
    return sch, block, ro, ii


def test_blockize_a_reduction():
    sch, block, ro, ii = tiled()
    outer = sch.blockize(ii)
    assert [iv.var.name for iv in sch.get(outer).iter_vars] == ["v_i_o", "v_j_o", "v_k_o"]
    assert sch.get(outer).init is not None and sch.get(block).init is None
    assert [r.extent.value for r in sch.get(outer).writes[0].region] == [4, 2]
    check_matmul(sch.func, 8, 6, 16, relu=False)
    sch.decompose_reduction(outer, ro)
    check_matmul(sch.func, 8, 6, 16, relu=False)


def test_blockize_starts_outside_of_a_whole_reduction():
    sch = Schedule(matmul(8, 6, 16, relu=False))
    block = sch.get_block("C")
    i, j, _ = sch.get_loops(block)
    outer = sch.blockize(j)
    assert sch.get(outer).init is not None and sch.get(block).init is None
    sch.parallel(i)
    check_matmul(sch.func, 8, 6, 16, relu=False)


@pytest.mark.parametrize(("unit", "values"), [(True, ["i_0", "0"]), (False, ["0", "0"])])
def test_blockize_of_what_is_whole_inside_has_variables_of_one_step(unit, values):
    sch = Schedule(chain(6, 4))
    sch.blockize(sch.split(sch.get_loops("B")[0], [1, None])[1], preserve_unit_iters=unit)
    realize = sch.state.realize("B_o")
    assert [str(v) for v in realize.iter_values] == values
    assert [ir.as_int(iv.dom.extent) for iv in realize.block.iter_vars] == [1, 1]
    check_chain(sch.func, 6, 4)


def test_blockize_elementwise_interprets_too():
    sch = Schedule(chain(6, 4))
    i, j = sch.get_loops("B")
    io, ii = sch.split(i, [None, 3])
    jo, ji = sch.split(j, [None, 2])
    sch.reorder(io, jo, ii, ji)
    sch.blockize(ii)
    check_chain(sch.func, 6, 4)
    a, out = np.arange(24, dtype="float32").reshape(6, 4), np.zeros((4, 6), "float32")
    interpret(sch.func, a, out)
    np.testing.assert_array_equal(out, (a * 2 + 1).T)


def test_what_is_inlined_leaves_the_regions_of_inner_blocks():
    sch = Schedule(chain(6, 4))
    copy = sch.cache_read("B", 0, "global")
    i, _ = sch.get_loops("B")
    outer = sch.blockize(i)
    sch.compute_inline(copy)
    copied = {r.buffer.name for block in (outer, sch.get_block("B")) for r in sch.get(block).reads}
    assert copied == {"A"}
    check_chain(sch.func, 6, 4)


def test_blockize_refusals():
    sch = Schedule(matmul(7, 6, 16, relu=False))
    i, _, _ = sch.get_loops("C")
    _, ii = sch.split(i, [None, 4])
    refuses(error.ScheduleError, "blockize: the condition .* cuts the nest", sch.blockize, ii)
    sch = Schedule(matmul(4, 4, 4))
    root = sch.get_loops("C")[0]
    sch.reverse_compute_at("D", root)
    refuses(error.ScheduleError, "do not hold one block", sch.blockize, root)


@pytest.mark.parametrize("whole", [False, True])
def test_tensorize(whole):
    sch, block, ro, ii = tiled()
    sch.decompose_reduction(block, ro)
    if whole:
        sch.tensorize(ii, "tests.dot_4x2x8")
    else:
        sch.tensorize(sch.blockize(ii), "tests.dot_4x2x8")
    assert "match_buffer" in str(sch.func)
    check_native(sch.func, 8, 6, 16)
    again = Schedule(matmul(8, 6, 16, relu=False))
    sch.trace.apply_to_schedule(again)
    ir.assert_structural_equal(again.func, sch.func)


def test_tensorize_with_an_extern_call():
    """An implementation that hands pointers to a C function sees the region's place."""

    @T.prim_func
    def desc(A: T.Buffer((4,), "float32", offset_factor=1), B: T.Buffer((4,), "float32", offset_factor=1)) -> None:
        with T.block("root"):
            T.reads(A[0:4])
            T.writes(B[0:4])
            for i in range(4):
                with T.block("copy"):
                    v = T.axis.spatial(4, i)
                    B[v] = A[v]

    @T.prim_func
    def impl(A: T.Buffer((4,), "float32", offset_factor=1), B: T.Buffer((4,), "float32", offset_factor=1)) -> None:
        with T.block("root"):
            T.reads(A[0:4])
            T.writes(B[0:4])
            T.evaluate(T.call_extern("handle", "memcpy", T.address_of(B[0]), T.address_of(A[0]), T.int64(16)))

    a = te.placeholder((5, 12), name="A")
    b = te.compute((5, 12), lambda i, j: a[i, j], name="B")
    sch = Schedule(te.create_prim_func([a, b]))
    i, j = sch.get_loops("B")
    _, ji = sch.split(j, [None, 4])
    sch.tensorize(ji, TensorIntrin(desc, impl, "copy4"))
    sch.parallel(i)
    x, out = np.random.default_rng(0).random((5, 12), "float32"), np.zeros((5, 12), "float32")
    run_native(sch.func, x, out)
    np.testing.assert_array_equal(out, x)


def test_tensorize_of_a_reduction_with_its_start():
    sch = Schedule(matmul(4, 2, 8, relu=False))
    sch.tensorize(sch.get_loops("C")[0], "tests.dot_4x2x8")
    check_native(sch.func, 4, 2, 8)


def test_tensorize_refusals():
    a, b, r = te.placeholder((4, 8)), te.placeholder((8, 2)), te.reduce_axis((0, 8))
    c = te.compute((4, 2), lambda i, j: te.sum(a[i, r] + b[r, j], axis=r), name="C")
    sums = Schedule(te.create_prim_func([a, b, c]))
    with pytest.raises(error.ScheduleError, match=r"does not compute what 'tests.dot_4x2x8' describes"):
        sums.tensorize(sums.get_loops("C")[0], "tests.dot_4x2x8")
    other = Schedule(matmul(8, 2, 16, relu=False))
    block = other.get_block("C")
    other.decompose_reduction(block, other.get_loops(block)[0])
    outer = other.blockize(other.get_loops(block)[0])
    refuses(error.ScheduleError, r"touches \['8', '2'\] of 'C'", other.tensorize, outer, "tests.dot_4x2x8")
    refuses(error.InvalidArgument, "no tensor intrinsic 'nothing'", other.tensorize, outer, "nothing")


@pytest.mark.parametrize("where", [("read", 0), ("read", 1), ("write", 0), "A", "C"])
def test_reindex(where):
    sch = Schedule(matmul(7, 5, 6))
    assert sch.reindex("C", where).name.endswith("_reindex")
    check_matmul(sch.func, 7, 5, 6)


def test_reindex_gathers():
    """A strided window becomes a buffer that the block addresses by its own variables."""
    a = te.placeholder((20,), name="A")
    r = te.reduce_axis((0, 3), name="r")
    c = te.compute((9,), lambda i: te.sum(a[i * 2 + r], axis=r), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.reindex("C", ("read", 0))
    x, out = np.random.default_rng(0).random(20, "float32"), np.zeros(9, "float32")
    run(sch.func, x, out)
    np.testing.assert_allclose(out, [x[2 * i : 2 * i + 3].sum() for i in range(9)], rtol=1e-6)


def test_reindex_refusals():
    sch = Schedule(matmul(7, 5, 6))
    refuses(error.ScheduleError, "does not touch 'Z'", sch.reindex, "C", "Z")
    refuses(error.ScheduleError, "index 5 is out of range", sch.reindex, "C", ("read", 5))


@pytest.mark.parametrize(("size", "padding"), [((7, 5, 6), [4, 4, 4]), ((8, 5, 6), [4, 1, 8]), ((4, 4, 4), [4, 2, 1])])
def test_pad_einsum(size, padding):
    sch = Schedule(matmul(*size))
    sch.pad_einsum("C", padding)
    for loop, extent, p in zip(sch.get_loops("C"), size, padding, strict=True):
        assert sch.get(loop).extent.value == -(-extent // p) * p
    check_matmul(sch.func, *size)


def test_pad_einsum_symbolic():
    sch = Schedule(matmul(te.size_var("m", "int64"), 5, 6))
    sch.pad_einsum("C", [8, 8, 8])
    i, _, _ = sch.get_loops("C")
    sch.split(i, [None, 8])
    for size in (1, 8, 13):
        check_matmul(sch.func, size, 5, 6)


def test_pad_einsum_refusals():
    sch = Schedule(matmul(7, 5, 6))
    refuses(error.ScheduleError, "positive number for each of 3", sch.pad_einsum, "C", [4, 4])
    refuses(error.ScheduleError, "no sum of products", sch.pad_einsum, "D", [4, 4])
    sch.split(sch.get_loops("C")[0], [None, 2])
    refuses(error.ScheduleError, "scheduled already", sch.pad_einsum, "C", [4, 4, 4])


def test_a_block_that_starts_from_other_elements_is_not_made_one_of_blocks():
    """Elements would be set that an earlier iteration has changed already."""

    @T.prim_func
    def crossed(X: T.Buffer((4, 4), "int32"), Y: T.Buffer((4, 4), "int32")):
        for i, j, k in T.grid(4, 4, 4):
            with T.sblock("S"):
                v, w, u = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[v, w] = 1
                Y[w, v] = Y[w, v] + X[v, u]

    sch = Schedule(crossed)
    refuses(error.ScheduleError, "starts from other elements", sch.blockize, sch.get_loops("S")[0])
