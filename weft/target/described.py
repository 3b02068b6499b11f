"""Kinds of targets that are only described: programs may ask about them, and Weft generates no code for them."""

from __future__ import annotations

from weft.error import InvalidArgument
from weft.target.kind import TargetKind, register_attribute, register_target_kind
from weft.target.target import Target

_KINDS = {
    "rocm": ("rocm", ("rocm", "gpu")), "metal": ("metal", ("metal", "gpu")),
    "webgpu": ("webgpu", ("webgpu", "gpu")),
    "hexagon": ("hexagon", ("hexagon", "cpu")), "ext_dev": ("ext_dev", ()), "hybrid": ("cpu", ("cpu",)),
    "composite": ("cpu", ()), "test": ("cpu", ()),
}  # fmt: skip


def _check_webgpu(target: Target) -> None:
    """Without subgroups, threads run one by one; with them, 32 in step."""
    subgroups = bool(target.attrs.setdefault("supports_subgroups", False))
    width = target.attrs.setdefault("thread_warp_size", 32 if subgroups else 1)
    if int(width) != 1 and not subgroups:
        raise InvalidArgument(f"thread_warp_size={width} of target 'webgpu' requires supports_subgroups=true")


def _check_composite(target: Target) -> None:
    target.attrs["devices"] = [Target(d) for d in target.attrs.get("devices", ())]


for _name, (_device, _keys) in _KINDS.items():
    _check = {"webgpu": _check_webgpu, "composite": _check_composite}.get(_name)
    register_target_kind(TargetKind(_name, device=_device, keys=_keys, check=_check))
register_attribute("metal", "max_function_args", 31)
