"""Analyses of Relax programs."""

from weft.relax.analysis.well_formed import check_well_formed, well_formed

__all__ = ["check_well_formed", "well_formed"]
