"""Wrong values for attributes and constant operands of every operator that has a converter.

Each operator's cases in ONNX's backend suite are the seeds: integer operands become constants of the model, then one
attribute or operand at a time gets a wrong value: 0, negative, too large, of a wrong length, repeated, unknown text.
ONNX Runtime judges: where it refuses Weft must refuse with an error that names the node, where it answers Weft must
answer the same or refuse. ``python -m tests.frontend.wrong_values [operators]`` runs all of it.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, numpy_helper

from benchmarks.node_cases import node_cases
from weft.error import InvalidArgument, ModelImportError
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx.registry import supported_operators
from weft.relax.interpreter import evaluate

_SCALARS = (0, -1, -2, 3, 7, -9, 100)
_MAX_OPERAND = 16
_SEEDS = 3
_CONTROL = frozenset(("If", "Loop", "Scan", "Constant", "Dropout"))  # graphs, the tensors of constants, random numbers
_LACKS = ("NOT_IMPLEMENTED", "outermost")  # no kernel: that says nothing about the value
_FREE = frozenset(("DynamicQuantizeLinear", "GatherND", "TfIdfVectorizer"))  # the latter two take ONNX Runtime down


@lru_cache(maxsize=1)
def seeds() -> dict[str, list[Any]]:
    """Cases of one node for each operator, those with the fewest elements first, at most three that differ in form."""
    found = defaultdict(dict)
    for case in node_cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain and case.data_sets:
            arrays = case.data_sets[0][0]
            if all(isinstance(a, np.ndarray) and a.size < 5000 for a in arrays):
                form = (tuple(sorted(a.name for a in nodes[0].attribute)), len(nodes[0].input))
                found[nodes[0].op_type].setdefault(form, case)
    return {
        op: sorted(by_form.values(), key=lambda c: -len(c.model.graph.node[0].attribute))[:_SEEDS]
        for op, by_form in found.items()
    }


def with_constants(case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a model whose small integer operands behind the first are weights, and the other inputs' data."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, 10)
    feeds = {i.name: np.asarray(a) for i, a in zip(model.graph.input, case.data_sets[0][0], strict=True)}
    first = model.graph.node[0].input[0] if model.graph.node[0].input else ""
    for name, data in list(feeds.items()):
        if (
            data.dtype.kind in "iu"
            and data.ndim <= 1
            and data.size <= _MAX_OPERAND
            and (name != first or model.graph.node[0].op_type in ("ConstantOfShape", "Range"))
        ):
            model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    kept = [i for i in model.graph.input if i.name in feeds]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for o in model.graph.output:
        o.ClearField("type")
    return model, feeds


def _lists(values: Sequence[Any]) -> Iterator[list[Any]]:
    items = list(values)
    for i in range(min(len(items), 4)):
        for v in (0, -1, 7, -9):
            yield [*items[:i], type(items[i])(v), *items[i + 1 :]]
    yield [*items, *(items[:1] or [1])]
    if items:
        yield items[:-1]
        yield [items[0]] * len(items)
        yield []


def _wrong(attribute: Any) -> list[tuple[str, Any]]:
    """List (field, value) of what an attribute gets in turn."""
    if attribute.type == AttributeProto.INT:
        return [("i", v) for v in _SCALARS if v != attribute.i]
    if attribute.type == AttributeProto.STRING:
        return [("s", b"wrong")]
    field = {AttributeProto.INTS: "ints", AttributeProto.FLOATS: "floats"}.get(attribute.type)
    given = list(getattr(attribute, field)) if field else []
    return [(field, v) for v in _lists(given) if v != given] if field else []


def mutants(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield (what was changed, model)."""
    for k, attribute in enumerate(model.graph.node[0].attribute):
        wrong = [] if attribute.name == "sorted" else _wrong(attribute)  # any order is right where none is asked for
        for name, value in wrong:
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            target = changed.graph.node[0].attribute[k]
            if isinstance(value, list):
                del getattr(target, name)[:]
                getattr(target, name).extend(value)
            else:
                setattr(target, name, value)
            yield f"attribute {attribute.name}={value!r}", changed
    for k, tensor in enumerate(model.graph.initializer):
        data = numpy_helper.to_array(tensor)
        given = [[v] for v in _SCALARS] if data.ndim == 0 else _lists(data.tolist())
        for values in given:
            if data.dtype.kind == "u" and min(values, default=0) < 0:
                continue
            shaped = np.array(values, data.dtype) if data.ndim else np.array(values[0], data.dtype)
            if np.array_equal(shaped, data):
                continue
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            changed.graph.initializer[k].CopyFrom(numpy_helper.from_array(shaped, tensor.name))
            yield f"operand {tensor.name}={values!r}", changed


def peer(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | str:
    """Return ONNX Runtime's outputs, or its refusal."""
    try:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    except Exception as e:  # its errors have no common class
        return str(e)


def ours(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | str:
    """Return Weft's outputs, or its refusal; anything but one that names the node is an error."""
    try:
        mod = from_onnx(model)
    except ModelImportError as e:
        assert "ONNX node 0" in str(e), e
        assert "cannot be converted" not in str(e), e
        return str(e)
    try:
        return evaluate(mod, *feeds.values())
    except InvalidArgument as e:  # of values that only the run looks at
        assert "ONNX node 0" in str(e), e
        return str(e)


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """Whether two lists of outputs agree."""
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and np.allclose(x.astype("f8"), y.astype("f8"), 1e-3, 1e-4, True)
        for x, y in zip(a, b, strict=True)
    )


def judge(model: Any, feeds: dict[str, np.ndarray]) -> tuple[str, str]:
    """Return the kind of outcome, and what there is to say about it."""
    expected = peer(model, feeds)
    try:
        got = ours(model, feeds)
    except Exception as e:  # the importer's own failure, or a program that NumPy cannot run
        if isinstance(expected, str):
            return "accepted", f"{type(e).__name__}: {str(e)[:160]} | ORT {expected[:160]}"
        return "failed", f"{type(e).__name__}: {str(e)[:200]}"
    if isinstance(expected, str) and any(lack in expected for lack in _LACKS):
        return "ONNX Runtime lacks it", ""
    if isinstance(expected, str):
        return ("refused by both", "") if isinstance(got, str) else ("accepted", f"ORT {expected[-200:]}")
    if isinstance(got, str):
        return "refused by Weft alone", got[:160]
    return ("equal", "") if same(got, expected) else ("differing", f"{got} {expected}"[:200])


def sweep(operators: Sequence[str], every: int = 1) -> Iterator[tuple[str, str, str, str]]:
    """Yield (operator, change, outcome, text) of every mutant whose seed both answer alike."""
    onnxruntime.set_default_logger_severity(4)
    for op in operators:
        for case in seeds().get(op, ()):
            model, feeds = with_constants(case)
            try:
                if op in _CONTROL | _FREE or judge(model, feeds)[0] != "equal":
                    continue
            except Exception:
                continue
            for change, changed in islice(mutants(model), 0, None, every):
                yield op, f"{case.name} {change}", *judge(changed, feeds)


def main() -> int:
    """Run all of it; list what Weft should not do."""
    counts: Counter[str] = Counter()
    for op, change, outcome, text in sweep(sys.argv[1:] or supported_operators()):
        counts[outcome] += 1
        if outcome in ("accepted", "failed", "differing"):
            print(f"{outcome}: {op} {change}: {' '.join(text.split())}", flush=True)
    print(f"{counts.total()} cases: " + ", ".join(f"{n} {k}" for k, n in counts.most_common()))
    return int(any(counts[k] for k in ("accepted", "failed", "differing")))


if __name__ == "__main__":
    sys.exit(main())
