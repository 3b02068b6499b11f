"""Code generation through LLVM.

Read in this order: ``types``, ``emitter``, ``expr``, ``convert``, ``memory``, ``support``, ``intrin``, ``packed``,
``anylist``, ``tiles``, ``stmt``, ``parallel``, ``entry``, ``kernel_call``, ``object``, ``jit``, ``kind``.
"""

from weft.target.llvm import tiles as _tiles  # its import registers the intrinsics of tiles
from weft.target.llvm.jit import load_objects
from weft.target.llvm.kernel_call import Kernel
from weft.target.llvm.kind import LLVM, compile_llvm
from weft.target.llvm.object import emit_assembly, emit_ir, emit_object
