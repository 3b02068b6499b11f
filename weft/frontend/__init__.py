"""Importers: models of other tools become Relax modules. Each package here is one source format."""

from __future__ import annotations

import importlib
from typing import Any

_FORMATS = ("onnx",)


def __getattr__(name: str) -> Any:
    if name in _FORMATS:
        return importlib.import_module(f"weft.frontend.{name}")
    raise AttributeError(f"module 'weft.frontend' has no attribute '{name}'")
