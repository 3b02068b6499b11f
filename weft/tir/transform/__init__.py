"""TIR passes, in the order of the lowering pipeline (``weft.tir.pipeline``)."""

from weft.ir.pass_decorators import function_pass_over
from weft.tir.function import PrimFunc as _PrimFunc
from weft.tir.transform.bound_checkers import instrument_bound_checkers
from weft.tir.transform.compact_buffer import compact_buffer
from weft.tir.transform.dot_product import dot_product
from weft.tir.transform.flatten_buffer import flatten_buffer
from weft.tir.transform.hoist_if_then_else import hoist_if_then_else
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.lower_blocks import lower_blocks
from weft.tir.transform.lower_math import lower_math
from weft.tir.transform.relax_guards import relax_guards
from weft.tir.transform.simplify import simplify
from weft.tir.transform.transpose_tiles import transpose_tiles
from weft.tir.transform.unroll import unroll_loop
from weft.tir.transform.vectorize import vectorize_loop

DotProduct = dot_product
FlattenBuffer = flatten_buffer
HoistIfThenElse = hoist_if_then_else
InstrumentBoundCheckers = instrument_bound_checkers
LoopPartition = loop_partition
Simplify = StmtSimplify = simplify
TransposeTiles = transpose_tiles
UnrollLoop = unroll_loop
VectorizeLoop = vectorize_loop

prim_func_pass = function_pass_over(_PrimFunc)
"""``@prim_func_pass(opt_level=0)`` makes a pass of ``fn(func, mod, ctx) -> PrimFunc``."""
