"""The CUDA target: device code.

Read in this order: ``source``, ``nvrtc``.
"""

from weft.target.cuda.nvrtc import compile_cuda, nvrtc_version
from weft.target.cuda.source import Kernel, emit_kernel

__all__ = ["Kernel", "compile_cuda", "emit_kernel", "nvrtc_version"]
