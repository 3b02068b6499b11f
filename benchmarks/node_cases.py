"""The node cases of ONNX's backend suite, whose outputs ONNX's reference computes; what it computed is kept on disk."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

_KEPT = Path(__file__).resolve().parent.parent / "build" / f"node-cases-{onnx.__version__}-{np.__version__}.pickle"


@lru_cache(maxsize=1)
def node_cases() -> list[Any]:
    """List all cases: their model, and the inputs and outputs of each of its runs."""
    if _KEPT.exists():
        return pickle.loads(_KEPT.read_bytes())
    from onnx.backend.test.case.node import collect_testcases  # makes the cases as it is imported

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's notes on the overflows that some cases are about
        cases = list(collect_testcases(None))
    _KEPT.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=_KEPT.parent, delete=False) as file:
        pickle.dump(cases, file)
    Path(file.name).replace(_KEPT)
    return cases
