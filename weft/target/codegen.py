"""What the code generator is made of, under the names of ``tvm.target.codegen``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from weft.target.cpu import host_features
from weft.target.llvm.trial import llvm_get_intrinsic_name as llvm_get_intrinsic_name
from weft.target.llvm.trial import llvm_lookup_intrinsic_id as llvm_lookup_intrinsic_id
from weft.target.target import Target, TargetLike


def llvm_version_major(allow_none: bool = False) -> int:
    """Return the major version of LLVM."""
    return int(llvm.llvm_version_info[0])


def llvm_get_system_cpu() -> str:
    """Return LLVM's name of this machine's CPU."""
    return str(llvm.get_host_cpu_name())


def llvm_get_system_triple() -> str:
    """Return this process's target triple."""
    return str(llvm.get_process_triple())


def llvm_cpu_has_features(*features: Any, target: TargetLike | None = None) -> bool:
    """Whether a target's CPU, by default this machine's, has all of some features, such as ``"avx512f"``.

    As TVM's function takes them, they may also be one list, with the target behind it.
    """
    if len(features) == 2 and isinstance(features[1], Target):
        features, target = features[:1], features[1]
    names = features[0] if len(features) == 1 and isinstance(features[0], (list, tuple)) else features
    have = host_features() if target is None else Target(target).features
    return all(str(f).lstrip("+") in have for f in names)


def target_has_features(cpu_features: str | Sequence[str], target: TargetLike | None = None) -> bool:
    """Whether a target, by default the current one, has all of some features."""
    names = [cpu_features] if isinstance(cpu_features, str) else cpu_features
    return llvm_cpu_has_features(list(names), target=Target.of(target))


def llvm_get_cpu_features(target: TargetLike | None = None) -> list[str]:
    """List the features of a target's CPU."""
    return sorted(Target.of(target).features)


def llvm_get_vector_width(target: TargetLike | None = None) -> int:
    """Return the width of a target's vector registers, in bits."""
    return Target.of(target).vector_bits
