"""Running AMX instructions in tests: on the processor where it has them, else by a trap that carries them out."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from weft.target import Target
from weft.target.cpu import host_features

__all__ = ["AMX", "count", "is_configured", "target", "trap"]

AMX = frozenset(("amx-tile", "amx-bf16", "amx-int8"))
_SOURCE = Path(__file__).parents[2] / "tools" / "amx" / "trap.c"
_NEEDED = {"avx512f", "avx512vl", "avx2", "fma"}


@lru_cache(maxsize=1)
def trap() -> ctypes.CDLL | None:
    """The emulator, installed in this process; None where the processor itself has tiles."""
    if host_features() >= AMX:
        return None
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not _SOURCE.exists() or not host_features() >= _NEEDED:
        pytest.skip("running AMX instructions takes a compiler for C and a processor with AVX-512")
    library = Path(tempfile.mkdtemp()) / "trap.so"
    options = ["-O2", "-mavx2", "-mfma", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(_SOURCE)], check=True)
    found = ctypes.CDLL(str(library))
    found.amx_trap_count.restype = ctypes.c_long
    os.environ["WEFT_MATRIX_TILES"] = "emulated"  # read when permission is first asked for
    assert found.amx_trap_install() == 0
    return found


def target(*options: str) -> Target:
    """Return this machine with tiles."""
    trap()
    return Target(" ".join(["llvm", "-mattr=" + ",".join("+" + f for f in sorted(host_features() | AMX)), *options]))


def is_configured() -> bool:
    """Whether tiles of this thread were left configured."""
    emulator = trap()
    return emulator is not None and bool(emulator.amx_trap_is_configured())


def count(what: str) -> int:
    """How many ``configurations``, ``loads``, ``stores`` or ``products`` there were; 0 on a processor with tiles."""
    emulator = trap()
    places = ("configurations", "loads", "stores", "products")
    return 0 if emulator is None else emulator.amx_trap_count(places.index(what))
