"""The kind ``opencl``: any device that has a driver of OpenCL 2.0 or later."""

from weft.target.gpu import DEVICE_CODE, build_gpu, source_gpu
from weft.target.kind import TargetKind, register_target_kind
from weft.target.opencl.source import opencl_code

OPENCL = register_target_kind(
    TargetKind(
        "opencl",
        build=build_gpu,
        source=source_gpu,
        source_format="cl",
        keys=("opencl", "gpu"),
        device="opencl",
        attributes={DEVICE_CODE: opencl_code},
    )
)
