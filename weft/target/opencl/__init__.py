"""The target ``opencl``: devices of any maker, from OpenCL C.

Read in this order: ``emitter``, ``source``, ``kind``. What all GPUs share is in ``weft.target.gpu``.
"""

from weft.target.opencl.kind import OPENCL
from weft.target.opencl.source import emit_opencl
