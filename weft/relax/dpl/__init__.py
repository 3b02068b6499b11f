"""The dataflow pattern language: ``pattern`` says what, ``match`` finds it, ``rewrite`` replaces it."""

from weft.relax.dpl.match import extract_matched_expr, extract_matches, match
from weft.relax.dpl.pattern import *  # noqa: F403
from weft.relax.dpl.rewrite import rewrite_call
