"""What GPUs have in common: host and device functions apart, thread axes, building.

Read in this order: ``lower``, ``threads``, ``build``. A kind of GPU brings what turns device functions into code, to
:func:`register_gpu`, which keeps it under :data:`DEVICE_CODE`.
"""

from weft.target.gpu.build import DEVICE_CODE, DeviceCode, called_back, device_module, register_gpu, rewritten
from weft.target.gpu.lower import dynamic_bytes, lower_for_gpu
from weft.target.gpu.threads import AXES, check_allocations, launch_extents
