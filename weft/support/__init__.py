"""What programs around a compiler need: scratch folders, linking by the system's compiler, worker processes."""

from weft._aliases import names_of
from weft.support import cc, popen_pool, utils

__all__ = ["cc", "popen_pool", "utils"]

__getattr__ = names_of("weft.support")
