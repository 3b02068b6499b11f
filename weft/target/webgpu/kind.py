"""The kind ``webgpu``: what browsers offer, with the limits that each of them keeps."""

from weft.error import InvalidArgument
from weft.target.gpu import register_gpu
from weft.target.target import Target
from weft.target.webgpu.source import webgpu_code


def _check(target: Target) -> None:
    """Without subgroups, threads run one by one; with them, 32 in step."""
    subgroups = bool(target.attrs.setdefault("supports_subgroups", False))
    width = target.attrs.setdefault("thread_warp_size", 32 if subgroups else 1)
    if int(width) != 1 and not subgroups:
        raise InvalidArgument(f"thread_warp_size={width} of target 'webgpu' requires supports_subgroups=true")


WEBGPU = register_gpu("webgpu", "wgsl", webgpu_code, check=_check, attributes={"max_shared_memory_per_block": 16384})
