"""The CUDA targets: device code.

Read in this order: ``source``, ``nvrtc``; ``threads``, ``nvptx_rules``, ``nvptx_math``, ``nvptx``.
"""

from weft.target.cuda.nvptx import emit_nvvm, emit_ptx
from weft.target.cuda.nvrtc import compile_cuda, nvrtc_version
from weft.target.cuda.source import Kernel, emit_kernel

__all__ = ["Kernel", "compile_cuda", "emit_kernel", "emit_nvvm", "emit_ptx", "nvrtc_version"]
