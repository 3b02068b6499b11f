"""What programs around a compiler need: scratch folders, linking, worker processes, deprecations."""

from weft._aliases import names_of
from weft.support import cc, popen_pool, utils
from weft.support.deprecation import Deprecation, deprecated, deprecation_of, deprecations

__all__ = ["Deprecation", "cc", "deprecated", "deprecation_of", "deprecations", "popen_pool", "utils"]

__getattr__ = names_of("weft.support")
