"""Kinds of targets that are only described: programs may ask about them, and Weft generates no code for them."""

from weft.target.kind import TargetKind, register_attribute, register_target_kind
from weft.target.target import Target

_KINDS = {
    "rocm": ("rocm", ("rocm", "gpu")),
    "metal": ("metal", ("metal", "gpu")),
    "hexagon": ("hexagon", ("hexagon", "cpu")),
    "ext_dev": ("ext_dev", ()),
    "hybrid": ("cpu", ("cpu",)),
    "composite": ("cpu", ()),
    "test": ("cpu", ()),
}


def _check_composite(target: Target) -> None:
    target.attrs["devices"] = [Target(d) for d in target.attrs.get("devices", ())]


for _name, (_device, _keys) in _KINDS.items():
    _check = _check_composite if _name == "composite" else None
    register_target_kind(TargetKind(_name, device=_device, keys=_keys, check=_check))
register_attribute("metal", "max_function_args", 31)
