"""Where elements of a buffer lie; types in the places of data types; both names of TIR's operators."""

import itertools

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, tir


@pytest.mark.parametrize(
    ("shape", "strides", "first", "size"),
    [
        ((3, 4), None, None, 12),
        ((3, 4), (5, 1), 7, 14),
        ((3, 4), (1, 3), 0, 12),
        ((6,), None, 2, 6),
        ((0, 4), (8, 1), 3, 0),
        ((), None, 5, 1),
    ],
)
def test_offsets_are_those_of_the_strides(shape, strides, first, size):
    buffer = tir.decl_buffer(shape, "float32", strides=strides, elem_offset=first)
    by_rows = np.zeros(shape, "int8").strides if strides is None else strides
    for at in np.ndindex(*shape):
        (offset,) = buffer.offset_of(at)
        assert int(offset) == (first or 0) + sum(i * s for i, s in zip(at, by_rows, strict=True))
    flat = buffer.get_flattened_buffer()
    assert [int(d) for d in flat.shape] == [size]
    assert flat.data is buffer.data
    assert int(flat.offset_of([0])[0]) == (first or 0)


def test_offsets_of_symbolic_sizes():
    m, n = ir.SizeVar("m"), ir.SizeVar("n")
    buffer = tir.decl_buffer((m, n), "float32", elem_offset=100)
    assert ir.structural_equal(buffer.offset_of([2, 3]), [n * 2 + 103])
    assert ir.structural_equal(buffer.get_flattened_buffer().shape, (m * n,))
    refuses(error.InvalidArgument, "2 indices", buffer.offset_of, [1])


def test_a_factor_declares_an_offset_and_its_text_comes_back():
    buffer = tir.decl_buffer((4,), "float32", offset_factor=1)
    assert isinstance(buffer.elem_offset, ir.Var)
    assert buffer.ty.shape == buffer.shape
    assert buffer.access_ptr(tir.BufferAccessKind.READ | tir.BufferAccessKind.WRITE).dtype == "handle"
    assert tir.decl_buffer((4,), "float32", elem_offset=0).elem_offset is None


def test_types_stand_for_data_types():
    number, pointer = ir.PrimType("int64"), ir.PointerType(ir.PrimType("float32"), "shared")
    x = ir.Var("x", number)
    assert (x.dtype, x.ty.dtype, str(number)) == ("int64", "int64", "int64")
    assert ir.Var("p", pointer).ty == pointer
    assert tir.Cast(ir.PrimType("float32"), x).dtype == "float32"
    assert tir.const(1, number).dtype == x.astype(number).dtype == tir.decl_buffer((1,), number).dtype == "int64"


def test_operators_have_both_names():
    op = ir.Op.get("tirx.exp")
    assert op is ir.Op.get("tir.exp")
    assert op.name == "tir.exp" == str(op.name) and op.name == "tirx.exp"
    assert op.name != "tirx.log" and op.name != "tir.log" and {"tir.exp": 1}[op.name] == 1
    call = tir.exp(ir.Var("x", "float32"))
    again = weft.ir.load_json(weft.ir.save_json(call))
    assert ir.structural_equal(call, again, map_free_vars=True) and again.op is op


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_dimensions_of_one_element_are_repeated(target):
    func = weft.script.from_source("""@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle):
    n, m, p, q = T.int32(), T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, m), "float32", buffer_type="auto_broadcast")
    B = T.match_buffer(b, (p, q), "float32", buffer_type="auto_broadcast")
    C = T.match_buffer(c, (7, 5), "float32")
    for i, j in T.grid(7, 5):
        C[i, j] = A[i, j] + B[i, j]
""")
    ir.assert_structural_equal(weft.script.from_source(func.script()), func)
    kernel, rng = weft.build(func, target=target)["f"], np.random.default_rng(0)
    for x, y in itertools.product([(7, 5), (1, 5), (7, 1), (1, 1)], repeat=2):
        x, y, out = rng.random(x, "float32"), rng.random(y, "float32"), np.zeros((7, 5), "float32")
        kernel(x, y, out)
        np.testing.assert_array_equal(out, np.broadcast_to(x + y, (7, 5)))


def test_types_of_buffers():
    assert [int(s) for s in tir.decl_buffer((1, 3, 1), buffer_type="auto_broadcast").strides] == [0, 1, 0]
    assert tir.decl_buffer((2, 3), buffer_type="default").strides == ()
    refuses(error.InvalidArgument, "type of buffers", tir.decl_buffer, (2,), buffer_type="broadcast")
