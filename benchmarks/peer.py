"""ONNX Runtime and Weft on the same ONNX file with the same number of threads."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import weft
from weft.runtime import num_threads

THREADS = num_threads()
_SAME_VALUES = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")


def peer_session(model: str | Path | bytes) -> onnxruntime.InferenceSession:
    """ONNX Runtime with all optimisations and `THREADS` threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def weft_session(model: str | Path | bytes, **options: Any) -> weft.Session:
    """Weft, with no shapes given unless `options` has them."""
    return weft.Session(model, **options)


def softmax_outputs(path: Path) -> list[bool]:
    """Which outputs of a model are those of a softmax, whatever shape they are brought to."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    made_by = {name: node for node in graph.node for name in node.output}

    def is_softmax(name: str) -> bool:
        node = made_by.get(name)
        while node is not None and node.op_type in _SAME_VALUES:
            node = made_by.get(node.input[0])
        return node is not None and node.op_type == "Softmax"

    return [is_softmax(o.name) for o in graph.output]


def logits(probabilities: np.ndarray) -> np.ndarray:
    """The logarithms of a softmax's output; those that float32 has no normal numbers for are all alike."""
    return np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))


def largest_difference(found: list[Any], expected: list[Any]) -> float:
    """The largest difference of any output, relative to the largest value of that output.

    Infinite where shapes, dtypes or the places of NaN differ.
    """
    worst = 0.0
    for got, want in zip(found, expected, strict=True):
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape or got.dtype != want.dtype:
            return float("inf")
        if want.size == 0:
            continue
        a, b = got.astype(np.float64), want.astype(np.float64)
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        scale = float(np.nanmax(np.abs(b)))
        worst = max(worst, float(np.nanmax(np.abs(a - b))) / (scale or 1.0))
    return worst
