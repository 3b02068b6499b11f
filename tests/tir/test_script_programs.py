"""What scripts written for TVM's newest release say: types, shapes in quotes, macros, loops by one name, attributes."""

import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import error, ir, tir
from weft.script import from_source
from weft.script import tir as T


def test_types_of_scalars_and_pointers():
    pointer = T.handle("float32", "shared")
    assert pointer.dtype == "handle"
    assert pointer.ty.element_type == ir.PrimType("float32") and pointer.ty.storage_scope == "shared"
    buffer = T.Buffer((4, 8), "int32")
    assert tir.is_buffer_var(buffer) and buffer.dtype == ir.PrimType("int32") and buffer.dtype.dtype == "int32"
    assert ir.const(1, "int64").ty == ir.PrimType("int64") != ir.PrimType("int32")


def test_the_type_of_a_function():
    @T.prim_func
    def total(n: T.int32, A: T.Buffer((4,), "float32")) -> T.float32:
        return A[n]

    @T.prim_func
    def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    assert total.__name__ == "total"
    assert total.ty.purity and total.ty.ret == ir.PrimType("float32")
    assert total.ty.params[0] == ir.PrimType("int32") and [d.value for d in total.ty.params[1].shape] == [4]
    assert not copy.ty.purity and isinstance(copy.ty.ret, ir.TupleType)
    ir.assert_structural_equal(from_source(total.script()), total)


@pytest.mark.parametrize(
    "order", ['A: T.Buffer(("n + 1",), "float32"), n: T.int64', 'n: T.int64, A: T.Buffer(("n + 1",), "float32")']
)
def test_shapes_in_quotes(order):
    func = from_source(f"@T.prim_func\ndef f({order}):\n    T.evaluate(n)")
    (n,) = [p for p in func.params if p.dtype == "int64"]
    (shaped,) = [p for p in func.params if p.dtype == "handle"]
    assert shaped.ty.shape[0].a is n


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ('A: T.Buffer((n, "n"), "float32")', "T.evaluate(0)"),
        ('A: T.Buffer(("n",), "float32")', "n = T.int64()\n    T.evaluate(n)"),
    ],
)
def test_names_that_shapes_do_not_define(signature, body):
    refuses(error.WeftError, "", from_source, f"@T.prim_func\ndef f({signature}):\n    {body}")


def test_macros_take_what_functions_take():
    class Doubling:
        def __init__(self, factor):
            self.factor = factor

        @T.inline
        def store(self, A, i, *, more=1):
            A[i] = A[i] * self.factor + more

    @T.inline()
    def several(A, *places, **values):
        A[places[0]] = values["value"]
        A[places[1]] = values["value"]

    twice = Doubling(2)

    @T.prim_func(private=True)
    def written(A: T.Buffer((8,), "int32")):
        for i in range(8):
            twice.store(A, i)
        several(A, 0, 3, value=7)

    @T.prim_func(private=True)
    def expected(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = A[i] * 2 + 1
        A[0] = 7
        A[3] = 7

    ir.assert_structural_equal(written, expected)
    refuses(ValueError, "options by name", T.inline, True)


def test_one_name_for_several_loops():
    @T.prim_func(private=True)
    def written(A: T.Buffer((2, 3, 4), "int32"), B: T.Buffer((2, 3), "int32")):
        for at in T.grid(2, 3, 4):
            A[at] = 1
        for *outer, k in T.grid(2, 3, 4):
            B[outer] = B[outer] + A[(*outer, k)]

    @T.prim_func(private=True)
    def expected(A: T.Buffer((2, 3, 4), "int32"), B: T.Buffer((2, 3), "int32")):
        for i, j, k in T.grid(2, 3, 4):
            A[i, j, k] = 1
        for i, j, k in T.grid(2, 3, 4):
            B[i, j] = B[i, j] + A[i, j, k]

    ir.assert_structural_equal(written, expected)


def test_annotations_in_parts_and_attributes_by_newer_names():
    @T.prim_func
    def f():
        T.func_attr({"tirx.noalias": True})
        with T.sblock():
            T.sblock_attr({"a": {"x": 1}})
            T.sblock_attr({"a": {"y": 2}, "b": 3})
            T.evaluate(0)

    notes = f.body.block.annotations
    assert isinstance(notes, tvm_ffi.Map)
    assert {k: v for k, v in notes.items() if k == "b"} == {"b": 3} and dict(notes["a"].items()) == {"x": 1, "y": 2}
    assert f.attrs["tir.noalias"] and f.attrs["tirx.noalias"] and "tirx.noalias" in f.attrs
    assert not f.without_attr("tirx.noalias").attrs.get("tir.noalias")
    with pytest.raises(RuntimeError, match="two values"):
        from_source(
            '@T.prim_func\ndef f():\n    with T.sblock():\n        T.sblock_attr({"a": 1})\n'
            '        T.sblock_attr({"a": 2})\n        T.evaluate(0)'
        )
    with pytest.raises(error.WeftError, match="no global symbol"):
        from_source('@T.prim_func(private=True)\ndef f():\n    T.func_attr({"global_symbol": "f"})\n    T.evaluate(0)')


def test_dtype_by_name_and_vectors_at_a_place():
    @T.prim_func(private=True)
    def f(A: T.Buffer((16,), "float32"), n: T.int32):
        A[0] = T.if_then_else(n > 0, A[1], 0.0, dtype="float32")
        T.evaluate(T.call_extern("consume", A.data, dtype="int32"))
        A.vstore([4], A.vload([8], "float32x4"))

    stored = [s for s in ir.walk(f) if isinstance(s, tir.BufferStore)][-1]
    assert isinstance(stored.indices[0], ir.Ramp) and stored.indices[0].lanes == 4 and stored.value.dtype == "float32x4"
    ir.assert_structural_equal(from_source(f.script()), f)


def test_an_intrinsic_with_an_operand_more_stays_as_it_is_written_and_has_no_code():
    @T.prim_func
    def f(table: T.Buffer((64,), "int8"), x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("y"):
                v = T.axis.spatial(16, i)
                y[v] = T.exp(x[v], table.access_ptr("r"), dtype="float32")

    (block,) = [n for n in ir.walk(f) if isinstance(n, tir.Block) and n.iter_vars]
    assert [r.buffer.name for r in block.reads] == ["x", "table"]
    ir.assert_structural_equal(from_source(f.script()), f)
    refuses(error.CodegenError, "intrinsic 'tir.exp' of 2 operands has no code", weft.build, f, "llvm")


def test_lanes_that_the_machine_decides():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        A[T.Ramp(0, 1, T.vscale() * 4)] = T.Broadcast(T.float32(1), 4 * T.vscale())

    (store,) = [s for s in ir.walk(f) if isinstance(s, tir.BufferStore)]
    assert store.value.dtype == "float32xvscalex4" and ir.DataType(store.value.dtype).element == "float32"
    assert store.value.lanes != 4 and ir.with_lanes("int8", store.value.lanes) == "int8xvscalex4"
    assert "T.vscale() * 4" in f.script()
    ir.assert_structural_equal(from_source(f.script()), f)
