"""The dataflow pattern language: ``pattern`` says what, ``match`` and ``context`` find it, ``rewrite`` replaces it."""

from weft.relax.dpl.context import PatternContext
from weft.relax.dpl.match import extract_matched_expr, extract_matches, match
from weft.relax.dpl.pattern import *  # noqa: F403
from weft.relax.dpl.rewrite import PatternMatchingRewriter, rewrite_bindings, rewrite_call
