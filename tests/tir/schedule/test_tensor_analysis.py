"""Which loops of a block an intrinsic takes, and layouts for accesses: what is found is used, and values stay."""

import numpy as np
import pytest

from tests.tir.schedule.run_scheduled import run
from weft import ir, te, tir
from weft.meta_schedule.testing.te_workload import batch_matmul_nkkm, conv2d_nhwc, matmul
from weft.script import tensor_intrin as _registered  # noqa: F401
from weft.tir.interpret import evaluate
from weft.tir.schedule import Schedule, TensorIntrin, analysis, transform

DESC = TensorIntrin.get("wmma_sync_16x16x16_f16f16f32").desc
TYPES = {"in_dtype": "float16", "out_dtype": "float32"}


@pytest.mark.parametrize(("n", "m", "k"), [(32, 16, 48), (17, 16, 3), (1, 5, 33)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_loops_of_an_intrinsic_are_found_in_any_order(n: int, m: int, k: int, order: tuple[int, ...]):
    sch = Schedule(te.create_prim_func(matmul(n, m, k, **TYPES)))
    loops = sch.get_loops(block := sch.get_block("C"))
    sch.reorder(*(loops[i] for i in order))
    assert analysis.has_block(sch, "C") and not analysis.has_block(sch, "A") and analysis.is_output_block(sch, block)
    whole = all(size % 16 == 0 for size in (n, m, k))
    assert (analysis.get_tensorize_loop_mapping(sch, block, DESC) is None) != whole
    info = analysis.get_tensorize_loop_mapping(sch, block, DESC, allow_padding=True)
    assert info.block_iter_paddings == (None if whole else [1 if s % 16 == 0 else 16 for s in (n, m, k)])
    found = {f.loop_var.name: r.stmt.loop_var for r, f in info.loop_map.items()}
    assert [found[name] for name in sorted(found)] == [loop.var for loop in loops]


@pytest.mark.parametrize(("n", "m", "k"), [(32, 16, 48), (17, 16, 3)])
def test_tiles_of_an_intrinsic(n: int, m: int, k: int):
    name = "wmma_sync_16x16x16_f16f16f32"
    func = te.create_prim_func(matmul(n, m, k, **TYPES))
    sch = Schedule(func, debug_mask="all")
    block = sch.get_block("C")
    whole = n % 16 == m % 16 == k % 16 == 0
    sch.reorder(*sch.get_loops(block)[:: -1 if whole else 1])
    assert (transform.tile_with_tensor_intrin(sch, block, name) is None) != whole
    loop = sch.get_loops(block)[-3] if whole else transform.tile_with_tensor_intrin(sch, block, name, True)
    assert [ir.as_int(sch.get(f).extent) for f in sch.get_loops(block)[3:]] == [16, 16, 16]
    assert loop.var is sch.get_loops(block)[3].var
    rng = np.random.default_rng(0)
    given = [rng.integers(-4, 5, s).astype("float16") for s in ((n, k), (k, m))]
    results = [np.zeros((n, m), "float32") for _ in range(2)]
    for f, result in zip((func, sch.func), results, strict=True):
        run(f, *given, result)
    np.testing.assert_array_equal(*results)


def test_what_an_intrinsic_does_not_describe_has_no_map():
    sch = Schedule(te.create_prim_func([te.compute((16, 16), lambda i, j: i + j, "C")]))
    assert analysis.get_tensorize_loop_mapping(sch, sch.get_block("C"), DESC) is None
    assert transform.tile_with_tensor_intrin(sch, sch.get_block("C"), "wmma_sync_16x16x16_f16f16f32") is None
    sch = Schedule(te.create_prim_func(matmul(16, 16, 16, in_dtype="int8", out_dtype="int32")))
    assert analysis.get_auto_tensorize_mapping_info(sch, sch.get_block("C"), DESC) is None


@pytest.mark.parametrize(
    ("workload", "name", "wanted"),
    [
        (batch_matmul_nkkm(3, 4, 5, 6, **TYPES), "Z", lambda b, n, m, k: (b, n, m, k)),
        (
            conv2d_nhwc(2, 4, 4, 3, 5, 3, 1, 1, **TYPES),
            "conv2d_nhwc",
            lambda n, h, w, f, y, x, c: (n * 16 + h * 4 + w, f, y * 9 + x * 3 + c),
        ),
    ],
)
def test_the_variables_of_a_block_become_those_of_a_description(workload, name, wanted):
    func = te.create_prim_func(workload)
    sch = Schedule(func)
    (mapping,) = analysis.get_auto_tensorize_mapping_info(sch, sch.get_block(name), DESC).mappings
    assert mapping.is_equivalent_to(tir.IndexMap.from_func(wanted))
    sch.transform_block_layout(name, mapping)
    shapes = [(b.dtype, [int(d) for d in b.shape]) for _, b in func.buffer_map]
    given = [np.random.default_rng(0).integers(-4, 5, s).astype(t) for t, s in shapes]
    before, after = ([*given[:-1], given[-1].copy()] for _ in range(2))
    run(func, *before)
    run(sch.func, *after)
    np.testing.assert_array_equal(before[-1], after[-1])


@pytest.mark.parametrize(
    "access",
    [
        lambda i, j: (i // 16 * 4 + j // 16, i % 16 * 16 + j % 16),
        lambda i, j: (j % 8, j // 8 * 32 + i),
        lambda i, j: (i % 4 * 2 + j // 32, i // 4 * 32 + j % 32),
    ],
)
def test_a_suggested_layout_follows_the_loops(access):
    i, j = ir.Var("i", "int32"), ir.Var("j", "int32")
    loops = [tir.For(v, 0, size, tir.ForKind.SERIAL, tir.Evaluate(0)) for v, size in ((i, 32), (j, 64))]
    suggested = analysis.suggest_index_map(tir.decl_buffer((8, 256)), access(i, j), loops, True)
    image, sizes = suggested.map_indices(access(i, j)), [int(d) for d in suggested.map_shape((8, 256))]
    points = [{i: x, j: y} for x in range(0, 32, 5) for y in range(64)]
    flat = [np.ravel_multi_index([evaluate(e, p) for e in image], sizes) for p in points]
    assert flat == sorted(set(flat))
