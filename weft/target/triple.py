"""Architectures of CPUs: what a triple says of the machine, and a plain triple as a target.

``aarch64-linux-gnu -mcpu=cortex-a76`` is short for ``llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76``.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

BASELINE = frozenset(("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"))
"""What every x86-64 has; LLVM ends the process where some of it is switched off."""

WASM_BASELINE = frozenset(("bulk-memory", "mutable-globals", "nontrapping-fptoint", "sign-ext", "simd128"))
"""What every browser and Node.js have had since 2021."""


class Architecture(NamedTuple):
    """What all CPUs of an architecture have under Linux.

    Attributes
    ----------
    triple : str
        LLVM's, where no more is said.
    names : tuple of str
        First words of triples.
    baseline : frozenset of str
        Features, by LLVM's names.
    vector_registers : int
        How many there are.
    pointer_bits : int
    has_fma, has_half : bool
        Whether numbers are multiplied and added in one step, and float16 is converted by an instruction, everywhere.
    abi : str
        LLVM's name of the convention of calls, where the triple does not say it.
    """

    triple: str
    names: tuple[str, ...]
    baseline: frozenset[str] = frozenset()
    vector_registers: int = 16
    pointer_bits: int = 64
    has_fma: bool = False
    has_half: bool = False
    abi: str = ""

    def vector_bits(self, features: Set[str]) -> int | None:
        """The width of a vector register that the features tell; None where they do not."""
        if "avx512f" in features:
            return 512
        if "avx" in features:
            return 256
        lengths = [int(f[3:-1]) for f in features if f.startswith("zvl") and f.endswith("b") and f[3:-1].isdigit()]
        if lengths:
            return max(lengths)
        return 64 if self.triple.startswith("riscv") and "v" not in features else None


_ARCHITECTURES = (
    Architecture("x86_64-linux-gnu", ("x86_64", "amd64"), BASELINE),
    Architecture("aarch64-linux-gnu", ("aarch64", "arm64"), frozenset(("neon",)), 32, has_fma=True, has_half=True),
    Architecture(
        "armv7-linux-gnueabihf", ("armv7", "armv7a", "armv7l", "armv7hl"), frozenset(("neon", "vfp3")), pointer_bits=32
    ),
    Architecture("riscv64-linux-gnu", ("riscv64", "riscv64gc"), frozenset("macfd"), 32, has_fma=True, abi="lp64d"),
    Architecture("wasm32-unknown-unknown", ("wasm32",), WASM_BASELINE, pointer_bits=32),
)
_UNKNOWN, _NARROW = Architecture("", ()), Architecture("", (), pointer_bits=32)


def architecture(triple: str) -> Architecture:
    """The architecture of a triple; one that nothing is known of has no features."""
    first = triple.split("-")[0]
    narrow = first.startswith(("arm", "thumb")) or first in ("riscv32", "i386", "i486", "i586", "i686")
    return next((a for a in _ARCHITECTURES if first in a.names), _NARROW if narrow else _UNKNOWN)


def with_vendor(triple: str) -> str:
    """The triple as LLVM reads it, by place: without a vendor it takes the system for one, and guesses how to call."""
    first, linux, rest = triple.partition("-linux")
    return f"{first}-unknown{linux}{rest}" if linux and "-" not in first else triple


def triple_of(word: str) -> str | None:
    """The triple that a word is: ``"riscv64"`` or ``"riscv64-linux-gnu"``; None where it is none of a CPU."""
    found = architecture(word)
    if not found.names:
        return None
    rest = word.partition("-")[2]
    return f"{found.triple.split('-')[0]}-{rest}" if rest else found.triple
