"""What GPUs have in common: host and device functions apart, thread axes, building.

Read in this order: ``lower``, ``threads``, ``build``. A kind of GPU brings what turns device functions into code, under
the attribute :data:`DEVICE_CODE` of its target kind.
"""

from weft.target.gpu.build import DEVICE_CODE, DeviceCode, build_gpu, device_module, source_gpu
from weft.target.gpu.lower import dynamic_bytes, lower_for_gpu
from weft.target.gpu.threads import AXES, check_allocations, launch_extents

__all__ = [
    "AXES", "DEVICE_CODE", "DeviceCode", "build_gpu", "check_allocations", "device_module", "dynamic_bytes",
    "launch_extents", "lower_for_gpu", "source_gpu",
]  # fmt: skip
