"""The kind ``webgpu``: what browsers offer, with the limits that each of them keeps."""

from weft.error import InvalidArgument
from weft.target.gpu import DEVICE_CODE, build_gpu, source_gpu
from weft.target.kind import TargetKind, register_target_kind
from weft.target.target import Target
from weft.target.webgpu.source import webgpu_code


def _check(target: Target) -> None:
    """Without subgroups, threads run one by one; with them, 32 in step."""
    subgroups = bool(target.attrs.setdefault("supports_subgroups", False))
    width = target.attrs.setdefault("thread_warp_size", 32 if subgroups else 1)
    if int(width) != 1 and not subgroups:
        raise InvalidArgument(f"thread_warp_size={width} of target 'webgpu' requires supports_subgroups=true")


WEBGPU = register_target_kind(
    TargetKind(
        "webgpu",
        build=build_gpu,
        source=source_gpu,
        source_format="wgsl",
        keys=("webgpu", "gpu"),
        device="webgpu",
        check=_check,
        attributes={DEVICE_CODE: webgpu_code, "max_shared_memory_per_block": 16384},
    )
)
