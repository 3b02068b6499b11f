"""TIR passes, in the order of the lowering pipeline (``weft.tir.pipeline``)."""

from functools import partial, update_wrapper

from weft.ir import passes_inside
from weft.ir.pass_decorators import function_pass_over
from weft.tir.function import PrimFunc as _PrimFunc
from weft.tir.transform import convert_ssa, legalize_dtypes, narrow_datatype
from weft.tir.transform.bound_checkers import instrument_bound_checkers
from weft.tir.transform.common_subexpr import common_subexpr_elim
from weft.tir.transform.compact_buffer import compact_buffer
from weft.tir.transform.cross_thread_reduction import lower_cross_thread_reduction
from weft.tir.transform.default_gpu_schedule import default_gpu_schedule
from weft.tir.transform.dot_product import DOT_GROUPS, dot_product
from weft.tir.transform.flatten_buffer import flatten_buffer, storage_flatten
from weft.tir.transform.function_passes import Apply, BindTarget, Filter, annotate_entry_func
from weft.tir.transform.hoist_expression import HoistedConditionals, HoistedLetBindings, hoist_expression, hoist_tests
from weft.tir.transform.hoist_if_then_else import hoist_if_then_else
from weft.tir.transform.import_llvm import import_llvm
from weft.tir.transform.inject_double_buffer import inject_double_buffer
from weft.tir.transform.inject_prefetch import inject_prefetch
from weft.tir.transform.inject_rolling_buffer import MARK as ROLLING_MARK
from weft.tir.transform.inject_rolling_buffer import inject_rolling_buffer, rolled
from weft.tir.transform.inject_software_pipeline import inject_software_pipeline
from weft.tir.transform.inject_virtual_thread import inject_virtual_thread
from weft.tir.transform.loop_jumps import annotate_irregular_loop, lower_loop_jumps
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.lower_blocks import lower_blocks
from weft.tir.transform.lower_custom_datatypes import lower_custom_datatypes
from weft.tir.transform.lower_intrin import lower_intrin
from weft.tir.transform.lower_math import lower_math
from weft.tir.transform.make_packed_api import make_packed_api
from weft.tir.transform.merge_shared_memory import merge_shared_memory_allocations
from weft.tir.transform.narrow_index import force_narrow_index_to_int32
from weft.tir.transform.opaque_blocks import (
    convert_blocks_to_opaque,
    lower_init_block,
    lower_match_buffer,
    lower_opaque_block,
)
from weft.tir.transform.plan_allocations import plan_and_update_buffer_allocation_location
from weft.tir.transform.prefetch_streams import PREFETCH_MARK, prefetch_streams
from weft.tir.transform.relax_guards import relax_guards
from weft.tir.transform.remove_no_op import remove_no_op
from weft.tir.transform.scalarize import scalarize
from weft.tir.transform.simplify import simplify
from weft.tir.transform.skip_empty_loops import skip_empty_loops
from weft.tir.transform.split_host_device import split_host_device
from weft.tir.transform.split_target_regions import split_target_regions
from weft.tir.transform.stmt_simplify import stmt_simplify
from weft.tir.transform.storage_rewrite import storage_rewrite
from weft.tir.transform.thread_sync import thread_sync
from weft.tir.transform.transpose_tiles import transpose_tiles
from weft.tir.transform.undefined_values import remove_store_undef, rewrite_unsafe_select
from weft.tir.transform.unify_thread_binding import unify_thread_binding
from weft.tir.transform.unroll import unroll_loop
from weft.tir.transform.vectorize import vectorize_loop
from weft.tir.transform.vectorize_statements import vectorize_statements

CommonSubexprElimTIR = common_subexpr_elim
CompactBufferAllocation = compact_buffer
FlattenBuffer = update_wrapper(partial(flatten_buffer, wide=False), flatten_buffer)
HoistIfThenElse = hoist_tests
LoopPartition = update_wrapper(partial(loop_partition, cut=True), loop_partition)
Simplify = stmt_simplify
StorageFlatten = storage_flatten

prim_func_pass = function_pass_over(_PrimFunc)
"""``@prim_func_pass(opt_level=0)`` makes a pass of ``fn(func, mod, ctx) -> PrimFunc``."""

__getattr__, __dir__ = passes_inside("weft.tir.transform")  # those that nothing above names
