"""Changes of programs that follow from the values of their weights, which change with them."""

from weft.relay.data_dep_optimization import bsr_dense, simplify_fc_transpose

__all__ = ["bsr_dense", "simplify_fc_transpose"]
