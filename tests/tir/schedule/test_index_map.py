"""Index maps: inverses, equality, and tensors moved by them."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import arith, error, ir
from weft.tir.schedule import IndexMap

MAPS = [
    (lambda i: [i // 4, i % 4], (16,)),
    (lambda i, j: [j, i], (3, 5)),
    (lambda i, j: [i // 2, j // 3, i % 2, j % 3], (4, 9)),
    (lambda i, j: [i * 6 + j], (5, 6)),
    (lambda i: [i], (1,)),
]


@pytest.mark.parametrize(("func", "shape"), MAPS)
def test_the_inverse_takes_every_place_back(func, shape):
    m = IndexMap.from_func(func)
    back = m.inverse(shape)
    for index in np.ndindex(shape):
        assert tuple(ir.as_int(i) for i in back.map_indices(m.map_indices(index))) == index


@pytest.mark.parametrize(("func", "shape"), MAPS)
def test_tensors_move_as_indices_do(func, shape):
    m = IndexMap.from_func(func)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    moved = m.map_tensor(weft.runtime.tensor(x)).numpy()
    assert moved.shape == tuple(ir.as_int(d) for d in m.map_shape(shape))
    for index in np.ndindex(shape):
        assert moved[tuple(ir.as_int(i) for i in m.map_indices(index))] == x[index]


def test_the_shape_of_an_image_of_unknown_size():
    n = ir.Var("n", "int64")
    shape = IndexMap.from_func(lambda i, j: [i // 4, i % 4, 7 - j]).map_shape([n, 6])
    for size in (1, 3, 4, 17):
        values = [ir.as_int(arith.Analyzer().simplify(ir.substitute(d, {n: ir.const(size, "int64")}))) for d in shape]
        assert values == [-(-size // 4), min(size, 4), 8]
    assert {d.dtype for d in IndexMap.from_func(lambda i: [i // 4], index_dtype="int32").map_shape([n])} == {"int64"}


def test_what_is_not_one_to_one_has_no_inverse():
    refuses(error.InvalidArgument, "no inverse", IndexMap.from_func(lambda i: [i // 4, i % 4]).inverse, (14,))
    refuses(error.InvalidArgument, "no inverse", IndexMap.from_func(lambda i, j: [i]).inverse, (4, 2))


def test_an_analyzer_knows_more():
    tile = ir.Var("tile", "int32")
    plain = IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    symbolic = IndexMap.from_func(lambda i: [i // tile, i % tile], index_dtype="int32")
    assert not plain.is_equivalent_to(symbolic)
    analyzer = arith.Analyzer()
    analyzer.bind(tile, weft.ir.const(4, "int32"))
    assert plain.is_equivalent_to(symbolic, analyzer)
    assert not plain.is_equivalent_to(IndexMap.from_func(lambda i: [i]))
    assert [str(d) for d in symbolic.map_shape([12], analyzer)] == ["3", "4"]


def test_indices_keep_their_type():
    m = IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    assert {e.dtype for e in m.map_indices([weft.ir.const(42, "int64")])} == {"int64"}
    assert {e.dtype for e in m.map_indices([42])} == {"int32"}
