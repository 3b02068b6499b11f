"""Ways into Relax: importers, a package for each format of other tools, and ``nn``, in which models are written.

``relay`` makes Relay programs of what the importers make.
"""

import importlib
from typing import Any

_FORMATS = ("nn", "onnx", "relay", "stablehlo", "tflite", "torch", "weights")


def __getattr__(name: str) -> Any:
    if name in _FORMATS:
        return importlib.import_module(f"weft.frontend.{name}")
    if name == "detach_params":
        return importlib.import_module("weft.frontend.common").detach_params
    raise AttributeError(f"module 'weft.frontend' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*(n for n in globals() if n.startswith("__")), *_FORMATS, "detach_params"})
