"""``I`` for building: ``ir_module()`` opens a module."""

from weft.relax.script.building import ModuleFrame as ir_module

__all__ = ["ir_module"]
