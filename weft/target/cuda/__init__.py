"""The CUDA target: device code.

Read in this order: ``nvrtc``.
"""

from weft.target.cuda.nvrtc import compile_cuda, nvrtc_version

__all__ = ["compile_cuda", "nvrtc_version"]
