"""``I``: modules, their attributes and global information."""

from collections.abc import Mapping
from typing import Any

from weft.ir import DummyGlobalInfo, GlobalVar, Op, Range, VDevice
from weft.ir.text.parser import ModuleCommand, from_source, ir_module, meta_var, metadata, pyfunc

__all__ = [
    "GlobalVar",
    "Op",
    "Range",
    "dummy_global_info",
    "from_source",
    "ir_module",
    "pyfunc",
    "meta_var",
    "metadata",
    "module_attrs",
    "module_global_infos",
    "vdevice",
]


def module_attrs(attrs: dict[str, Any]) -> ModuleCommand:
    """Set attributes of the module."""
    return ModuleCommand("attrs", attrs)


def module_global_infos(infos: dict[str, Any]) -> ModuleCommand:
    """Set the module's lists of global information."""
    return ModuleCommand("global_infos", infos)


def dummy_global_info() -> DummyGlobalInfo:
    """Make global information that says nothing."""
    return DummyGlobalInfo()


def vdevice(target: str | Mapping[str, Any] = "llvm", vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """Make a virtual device; `target` is a kind or a description with a ``kind``."""
    return VDevice(target, vdevice_id, memory_scope)  # type: ignore[arg-type]
