"""tvm_ffi's structural functions see into nodes, and into arrays, mappings and keys that hold nodes."""

import pytest
import tvm_ffi

from weft import ir, relax, tir

M, N = tir.Var("m", "int64"), tir.Var("n", "int64")


@pytest.mark.parametrize(
    ("lhs", "rhs", "same", "mapped"),
    [
        (M + 1, M + 1, True, True),
        (M + 1, N + 1, False, True),
        (M + 1, M + 2, False, False),
        ([M + N, N], [N + M, M], False, True),
        ([M + N, N], [N + M, N], False, False),
        ({"a": M}, {"a": N}, False, True),
        (relax.StringImm("a"), relax.StringImm("a"), True, True),
        (relax.ShapeExpr((M, 2)), relax.ShapeExpr((M, 2)), True, True),
        (ir.IRModule(), ir.IRModule(), True, True),
        (M, 3, False, False),
    ],
)
def test_equality_and_hash(lhs, rhs, same, mapped):
    assert tvm_ffi.structural_equal(lhs, rhs) is same
    assert tvm_ffi.structural_equal(lhs, rhs, True) is mapped
    if same:
        assert tvm_ffi.structural_hash(lhs) == tvm_ffi.structural_hash(rhs)
    if mapped:
        assert tvm_ffi.structural_hash(lhs, True) == tvm_ffi.structural_hash(rhs, True)
    assert (tvm_ffi.get_first_structural_mismatch(lhs, rhs) is None) is same


def test_key_of_a_dict():
    found = {tvm_ffi.StructuralKey(M + 1): "found"}
    assert found[tvm_ffi.StructuralKey(M + 1)] == "found"
    assert tvm_ffi.StructuralKey(N + 1) not in found


def test_the_hash_depends_on_the_structure():
    assert len({tvm_ffi.structural_hash(e) for e in (M + 1, M + 2, M * 1, ir.const(1, "int32"), [M], [M, M])}) == 6


def test_other_python_objects_are_refused():
    with pytest.raises(TypeError, match="no structure"):
        tvm_ffi.structural_hash([object()])
