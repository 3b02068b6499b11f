"""The target ``webgpu``: kernels for browsers, in WGSL.

Read in this order: ``emitter``, ``source``, ``kind``. What all GPUs share is in ``weft.target.gpu``.
"""

from weft.target.webgpu.kind import WEBGPU
from weft.target.webgpu.source import emit_wgsl
