"""Symbolic sizes in types, what two types have in common, and passes over blocks."""

import pytest

import weft
from weft import ir, relax, script
from weft.relax.transform import dataflowblock_pass

N, M = ir.Var("n", "int64"), ir.Var("m", "int64")
TENSOR = relax.TensorType((N, N * M, 4), "float32")
BOTH = relax.TupleType((TENSOR, relax.ShapeType((M,), 1)))


def test_symbolic_sizes():
    assert {v.name for v in relax.analysis.tir_vars_in_type(BOTH)} == {"n", "m"}
    assert [v.name for v in relax.analysis.definable_tir_vars_in_type(TENSOR)] == ["n"]
    assert [v.name for v in relax.analysis.definable_tir_vars_in_type(BOTH)] == ["n", "m"]


def test_erasing():
    assert relax.analysis.erase_to_well_defined(TENSOR, [N, M]) is TENSOR
    assert ir.structural_equal(relax.analysis.erase_to_well_defined(TENSOR, [N]), relax.TensorType(None, "float32", 3))
    erased = relax.analysis.erase_to_well_defined(BOTH, [M])
    assert erased.fields[0].shape is None and erased.fields[1].values is not None
    static = relax.analysis.get_static_type(relax.TensorType((3, 4), "int8"))
    assert ir.structural_equal(static, relax.TensorType(None, "int8", 2))


@pytest.mark.parametrize(
    ("base", "derived", "expected"),
    [
        (relax.TensorType(None, "", -1), TENSOR, "PASS"),
        (relax.AnyType(), TENSOR, "PASS"),
        (TENSOR, TENSOR, "PASS"),
        (TENSOR, relax.TensorType(None, "float32", 3), "FAIL_L2"),
        (TENSOR, relax.TensorType((N, N, 4), "float32"), "FAIL_L2"),
        (TENSOR, relax.TensorType((N, N, 5), "float32"), "FAIL_L1"),
        (TENSOR, relax.TensorType((N, N), "float32"), "FAIL_L1"),
        (TENSOR, relax.TensorType(None, "int32", 3), "FAIL_L1"),
        (TENSOR, relax.ShapeType((N,), 1), "FAIL_L0"),
    ],
)
def test_base_check(base, derived, expected):
    assert relax.analysis.type_base_check(base, derived) == relax.analysis.BaseCheckResult[expected]


def test_common_types():
    lca = relax.analysis.type_lca(relax.TensorType((2, 3), "float32"), relax.TensorType((2, 4), "float32"))
    assert ir.structural_equal(lca, relax.TensorType(None, "float32", 2))
    func = relax.FuncType((relax.TensorType((N,), "float32"),), relax.TensorType((N, N), "float32"))
    x = relax.Var("x", relax.TensorType((7,), "float32"))
    ret = relax.analysis.derive_call_ret_type(func, relax.Call(relax.Var("f", func), (x,)))
    assert ir.structural_equal(ret, relax.TensorType((7, 7), "float32"))
    assert relax.analysis.used_vars(relax.Tuple((x, x))) == [x]


MOD = script.from_source("""@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(x)
            R.output(b)
        c = R.cos(b)
        return c
""")


def test_passes_over_blocks():
    seen = []

    @dataflowblock_pass(opt_level=1)
    def keep_last(block, mod, ctx):
        seen.append(len(block.bindings))
        return relax.DataflowBlock(block.bindings[-1:])

    new = keep_last(MOD)
    assert seen == [2]
    assert [b.var.name_hint for b in new["main"].body.blocks[0].bindings] == ["b"]
    relax.analysis.well_formed(new)

    @dataflowblock_pass
    class Nothing:
        def transform_dataflowblock(self, block, mod, ctx):
            assert isinstance(mod, weft.IRModule)
            return block

    assert Nothing()(MOD) is MOD
