"""The CUDA targets: what NVIDIA's GPUs run, from CUDA C++ or from LLVM.

Read in this order: ``emitter``, ``prelude``, ``source``, ``nvrtc``; ``nvptx_rules``, ``nvptx_trig``, ``nvptx_math``,
``nvptx``; ``build``, ``kind``. What all GPUs share is in ``weft.target.gpu``.
"""

from weft.target.cuda.build import gpu_arch
from weft.target.cuda.kind import CUDA, NVPTX
from weft.target.cuda.nvptx import emit_nvvm, emit_ptx
from weft.target.cuda.nvrtc import compile_cuda, nvrtc_version
from weft.target.cuda.source import Kernel, emit_cuda, emit_kernel
