"""Small ONNX models for tests, and the comparison with an oracle."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

onnxruntime.set_default_logger_severity(4)


def value_info(name: str, array: np.ndarray, dims: Any = None) -> Any:
    """Describe an array; `dims` replaces its shape."""
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, dtype, list(array.shape) if dims is None else dims)


def model_of(
    nodes: Any,
    inputs: dict[str, np.ndarray],
    outputs: Any,
    opset: int = 17,
    weights: dict[str, np.ndarray] | None = None,
    dims: dict[str, Any] | None = None,
    functions: Any = (),
) -> onnx.ModelProto:
    """Make a model; `outputs` are names whose types are left open."""
    infos = [value_info(k, v, (dims or {}).get(k)) for k, v in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) if isinstance(o, str) else o for o in outputs]
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "test", infos, outs, initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


def oracle(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run ONNX Runtime, or ONNX's own interpreter where that lacks the operator."""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, inputs)
    except Exception:
        return ReferenceEvaluator(model).run(None, inputs)


def symbolic(model: onnx.ModelProto, names: Any) -> onnx.ModelProto:
    """Copy a model with every dimension of some inputs made symbolic."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        if info.name in names:
            for i, d in enumerate(info.type.tensor_type.shape.dim):
                d.dim_param = f"{info.name}_{i}"
    return copy


def compare(got: list[np.ndarray], expected: list[np.ndarray], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Compare outputs: number, types, shapes and values."""
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        e = np.asarray(e)
        assert g.dtype == e.dtype
        assert g.shape == e.shape
        wide = (np.float64,) if e.dtype.kind in "fV" else ()
        np.testing.assert_allclose(g.astype(*wide) if wide else g, e.astype(*wide) if wide else e, rtol=rtol, atol=atol)


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray], dynamic: Any = (), **tolerance: float) -> Any:
    """Import and evaluate a model with its shapes and, for the inputs `dynamic`, without; compare with the oracle."""
    expected = oracle(model, inputs)
    mod = from_onnx(model)
    compare(evaluate(mod, *inputs.values()), expected, **tolerance)
    if dynamic:
        compare(evaluate(from_onnx(symbolic(model, dynamic)), *inputs.values()), expected, **tolerance)
    return mod


def calls(mod: Any) -> list[str]:
    """List the operators that main calls, in order."""
    found = []
    for block in mod["main"].body.blocks:
        for b in block.bindings:
            op = getattr(b.value, "op", None)
            if op is not None:
                found.append(op.name.removeprefix("relax."))
    return found


__all__ = ["TensorProto", "calls", "check", "compare", "model_of", "oracle", "symbolic", "value_info"]
