"""What programs around a compiler need: scratch folders, linking, worker processes, deprecations."""

from weft._aliases import names_of
from weft.support import cc, popen_pool, utils
from weft.support.deprecation import Deprecation, deprecated, deprecation_of, deprecations

__all__ = ["Deprecation", "cc", "deprecated", "deprecation_of", "deprecations", "libinfo", "popen_pool", "utils"]

__getattr__ = names_of("weft.support", dict.fromkeys(("download", "pickle_memoize", "tar"), ""))


class _Options(dict[str, str]):
    def __missing__(self, name: str) -> str:
        if not name.startswith("USE_"):
            raise KeyError(name)
        return "OFF"


def libinfo() -> dict[str, str]:
    """Return what the library has, as the options of TVM's build are called; ``USE_`` of what it lacks is ``OFF``."""
    here = ("LLVM", "CUDA", "OPENCL", "RPC", "GRAPH_EXECUTOR", "AOT_EXECUTOR", "PROFILER")
    return _Options({f"USE_{name}": "ON" for name in here}, INDEX_DEFAULT_I64="ON")
