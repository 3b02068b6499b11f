"""Patterns over Relay programs: matching, rewriting by callbacks, and making functions of matches.

Read in this order: ``pattern``, ``graph``, ``match``, ``rewrite``.
"""

from weft.relay.dataflow_pattern.match import match
from weft.relay.dataflow_pattern.pattern import *  # noqa: F403 - patterns and their constructors
from weft.relay.dataflow_pattern.pattern import __all__ as _patterns
from weft.relay.dataflow_pattern.rewrite import DFPatternCallback, partition, rewrite

__all__ = ["DFPatternCallback", "match", "partition", "rewrite", *_patterns]  # pyright: ignore[reportUnsupportedDunderAll]
