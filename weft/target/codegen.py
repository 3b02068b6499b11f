"""What the code generator is made of, under the names of ``tvm.target.codegen``."""

from __future__ import annotations

import llvmlite.binding as llvm

from weft.target.cpu import host_features

__all__ = ["llvm_cpu_has_features", "llvm_get_system_cpu", "llvm_get_system_triple", "llvm_version_major"]


def llvm_version_major(allow_none: bool = False) -> int:
    """Return the major version of LLVM."""
    return int(llvm.llvm_version_info[0])


def llvm_get_system_cpu() -> str:
    """Return LLVM's name of this machine's CPU."""
    return str(llvm.get_host_cpu_name())


def llvm_get_system_triple() -> str:
    """Return this process's target triple."""
    return str(llvm.get_process_triple())


def llvm_cpu_has_features(*features: str) -> bool:
    """Whether this machine's CPU has all of some features, such as ``"avx512f"``."""
    have = host_features()
    return all(f.lstrip("+") in have for f in features)
