"""The networks of the ``onnx`` package with random weights, instead of the constants that keep their files small.

With constant weights all channels are alike and values overflow or vanish, which is no measure of speed.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.light_models import FOLDER


def export(path: str | Path, name: str) -> None:
    """Write network `name` (``"squeezenet"``) with weights that keep values near 1."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    users = {i: (node, k) for node in model.graph.node for k, i in enumerate(node.input)}
    rng = np.random.default_rng(0)
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(d) for d in shapes[node.input[0]])
            weight = _weight(rng, shape, *users[node.output[0]], users)
            model.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, path)


def inputs(name: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One image."""
    graph = onnx.load(FOLDER / f"light_{name}.onnx").graph
    constants = {t.name for t in graph.initializer}
    (image,) = [i for i in graph.input if i.name not in constants]
    return {image.name: rng.standard_normal([d.dim_value for d in image.type.tensor_type.shape.dim], np.float32)}


def _weight(
    rng: np.random.Generator, shape: tuple[int, ...], user: onnx.NodeProto, index: int, users: dict
) -> np.ndarray:
    if len(shape) > 1:
        scale = np.sqrt(2 / np.prod(shape[1:])) if user.op_type in ("Conv", "Gemm") else 1.0
        return (rng.standard_normal(shape) * scale).astype(np.float32)
    if user.op_type == "Unsqueeze":
        user, index = users[user.output[0]]
    positive = user.op_type == "Mul" or (user.op_type == "BatchNormalization" and index in (1, 4))
    return (rng.uniform(0.5, 1.5, shape) if positive else 0.1 * rng.standard_normal(shape)).astype(np.float32)
