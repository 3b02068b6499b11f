"""Facts about TIR that schedules and passes ask for.

Read in this order: ``structure`` (the tree), ``access`` (regions), ``dependence`` (producers, consumers, kinds of
block), ``pattern`` (what a block computes: contractions, reductions, how operands are addressed).
"""

from weft.tir.analysis.access import (
    access_regions,
    accessed_buffers,
    assert_pure_function,
    block_regions,
    evaluate_interval,
    get_block_access_region,
    get_block_read_write_region,
    is_pure_function,
    loads_of,
    point_region,
    region_extents,
    relax_region,
    stores_of,
    union_regions,
    whole_region,
)
from weft.tir.analysis.dependence import (
    consumers_of,
    is_complete,
    is_data_parallel,
    is_plain_store,
    is_reduction,
    loop_kind,
    plain_indices,
    producers_of,
    reads_buffer,
    reduce_vars,
    spatial_vars,
    writes_buffer,
)
from weft.tir.analysis.lca import buffer_access_lca
from weft.tir.analysis.memory import calculate_allocated_bytes, verify_vtcm_limit
from weft.tir.analysis.outside import OOBChecker, refuse_accesses_outside
from weft.tir.analysis.structure import (
    blocks_in,
    child_realizes,
    clone_fresh,
    map_children,
    path_to,
    remove_stmt,
    replace_node,
    replace_stmt,
    statements,
    stmt_children,
    subst_stmt,
    used_vars,
)
from weft.tir.analysis.verify import expr_deep_equal, undefined_vars, verify_ssa, verify_well_formed
from weft.tir.analysis.work import estimate_tir_flops

detect_buffer_access_lca = buffer_access_lca
get_sblock_access_region, get_sblock_read_write_region = get_block_access_region, get_block_read_write_region
