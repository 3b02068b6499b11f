"""Targets and code generation.

Read in this order: ``target``, ``build``, then ``llvm/``; ``c/`` is the smallest code generator, ``cuda/`` the one
for GPUs.
"""

import weft.target.c
import weft.target.codegen
import weft.target.cuda
from weft._aliases import names_of
from weft.ir import register_intrin_rule
from weft.target.build import build, compile_func, get_source, load_objects
from weft.target.cpu import host_features
from weft.target.llvm import Kernel, emit_object
from weft.target.target import Target, TargetKind

__all__ = ["Kernel", "Target", "TargetKind", "build", "compile_func", "emit_object", "get_source", "host_features",
           "load_objects", "register_intrin_rule"]  # fmt: skip

__getattr__ = names_of("weft.target")
