"""External code generators: what they take (``pattern_registry``, ``patterns``), and one that makes C (``c_source``).

Operators are grouped by ``FuseOpsByPattern``, neighbouring groups joined by ``MergeCompositeFunctions``, and compiled
by ``RunCodegen``, which calls ``relax.ext.<generator>``.
"""

from weft.relax.backend import c_source, pattern_registry, patterns
from weft.relax.backend.pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns

__all__ = ["c_source", "get_pattern", "get_patterns_with_prefix", "pattern_registry", "patterns", "register_patterns"]
