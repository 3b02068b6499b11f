"""Each ONNX node: what the importer made of it, by the operators' references, against ONNX's own evaluator.

A node is given what the imported program computes for its inputs, so that each is judged by itself, and an error does
not travel to the nodes behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.check.difference import Difference, Tolerance, compare_all
from weft.error import WeftError, require
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

if TYPE_CHECKING:
    import onnx

_RANDOM = ("Random", "Multinomial", "Bernoulli", "Dropout")


class WrongNode(NamedTuple):
    """A node of the model that the importer, or an operator's reference, gives another meaning than ONNX."""

    place: str
    output: str
    difference: Difference


class CheckedNodes(NamedTuple):
    """What became of the nodes: the wrong ones, how many agree, and why others were not compared."""

    wrong: list[WrongNode]
    agree: int
    skipped: list[str]


def check_nodes(
    model: onnx.ModelProto,
    options: Mapping[str, Any],
    feeds: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    each: bool = False,
) -> CheckedNodes:
    """Compare every value that a node of the model's graph makes.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights.
    options : mapping
        For ``from_onnx``.
    feeds : mapping of str to array
    tolerance : Tolerance
    each : bool
        Go on behind the first node that differs.
    """
    names = _tensors(model)
    try:
        computed = dict(zip(names, _computed(model, names, options, feeds), strict=True))
    except (WeftError, ValueError, TypeError, IndexError) as e:
        return CheckedNodes([], 0, [f"the imported program cannot be interpreted: {type(e).__name__}: {e}"])
    known = {**_weights(model), **feeds, **computed}
    wrong, skipped, agree = list[WrongNode](), list[str](), 0
    for at, node in enumerate(model.graph.node):
        place = f'ONNX node {at} "{node.name}" ({node.op_type})'
        outputs = [o for o in node.output if o in computed]
        if not outputs or node.op_type.startswith(_RANDOM):
            skipped.append(f"{place}: {'draws numbers' if outputs else 'makes no tensor'}")
            continue
        expected, why = _expected(model, node, known)
        if expected is None:
            skipped.append(f"{place}: {why}")
            continue
        found = compare_all([computed[o] for o in outputs], [expected[o] for o in outputs], outputs, tolerance)
        agree += found is None
        if found is not None:
            wrong.append(WrongNode(place, *found))
            if not each:
                break
    return CheckedNodes(wrong, agree, skipped)


def _tensors(model: Any) -> list[str]:
    """The names of the tensors that nodes make; sequences and optional values are none."""
    onnx = require("onnx", extra="onnx")
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # it is too large, or inference knows less than the importer
        graph = model.graph
    known = [*graph.value_info, *graph.output]
    other = {v.name for v in known if v.type.WhichOneof("value") not in (None, "tensor_type")}
    return [o for node in model.graph.node for o in node.output if o and o not in other]


def _weights(model: Any) -> dict[str, np.ndarray]:
    onnx = require("onnx", extra="onnx")
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def _computed(model: Any, names: list[str], options: Mapping[str, Any], feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """What the imported program computes for values: it is imported as if these were the model's outputs."""
    onnx = require("onnx", extra="onnx")
    outputs = list(model.graph.output)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    try:
        return evaluate(from_onnx(model, **options), *feeds.values())
    finally:
        del model.graph.output[:]
        model.graph.output.extend(outputs)


def _expected(model: Any, node: Any, known: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray] | None, str]:
    """What ONNX says a node computes of values; or why that is not known."""
    onnx = require("onnx", extra="onnx")
    given = {n: known[n] for n in dict.fromkeys(_read(node)) if n in known}
    helper = onnx.helper
    try:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items()
        ]
        wanted = [o for o in node.output if o]
        graph = helper.make_graph([node], "node", inputs, [onnx.ValueInfoProto(name=o) for o in wanted])
        alone = helper.make_model(
            graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
        )
    except Exception as e:
        return None, f"cannot be taken out of its graph: {type(e).__name__}: {e}"
    reasons: list[str] = []
    for run in (_by_reference, _by_onnxruntime):
        try:
            with np.errstate(all="ignore"):
                return dict(zip(wanted, run(alone, given), strict=True)), ""
        except Exception as e:  # an evaluator that cannot run a node says so in many ways
            reasons.append(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
    return None, "; ".join(reasons)


def _read(node: Any) -> Iterator[str]:
    """Names that a node reads, also from inside of its bodies."""
    yield from (n for n in node.input if n)
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            for inner in graph.node:
                yield from _read(inner)
            yield from (o.name for o in graph.output)


def _by_reference(model: Any, given: Mapping[str, np.ndarray]) -> list[Any]:
    return require("onnx.reference", extra="onnx").ReferenceEvaluator(model).run(None, dict(given))


def _by_onnxruntime(model: Any, given: Mapping[str, np.ndarray]) -> list[Any]:
    if find_spec("onnxruntime") is None:
        raise WeftError("onnxruntime is not installed")
    runtime = require("onnxruntime", extra="bench")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(given))
