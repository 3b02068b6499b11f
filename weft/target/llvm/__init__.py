"""Code generation through LLVM.

Read in this order: ``types``, ``emitter`` (expressions), ``math``, ``intrin``, ``stmt``, ``entry``, ``compile``.
"""

from weft.target.llvm import intrin
from weft.target.llvm.compile import emit_assembly, emit_ir, emit_object, load_objects

__all__ = ["emit_assembly", "emit_ir", "emit_object", "intrin", "load_objects"]
