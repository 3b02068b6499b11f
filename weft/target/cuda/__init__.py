"""The CUDA targets: kernels, and host code that launches them.

Read in this order: ``lower``, ``source``, ``nvrtc``, ``build``; ``threads``, ``nvptx_rules``, ``nvptx_trig``,
``nvptx_math``, ``nvptx``, ``kind``.
"""

from weft.target.cuda.build import DEVICE_CODE, DeviceCode, build_gpu, device_module, gpu_arch
from weft.target.cuda.kind import CUDA, NVPTX
from weft.target.cuda.lower import SplitModule, lower_for_gpu
from weft.target.cuda.nvptx import emit_nvvm, emit_ptx
from weft.target.cuda.nvrtc import compile_cuda, nvrtc_version
from weft.target.cuda.source import Kernel, emit_cuda, emit_kernel

__all__ = ["CUDA", "DEVICE_CODE", "DeviceCode", "NVPTX", "Kernel", "SplitModule", "build_gpu", "compile_cuda",
           "device_module",
           "emit_cuda", "emit_kernel", "emit_nvvm", "emit_ptx", "gpu_arch", "lower_for_gpu",
           "nvrtc_version"]  # fmt: skip
