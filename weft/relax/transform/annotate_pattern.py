"""AnnotateTIROpPattern: kernels say how they may be fused."""

from weft import ir, tir
from weft.relax.analysis.tir_pattern import tir_op_pattern


@ir.function_pass(kind=tir.PrimFunc, name="AnnotateTIROpPattern")
def annotate_tir_op_pattern(func: tir.PrimFunc, mod: ir.IRModule) -> tir.PrimFunc:
    """Give each kernel without one the attribute ``op_pattern``: what it does with its elements.

    Requires: ``tir.well_formed``.
    Ensures: ``tir.well_formed``; ``op_pattern`` is 0 (element-wise), 1 (broadcast), 2 (injective), 3 (reduction), 4
        (may take element-wise work behind it) or 8 (unknown).
    Before::

        @T.prim_func
        def double(A: T.Buffer((4, 5), "float32"), B: T.Buffer((4, 5), "float32")):
            for i, j in T.grid(4, 5):
                with T.sblock("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[v, w] * T.float32(2.0)

    After::

        @T.prim_func
        def double(A: T.Buffer((4, 5), "float32"), B: T.Buffer((4, 5), "float32")):
            T.func_attr({"op_pattern": 0})
            for i, j in T.grid(4, 5):
                with T.sblock("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[v, w] * T.float32(2.0)
    Cost: Linear.
    Source: TVM's ``AnnotateTIROpPattern``.
    """
    if func.attrs.get("op_pattern") is not None:
        return func
    return func.with_attr("op_pattern", int(tir_op_pattern(func)))
