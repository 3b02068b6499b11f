"""Targets and code generation.

Read in this order: ``kind``, ``target``, ``build``, then ``llvm/``; ``c/`` is the smallest code generator,
``cuda/`` the one for GPUs.
"""

import weft.target.c
import weft.target.codegen
import weft.target.cuda
from weft._aliases import names_of
from weft.ir import register_intrin_rule
from weft.machine import Machine
from weft.target.build import build, compile_func, get_source, load_objects
from weft.target.cpu import host_features
from weft.target.kind import TargetKind, register_attribute, register_target_kind
from weft.target.llvm import LLVM, Kernel, emit_object
from weft.target.target import Target, device_from_target

__all__ = ["LLVM", "Kernel", "Machine", "Target", "TargetKind", "build", "compile_func", "device_from_target",
           "emit_object", "get_source", "host_features", "load_objects", "register_attribute", "register_intrin_rule",
           "register_target_kind"]  # fmt: skip

__getattr__ = names_of("weft.target")
