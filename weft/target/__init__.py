"""Targets and code generation.

Read in this order: ``kind``, ``target``, ``build``, then ``llvm/``; ``c/`` is the smallest code generator,
``cuda/``, ``opencl/``, ``vulkan/`` and ``webgpu/`` those for GPUs.
"""

import weft.target.c
import weft.target.codegen
import weft.target.cuda
import weft.target.opencl
import weft.target.vulkan
import weft.target.webgpu
from weft._aliases import names_of
from weft.ir import register_intrin_rule
from weft.machine import Machine
from weft.target import described as _described  # its import registers kinds
from weft.target.build import build, compile_func, get_source, load_objects, services
from weft.target.cpu import host_features
from weft.target.generic_func import GenericFunc, generic_func, get_native_generic_func, override_native_generic_func
from weft.target.kind import TargetKind, register_attribute, register_target_kind
from weft.target.llvm import LLVM, Kernel, emit_object
from weft.target.presets import (
    arm_cpu,
    bifrost,
    create,
    device_from_target,
    intel_graphics,
    mali,
    rasp,
    riscv_cpu,
    rocm,
    vta,
)
from weft.target.tags import list_tags, register_tag
from weft.target.target import Target, TargetLike
from weft.target.virtual_device import CompilationConfig, VirtualDevice, make_compilation_config

__all__ = [
    "CompilationConfig",
    "GenericFunc",
    "Kernel",
    "LLVM",
    "Machine",
    "Target",
    "TargetKind",
    "TargetLike",
    "VirtualDevice",
    "arm_cpu",
    "bifrost",
    "build",
    "compile_func",
    "create",
    "device_from_target",
    "emit_object",
    "generic_func",
    "get_native_generic_func",
    "get_source",
    "host_features",
    "intel_graphics",
    "list_tags",
    "load_objects",
    "make_compilation_config",
    "mali",
    "override_native_generic_func",
    "rasp",
    "register_attribute",
    "register_intrin_rule",
    "register_tag",
    "register_target_kind",
    "riscv_cpu",
    "rocm",
    "vta",
]

__getattr__ = names_of("weft.target")
