"""The process that compiles for another, as a service of ``weft.runtime.worker``.

``model`` compiles an ONNX file and writes the stored model; ``kernels`` and ``kernel`` compile kernels of symbolic
shapes for shapes that stay hot.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from weft import error, model_cache, runtime
from weft.frontend.onnx import WEIGHT_FILES, from_onnx
from weft.relax import build, compile_kernels, kernels_from_json, kernels_to_json, processes_ahead
from weft.target import Target

_UNHEARD = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning, error.ScheduleWarning)
"""Warnings that are not for users; the last ones are in the stored model, and whoever takes it says them."""


class Service:
    """Compiles; `progress` is told how far a model is."""

    patience = 60.0

    def __init__(self, progress: Callable[[str, int, int], None]) -> None:
        self._progress = progress
        self._module = ""
        self._kernels: dict[Any, Mapping[str, Any]] = {}
        """By target."""

    def model(
        self, path: str, content: tuple[str, str, bool], options: dict[str, Any], key: str, out: str
    ) -> dict[str, Any]:
        """Compile a model and write it; not ``done`` where this process had better say what there is to say."""
        request = model_cache.Request(Path(path), model_cache.Content(*content), options, key)
        with runtime.weights_in_files(Path(out).parent), warnings.catch_warnings(record=True) as said:
            mod = from_onnx(path, *(options[k] for k in ("shape_dict", "dtype_dict", "opset")))
            weights = model_cache.look_at_weights(request.path.parent, mod.attrs.get(WEIGHT_FILES, {}))
            model_cache.demand_unchanged(request)
            target = Target(options["target"] or "llvm")
            with processes_ahead(mod, target):
                executable = build(
                    mod, target, progress=self._progress, tuned=options["tuned"], precision=options["precision"]
                )
            if any(not issubclass(w.category, _UNHEARD) for w in said):
                return {"done": False}  # they are for the user's process, which compiles to say them
            hot = kernels_to_json(executable.recompilable)
            return {"done": model_cache.write(Path(out), request, executable, weights, hot)}

    def kernels(self, module: str) -> dict[str, Any]:
        """Take the kernels that will be asked for."""
        self._module = module
        self._kernels.clear()
        return {}

    def kernel(self, name: str, shape: list[int], target: Any) -> dict[str, Any]:
        """Compile one of them for a shape."""
        key = json.dumps(target)
        if key not in self._kernels:
            compile_one = partial(compile_kernels, target=Target(target or "llvm"))
            self._kernels[key] = kernels_from_json(self._module, compile_one)
        module, _ = self._kernels[key][name].compile(shape)
        objects, names = runtime.object_code(module)
        return {"objects": objects, "names": names}
