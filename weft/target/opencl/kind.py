"""The kind ``opencl``: any device that has a driver of OpenCL 2.0 or later."""

from weft.target.gpu import register_gpu
from weft.target.opencl.source import opencl_code

OPENCL = register_gpu("opencl", "cl", opencl_code)
