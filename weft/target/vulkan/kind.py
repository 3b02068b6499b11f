"""The kind ``vulkan``: any device that has a driver of Vulkan 1.2 or later."""

from weft.target.gpu import DEVICE_CODE, build_gpu, source_gpu
from weft.target.kind import TargetKind, register_target_kind
from weft.target.vulkan.source import vulkan_code

VULKAN = register_target_kind(
    TargetKind(
        "vulkan",
        build=build_gpu,
        source=source_gpu,
        source_format="glsl",
        keys=("vulkan", "gpu"),
        device="vulkan",
        attributes={DEVICE_CODE: vulkan_code},
    )
)
