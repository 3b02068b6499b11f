"""The instructions that programs name are registered, and what they compute is found in a product of bytes."""

import numpy as np
import pytest

import weft
from weft import te, tir
from weft.script import tir as T
from weft.script.tensor_intrin import arm_cpu, cuda, hexagon, rocm, x86
from weft.target import Target
from weft.testing.tir import mma_schedule

ARM, HEXAGON = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod", None
IN_VECTORS = [  # name, sums, products of each, dtypes, what stands in the code (or the program) of which target
    (x86.VNNI_DOT_16x4_INTRIN, 16, 4, "uint8 int8 int32", "vpdpbusd", "llvm -mcpu=cascadelake"),
    (x86.AVX512_DOT_16x4_INTRIN, 16, 4, "uint8 int8 int32", "vpmaddubsw", "llvm -mcpu=skylake-avx512"),
    (arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, 4, 4, "int8 int8 int32", "smull", ARM),
    (arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN, 4, 4, "int8 int8 int32", "sdot", ARM),
    (arm_cpu.ARM_DOT_4x4_u8_UDOT_INTRIN, 4, 4, "uint8 uint8 uint32", "udot", ARM),
    (arm_cpu.ARM_DOT_4x4_u8_HDOT_INTRIN, 4, 4, "uint8 uint8 int32", "udot", ARM),
    (hexagon.VRMPY_u8u8i32_INTRIN, 32, 4, "uint8 uint8 int32", "V6.vrmpyubv.acc", HEXAGON),
    (hexagon.VRMPY_u8i8i32_INTRIN, 32, 4, "uint8 int8 int32", "V6.vrmpybusv.acc", HEXAGON),
    (hexagon.VDMPY_i16i16i32_INTRIN, 32, 2, "int16 int16 int32", "V6.vdmpyhvsat.acc", HEXAGON),
]


def product(of_a, of_b, of_c, rows, columns, depth):
    a, b = te.placeholder((rows, depth), of_a, "a"), te.placeholder((columns, depth), of_b, "b")
    k = te.reduce_axis((0, depth), "k")

    def element(i, j):
        return te.sum(a[i, k].astype(of_c) * b[j, k].astype(of_c), axis=k)

    return te.create_prim_func([a, b, te.compute((rows, columns), element, name="c")])


def in_vectors(name, lanes, group, dtypes):
    """A product of 3 rows and twice as many columns and depths as the instruction has, which calls it."""
    sch = tir.Schedule(product(*dtypes.split(), 3, 2 * lanes, 2 * group))
    block = sch.get_block("c")
    sch.transform_layout(block, "b", lambda j, k: [j // lanes, k // group, j % lanes, k % group])
    _, j, k = sch.get_loops(block)
    _, inside = sch.split(j, [None, lanes])
    outside, within = sch.split(k, [None, group])
    sch.reorder(outside, inside, within)
    sch.decompose_reduction(block, outside)
    sch.tensorize(inside, name)
    return sch.mod


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "lanes", "group", "dtypes", "instruction", "target"), IN_VECTORS)
def test_a_product_calls_the_instruction(name, lanes, group, dtypes, instruction, target):
    mod = in_vectors(name, lanes, group, dtypes)
    text = str(mod) if target is None else weft.build(mod, target=target).inspect_source("asm")
    assert instruction in text


@pytest.mark.parametrize(("name", "lanes", "group", "dtypes"), [r[:4] for r in IN_VECTORS])
def test_what_the_instruction_computes(name, lanes, group, dtypes):
    of_a, of_b, of_c = dtypes.split()
    rng, found = np.random.default_rng(0), tir.TensorIntrin.get(name)
    a, b = (rng.integers(*_ends(t), s, t, endpoint=True) for t, s in ((of_a, group), (of_b, (lanes, group))))
    c = np.arange(lanes, dtype=of_c)
    out = weft.runtime.tensor(c)
    weft.build(found.desc, target="llvm")(weft.runtime.tensor(a), weft.runtime.tensor(b), out)
    np.testing.assert_array_equal(out.numpy(), c + b.astype(of_c) @ a.astype(of_c))


def _ends(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def test_a_product_of_bytes_runs_on_a_processor_with_the_instruction():
    if "avx512vnni" not in Target("llvm").machine.features:
        pytest.skip("the processor has no AVX-512 VNNI")
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (3, 8), "uint8"), rng.integers(-128, 128, (32, 8), "int8")
    packed = np.ascontiguousarray(b.reshape(2, 16, 2, 4).transpose(0, 2, 1, 3))
    out = weft.runtime.tensor(np.zeros((3, 32), "int32"))
    mod = in_vectors(x86.VNNI_DOT_16x4_INTRIN, 16, 4, "uint8 int8 int32")
    weft.build(mod, target="llvm")(weft.runtime.tensor(a), weft.runtime.tensor(packed), out)
    np.testing.assert_array_equal(out.numpy(), a.astype("int32") @ b.astype("int32").T)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        (arm_cpu.DP4A_S8S8S32_INTRIN, "int8 int8 int32"),
        (arm_cpu.DP4A_U8S8S32_INTRIN, "uint8 int8 int32"),
        (arm_cpu.DP4A_S8U8S32_INTRIN, "int8 uint8 int32"),
        (arm_cpu.DP4A_U8U8U32_INTRIN, "uint8 uint8 uint32"),
        (rocm.AMDGPU_SDOT4_INTRIN, "int8 int8 int32"),
    ],
)
def test_a_product_on_a_gpu_calls_the_instruction(name, dtypes):
    sch = tir.Schedule(product(*dtypes.split(), 8, 8, 8))
    block = sch.get_block("c")
    i, j, k = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    outside, within = sch.split(k, [None, 4])
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), j)
    for n in (0, 1):
        sch.compute_at(sch.cache_read(block, n, "shared"), outside)
    sch.decompose_reduction(block, outside)
    sch.tensorize(within, name)
    if name == rocm.AMDGPU_SDOT4_INTRIN:
        assert "llvm.amdgcn.sdot4" in str(sch.mod)
        return
    assert "__dp4a(" in weft.build(sch.mod, target="cuda").imports[0].inspect_source()


def test_bytes_of_both_kinds_are_products_of_signed_ones():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (1000, 4), "uint8"), rng.integers(-128, 128, (1000, 4), "int8")
    a[:2], b[:2] = 255, [[127] * 4, [-128] * 4]
    signs = np.full(4, -128, "int8")

    def dp4a(x, y, c=0):
        return (x.astype("int32") * y.astype("int32")).sum(-1) + c

    signed = (a ^ np.uint8(0x80)).view("int8")
    np.testing.assert_array_equal(dp4a(signed, b, 5) - dp4a(signs, b), dp4a(a, b, 5))


@T.prim_func
def described(A: T.Buffer((4,), "float32", offset_factor=1), B: T.Buffer((4,), "float32", offset_factor=1)):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)


@T.prim_func
def by_places(A: T.Buffer((4,), "float32", offset_factor=1), B: T.Buffer((4,), "float32", offset_factor=1)):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        T.block_attr({"by": "places"})
        for i in range(4):
            B[i] = T.Cast("float32", A.elem_offset + i) + A[i] - A[i]


def test_the_offset_of_a_matched_buffer_is_where_its_region_begins():
    a = te.placeholder((3, 8), "float32", "a")
    sch = tir.Schedule(te.create_prim_func([a, te.compute((3, 8), lambda i, j: a[i, j] * 2.0, name="b")]))
    _, j = sch.get_loops(sch.get_block("b"))
    _, inside = sch.split(j, [None, 4])
    sch.tensorize(inside, tir.TensorIntrin(described, by_places, "places"))
    assert sch.get(sch.get_block("b_o")).annotations["by"] == "places"
    given, out = weft.runtime.tensor(np.ones((3, 8), "float32")), weft.runtime.tensor(np.zeros((3, 8), "float32"))
    weft.build(sch.mod, target="llvm")(given, out)
    np.testing.assert_array_equal(out.numpy(), np.arange(24, dtype="float32").reshape(3, 8))


SQUARE, WIDE, TALL = (
    getattr(cuda, f"shared_{n}_layout")
    for n in ("16x16_to_ldmatrix_32x8", "16x32_to_ldmatrix_32x16", "32x16_to_ldmatrix_32x16")
)
WARPS = [  # types, whether B lies transposed, where threads have A and B
    ("float16", "float32", False, SQUARE, SQUARE),
    ("float16", "float16", True, SQUARE, SQUARE),
    ("int8", "int32", True, WIDE, WIDE),
    ("int8", "int32", False, WIDE, TALL),
]


@pytest.mark.parametrize(("of", "out", "turned", "layout_a", "layout_b"), WARPS)
def test_what_the_instructions_of_a_warp_compute(of, out, turned, layout_a, layout_b):
    names = cuda.get_mma_intrin_group("shared", "global", of, out, False, turned)
    depth, rng = 16 if of == "float16" else 32, np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (16, depth)).astype(of), rng.integers(-8, 8, (depth, 16)).astype(of)
    lying = np.ascontiguousarray(b.T if turned else b)

    def call(name, *given):
        tensors = [weft.runtime.tensor(x) for x in given]
        weft.build(tir.TensorIntrin.get(name).desc, target="llvm")(*tensors)
        return tensors[-1].numpy()

    parts = [call(names[n], x, np.zeros((32, depth // 2), of)) for n, x in (("load_a", a), ("load_b", lying))]
    for part, whole, layout in zip(parts, (a, lying), (layout_a, layout_b), strict=True):
        np.testing.assert_array_equal(part[layout(*np.indices(whole.shape))], whole)
    total = call(names["compute"], *parts, call(names["init"], np.ones((32, 8), out)))
    stored = call(f"mma_store_16x16_{cuda._MMA[out]}_global_", total, np.zeros((16, 16), out))
    np.testing.assert_array_equal(stored, a.astype(out) @ b.astype(out))
    np.testing.assert_array_equal(
        np.stack(cuda.ldmatrix_32x8_to_shared_16x16_layout(*SQUARE(*np.indices((16, 16))))), np.indices((16, 16))
    )
    if depth == 16:  # fragments are matrices themselves
        name = cuda.get_wmma_intrin_group("shared", "global", of, out, turned)["compute"]
        np.testing.assert_array_equal(call(name, a, lying, np.ones((16, 16), out)), stored + 1)


@pytest.mark.parametrize(("of", "out", "turned", "layout_a", "layout_b"), WARPS)
def test_a_product_by_warps(of, out, turned, layout_a, layout_b):
    a, b = (te.placeholder((256, 256), of, n) for n in "ab")
    k, depth = te.reduce_axis((0, 256), "k"), 16 if of == "float16" else 32

    def element(i, j):
        x, y = a[i, k], b[(j, k) if turned else (k, j)]
        return te.sum(x * y if of == out else x.astype(out) * y.astype(out), axis=k)

    def tiled(layout, rows, columns):
        return lambda i, j: (i // rows, j // columns, *layout(i % rows, j % columns))

    maps = [
        tiled(layout_a, 16, depth),
        tiled(layout_b, *((16, depth) if turned else (depth, 16))),
        tiled(SQUARE, 16, 16),
    ]
    names = cuda.get_mma_intrin_group("shared", "global", of, out, False, turned, False)
    sch = mma_schedule(
        te.create_prim_func([a, b, te.compute((256, 256), element, name="C")]),
        depth,
        of,
        turned,
        [1, 2, 1, 1, None],
        [1, 2, 1, 1, None],
        [None, 2, 1],
        *maps,
        *(names[n] for n in ("load_a", "load_b", "compute", "init", "store")),
    )
    text = str(sch.mod)
    assert [text.count(n) for n in ("ptx_ldmatrix", '"tir.ptx_mma"', "mma_fill", "mma_store")] == [2, 2, 1, 1]


def test_instructions_of_a_warp_are_refused_by_name():
    assert cuda.WMMA_SYNC_16x16x16_f16f16f32_TRANS_INTRIN == "wmma_sync_16x16x16_f16f16f32_trans"
    assert cuda.WMMA_LOAD_16x16x16_F16_A_DYN_INTRIN == "wmma_load_16x16x16_f16_a_shared_dyn"
    for target in ("llvm", "cuda"):
        with pytest.raises(weft.error.CodegenError, match="tvm_mma_sync"):
            weft.build(tir.TensorIntrin.get(cuda.WMMA_SYNC_16x16x16_s8s8s32_INTRIN).impl, target=target)
