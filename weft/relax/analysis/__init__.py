"""Analyses of Relax programs: ``well_formed`` checks, ``variables`` answers questions."""

from weft.relax.analysis.layout_transforms import suggest_layout_transforms
from weft.relax.analysis.memory_usage import estimate_memory_usage
from weft.relax.analysis.tir_pattern import has_reshape_pattern, tir_op_pattern
from weft.relax.analysis.types import (
    BaseCheckResult,
    definable_tir_vars_in_type,
    derive_call_ret_type,
    erase_to_well_defined,
    get_static_type,
    tir_vars_in_type,
    type_base_check,
    type_lca,
    used_vars,
)
from weft.relax.analysis.variables import (
    all_global_vars,
    all_vars,
    bound_vars,
    computable_at_compile_time,
    contains_impure_call,
    defined_symbolic_vars,
    detect_recursion,
    free_symbolic_vars,
    free_vars,
    get_var2val,
    name_to_binding,
    post_order_visit,
    udchain,
)
from weft.relax.analysis.well_formed import check_well_formed, well_formed
from weft.relax.unused import remove_all_unused

struct_info_lca, struct_info_base_check = type_lca, type_base_check  # struct info is the type since 0.20
tir_vars_in_struct_info, definable_tir_vars_in_struct_info = tir_vars_in_type, definable_tir_vars_in_type
derive_call_ret_struct_info = derive_call_ret_type
