"""Weft: a tensor compiler and virtual machine.

Everything public is reachable from here and loaded at the first use: ``import weft`` itself loads nothing heavy.
"""

import importlib
import sys
from typing import Any

from weft import _absent
from weft._aliases import MODULES

__version__ = "0.3.0"

_MODULES = (
    "arith auto_scheduler autotvm check cli dlight driver error exec ffi frontend ir meta_schedule op profile relax"
    " relay rpc runtime script session support target te testing tir topi tune"
)
# Public name -> module that has it; "" is the module itself.
_LAZY: dict[str, str] = {
    **dict.fromkeys(_MODULES.split(), ""),
    **dict.fromkeys(("DataType", "DataTypeCode", "IRModule"), "weft.ir"),
    **dict.fromkeys(("Device", "Object", "Tensor", "cpu", "cuda", "device", "opencl", "vulkan"), "weft.runtime"),
    "Session": "weft.session",
    **dict.fromkeys(("build", "compile", "lower"), "weft.driver"),
    "device_from_target": "weft.target",
    **dict.fromkeys(("get_global_func", "register_func", "register_global_func"), "weft.ffi"),
    "TVMError": "weft.error",
    "WeftError": "weft.error",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:  # with those of its inside that aliases name
        return importlib.import_module(f"weft.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'weft' has no attribute '{name}'")
    module = _LAZY[name]
    value = getattr(importlib.import_module(module), name) if module else importlib.import_module(f"weft.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(n for n in globals() if n.startswith("__")), *_LAZY, *(n for n in MODULES if "." not in n)})


_absent.watch(sys.modules[__name__])
