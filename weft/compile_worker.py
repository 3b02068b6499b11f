"""The process that compiles for another: requests are lines of JSON on standard input, answers on standard output.

``model`` compiles an ONNX file and writes the stored model; ``kernels`` and ``kernel`` compile kernels of symbolic
shapes for shapes that stay hot. An answer has ``done``; one of a request that failed does not.
"""

from __future__ import annotations

import base64
import json
import os
import select
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from weft.frontend.onnx import WEIGHT_FILES, from_onnx
from weft.model_cache import model_note
from weft.relax import build, compile_kernels, kernels_from_json, kernels_to_json, processes_ahead
from weft.runtime import object_code, weights_in_files
from weft.runtime.stored_model import write_model
from weft.target import Target

__all__ = ["main"]

_UNHEARD = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)

_PATIENCE = 60.0
"""Seconds without a request after which the process ends."""


class _Compiler:
    def __init__(self, answer: Callable[[Mapping[str, Any]], None]) -> None:
        self._answer = answer
        self._module = ""
        self._kernels: dict[Any, Mapping[str, Any]] = {}
        """By target."""

    def model(self, path: str, options: dict[str, Any], out: str, key: str) -> dict[str, Any]:
        """Compile a model and write it."""

        def progress(what: str, done: int, total: int) -> None:
            self._answer({"progress": [what, done, total]})

        with weights_in_files(Path(out).parent), warnings.catch_warnings(record=True) as said:
            mod = from_onnx(path, *(options[k] for k in ("shape_dict", "dtype_dict", "opset")))
            files = mod.attrs.get(WEIGHT_FILES, ())
            target = Target(options["target"] or "llvm")
            with processes_ahead(mod, target):
                executable = build(mod, target, progress=progress, tuned=options["tuned"],
                                   precision=options["precision"])  # fmt: skip
            if any(not issubclass(w.category, _UNHEARD) for w in said):
                return {}  # they are for the user's process, which compiles to say them
            note = model_note(Path(path).parent, files, kernels_to_json(executable.recompilable))
            return {"done": write_model(Path(out), executable, note, key)}

    def kernels(self, module: str) -> dict[str, Any]:
        """Take the kernels that will be asked for."""
        self._module = module
        self._kernels.clear()
        return {"done": True}

    def kernel(self, name: str, shape: list[int], target: Any) -> dict[str, Any]:
        """Compile one of them for a shape."""
        key = json.dumps(target)
        if key not in self._kernels:
            compile_one = partial(compile_kernels, target=Target(target or "llvm"))
            self._kernels[key] = kernels_from_json(self._module, compile_one)
        module, _ = self._kernels[key][name].compile(shape)
        objects, names = object_code(module)
        return {"done": True, "objects": [base64.b64encode(o).decode() for o in objects], "names": names}


def main() -> None:
    """Answer requests until the input ends, or none comes for a while."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(content: Mapping[str, Any]) -> None:
        print(json.dumps(content), file=out, flush=True)

    compiler = _Compiler(answer)
    while select.select([sys.stdin], [], [], _PATIENCE)[0]:
        line = sys.stdin.readline()
        if not line.endswith("\n"):  # the end, perhaps in the middle of a request
            return
        request = json.loads(line)
        try:
            answer(getattr(compiler, request.pop("do"))(**request))
        except KeyboardInterrupt:
            return
        except Exception:  # the other process compiles itself, and says what is wrong
            answer({"failed": traceback.format_exc()})


if __name__ == "__main__":
    main()
