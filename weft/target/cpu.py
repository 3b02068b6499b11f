"""CPUs by their features, under LLVM's names: this machine's, a model's, and what a target adds and takes away."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import llvmlite.binding as llvm

from weft import error, ffi, ir
from weft.runtime.process import command

ASK_LLVM = str(Path(__file__).with_name("ask_llvm.py"))

_V2 = frozenset(("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"))
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI, _BF16 = _V4 | {"avx512vnni"}, _V4 | {"avx512vnni", "avx512bf16"}
_MODELS = {
    **dict.fromkeys(("x86-64-v2", "nehalem", "westmere"), _V2),
    **dict.fromkeys(("sandybridge", "ivybridge"), _V2 | {"avx"}),
    **dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3"), _V3),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake"), _V3 | {"avxvnni"}),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512"), _V4),
    **dict.fromkeys(("cascadelake", "icelake-client", "icelake-server", "tigerlake", "rocketlake"), _VNNI),
    **dict.fromkeys(("cooperlake", "znver4"), _BF16),
    "znver5": _BF16 | {"avxvnni"},
    **dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids"),
        _BF16 | {"avxvnni", "avx512fp16", "amx-tile", "amx-bf16", "amx-int8"},
    ),
}
"""Model to the features that schedules ask for; LLVM knows all of them."""

_IMPLIED = {
    "avx512f": ("avx2", "fma", "f16c"),
    "avx2": ("avx",),
    "fma": ("avx",),
    "f16c": ("avx",),
    "avxvnni": ("avx2",),
    "vaes": ("avx2",),
    "vpclmulqdq": ("avx",),
    "avx": ("sse4.2",),
    "sse4.2": ("sse4.1",),
    "sse4.1": ("ssse3",),
    "ssse3": ("sse3",),
}


@lru_cache(maxsize=1)
def known_host_features() -> frozenset[str]:
    """The features of CPUs of this machine's architecture that LLVM can look for."""
    return frozenset(llvm.get_host_cpu_features())


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """The CPU features of this machine, by LLVM's names.

    The CPU's name is never trusted: hypervisors report wrong ones. Matrix tiles count where the system lets this
    process use them, which is asked here.
    """
    found = frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
    granted = ffi.get_global_func("weft.matrix_tiles_granted") if "amx-tile" in found else None
    return without(found, ("amx-tile",)) if granted is not None and not granted() else found


def model_features(model: str) -> frozenset[str]:
    """The features of a model that schedules ask for; none of a model that the table lacks."""
    return _MODELS.get(model, frozenset())


def _implied_by(feature: str) -> tuple[str, ...]:
    if feature.startswith(("avx512", "avx10")) and feature != "avx512f":
        return ("avx512f",)
    if feature.startswith("amx-") and feature != "amx-tile":
        return ("amx-tile",)
    return _IMPLIED.get(feature, ())


def with_implied(features: Iterable[str]) -> frozenset[str]:
    """Add the features that others cannot be without."""
    return frozenset(ir.reached(features, _implied_by))


def without(features: frozenset[str], off: Iterable[str]) -> frozenset[str]:
    """Take features away, with those that cannot be without them."""
    gone = set(off)
    return frozenset(f for f in features if not gone & with_implied((f,)))


@lru_cache(maxsize=16)
def _known(architecture: str) -> tuple[frozenset[str], frozenset[str]]:
    """Ask LLVM, in a process of its own because it prints the answer, for its models and features."""
    triple = f"{architecture}-unknown-linux-gnu"
    done = subprocess.run(command(ASK_LLVM, triple, "help", watched=False), capture_output=True, text=True, check=False)
    models, _, features = done.stderr.partition("Available features")
    return _names(models), _names(features)


def _names(table: str) -> frozenset[str]:
    return frozenset(line.split()[0] for line in table.splitlines() if " - " in line)


def check_cpu(triple: str, model: str | None, features: Iterable[str]) -> None:
    """Refuse a model or feature that LLVM does not know: it would go on without, or end the process.

    Raises
    ------
    InvalidArgument
        With the nearest name that there is.
    """
    architecture = triple.split("-")[0]
    on_host = architecture == llvm.get_process_triple().split("-")[0]
    for what, name in [("model", model), *(("feature", f) for f in features)]:
        if not name or (on_host and what == "feature" and name in known_host_features()):
            continue
        if what == "model" and name in _MODELS and architecture == "x86_64":
            continue
        known = _known(architecture)[what == "feature"]
        if known and name not in known:
            near = difflib.get_close_matches(name, known, 3)
            option = "-mcpu=" if what == "model" else "-mattr=+"
            raise error.InvalidArgument(
                f"{architecture} has no {what} '{name}'",
                expected=f"a {what} that LLVM {'.'.join(map(str, llvm.llvm_version_info))} knows",
                help=f"did you mean {' or '.join(repr(option + n) for n in near)}?" if near else None,
            )
