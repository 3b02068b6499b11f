"""Which loops of a block an intrinsic takes, and layouts for accesses: what is found is used, and values stay."""

import numpy as np
import pytest

from weft import ir, te, tir
from weft.script import tensor_intrin as _registered  # noqa: F401
from weft.tir.interpret import evaluate
from weft.tir.schedule import Schedule, TensorIntrin, analysis

WMMA = "wmma_sync_16x16x16_f16f16f32"


def product(n: int, m: int, k: int, *, batch: tuple[int, ...] = (), dtype: str = "float32") -> tir.PrimFunc:
    a = te.placeholder((*batch, n, k), "float16", "A")
    b = te.placeholder((*batch, k, m), "float16", "B")
    r = te.reduce_axis((0, k), "r")

    def at(*i: ir.PrimExpr) -> ir.PrimExpr:
        return te.sum(a[(*i[:-1], r)].astype(dtype) * b[(*i[:-2], r, i[-1])].astype(dtype), axis=r)

    return te.create_prim_func([a, b, te.compute((*batch, n, m), at, name="C")])


def values(func: tir.PrimFunc) -> np.ndarray:
    rng = np.random.default_rng(0)
    shapes = [tuple(int(d) for d in func.buffer_map[p].shape) for p in func.params]
    given = [rng.integers(-4, 5, s).astype(func.buffer_map[p].dtype) for s, p in zip(shapes, func.params, strict=True)]
    tir.interpret(func, *given)
    return given[-1]


@pytest.mark.parametrize(
    ("n", "m", "k", "order"),
    [(32, 16, 48, (0, 1, 2)), (32, 16, 48, (2, 0, 1)), (17, 16, 3, (0, 1, 2)), (1, 5, 33, (0, 1, 2))],
)
def test_a_block_is_tiled_for_an_intrinsic_in_any_order_of_loops(n: int, m: int, k: int, order: tuple[int, ...]):
    sch = Schedule(product(n, m, k))
    loops = sch.get_loops(block := sch.get_block("C"))
    sch.reorder(*(loops[i] for i in order))
    desc = TensorIntrin.get(WMMA).desc
    whole = all(size % 16 == 0 for size in (n, m, k))
    assert (analysis.get_tensorize_loop_mapping(sch, block, desc) is None) != whole
    info = analysis.get_tensorize_loop_mapping(sch, block, desc, allow_padding=True)
    assert info.block_iter_paddings == (None if whole else [1 if s % 16 == 0 else 16 for s in (n, m, k)])
    assert [info.desc_loop_indexer[info.loop_map[r]] for r in info.loop_map] == [2, 1, 0]
    assert {r.stmt.loop_var: info.desc_loop_indexer[f] for r, f in info.loop_map.items()} == {
        loop.var: i for i, loop in enumerate(loops)
    }
    first = analysis.tile_with_tensor_intrin(sch, block, WMMA, allow_padding=True)
    inner = sch.get_loops(block)[-3:]
    assert inner[0].var is first.var and [int(sch.get(loop).extent) for loop in inner] == [16, 16, 16]
    np.testing.assert_array_equal(values(sch.func), values(product(n, m, k)))


def test_what_an_intrinsic_does_not_describe_has_no_map():
    desc = TensorIntrin.get(WMMA).desc
    for func in (
        product(16, 16, 16, dtype="int32"),
        te.create_prim_func([te.compute((16, 16), lambda i, j: i + j, "C")]),
    ):
        sch = Schedule(func)
        assert analysis.get_auto_tensorize_mapping_info(sch, sch.get_block("C"), desc) is None
    assert analysis.tile_with_tensor_intrin(sch, sch.get_block("C"), WMMA) is None


@pytest.mark.parametrize("batch", [(), (3,), (1, 2)])
def test_the_mapping_of_variables_is_a_layout_of_the_block(batch: tuple[int, ...]):
    sch = Schedule(product(16, 16, 32, batch=batch))
    block = sch.get_block("C")
    info = analysis.get_auto_tensorize_mapping_info(sch, block, TensorIntrin.get(WMMA).desc)
    (mapping,) = info.mappings
    assert len(mapping.final_indices) == len(batch) + 3 and [b.name for b in info.lhs_buffer_map] == ["C", "A", "B"]
    sch.transform_block_layout(block, mapping)
    np.testing.assert_array_equal(values(sch.func), values(product(16, 16, 32, batch=batch)))


def test_fused_axes_of_a_convolution_are_one_of_a_product():
    x, w = te.placeholder((2, 10, 8, 16), "float16", "X"), te.placeholder((3, 16, 32), "float16", "W")
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 16), "c")
    y = te.compute((2, 8, 8, 32), lambda n, h, q, f: te.sum(
        x[n, h + r, q, c].astype("float32") * w[r, c, f].astype("float32"), axis=[r, c]), name="C")  # fmt: skip
    sch = Schedule(te.create_prim_func([x, w, y]))
    (found,) = analysis.get_auto_tensorize_mapping_info(sch, sch.get_block("C"), TensorIntrin.get(WMMA).desc).mappings
    wanted = tir.IndexMap.from_func(lambda n, h, q, f, r, c: (n * 64 + h * 8 + q, f, r * 16 + c))
    assert found.is_equivalent_to(wanted)


@pytest.mark.parametrize("access", [
    lambda i, j: (i // 16 * 4 + j // 16, i % 16 * 16 + j % 16), lambda i, j: (j % 8, j // 8 * 32 + i),
    lambda i, j: (i % 4 * 2 + j // 32, i // 4 * 32 + j % 32),
])  # fmt: skip
def test_a_suggested_layout_follows_the_loops(access):
    loops = [
        tir.For(ir.Var(n, "int32"), 0, size, tir.ForKind.SERIAL, tir.Evaluate(0)) for n, size in (("i", 32), ("j", 64))
    ]
    i, j = (f.loop_var for f in loops)
    indices = access(i, j)
    suggested = analysis.suggest_index_map(tir.decl_buffer((8, 256)), indices, loops, True)
    image, sizes = suggested.map_indices(indices), [int(d) for d in suggested.map_shape((8, 256))]
    points = [{i: x, j: y} for x in range(0, 32, 5) for y in range(64)]
    flat = [np.ravel_multi_index([evaluate(e, p) for e in image], sizes) for p in points]
    assert flat == sorted(set(flat))
