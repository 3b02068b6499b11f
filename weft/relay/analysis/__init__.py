"""Analyses of Relay programs.

Read in this order: ``variables``, ``well_formed``, ``kinds``, ``coverage``, ``features``, ``call_graph``, ``macs``,
``excerpt``, ``scopes``, ``operators``, ``annotated_regions``.
"""

from weft.ir import structural_equal as alpha_equal
from weft.relay.analysis.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from weft.relay.analysis.call_graph import CallGraph
from weft.relay.analysis.coverage import UnmatchedWarning, unmatched_cases, warn_unmatched
from weft.relay.analysis.excerpt import excerpt
from weft.relay.analysis.features import Feature, detect_feature
from weft.relay.analysis.kinds import check_kind
from weft.relay.analysis.macs import get_total_mac_number
from weft.relay.analysis.operators import (
    check_basic_block_normal_form,
    count_layers,
    extract_fused_functions,
    list_fake_quantized_op_freqs,
    list_op_freqs,
)
from weft.relay.analysis.variables import (
    all_dtypes,
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
    post_order_visit,
)
from weft.relay.analysis.well_formed import scope_errors, unbound, well_formed
