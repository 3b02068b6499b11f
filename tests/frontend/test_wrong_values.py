"""Attributes and operands with wrong values are refused by the node's name, or mean what ONNX Runtime says.

Every third of the cases that ``python -m tests.frontend.wrong_values`` runs.
"""

from collections import Counter

import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.wrong_values import sweep
from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx.registry import supported_operators

# What differs, and why; an entry without a differing case has to go.
KNOWN = {
    ("QLinearMatMul", "zero_point"): "the length of zero points is not checked",
    ("LpPool", "p"): "high powers are computed in float64; ONNX Runtime's underflow",
    ("MaxPool", "strides"): "SAME with strides longer than the window: no padding; ONNX Runtime's is negative",
    ("Scatter", "axis"): "indices are data: they are checked where they are constants",
    ("ScatterElements", "axis"): "indices are data: they are checked where they are constants",
}


def test_wrong_values() -> None:
    counts, wrong, seen = Counter(), [], set()
    for op, change, outcome, text in sweep(supported_operators(), every=3):
        key = next((k for k in KNOWN if k[0] == op and k[1] in change), None)
        if outcome in ("accepted", "failed", "differing"):
            if key is None:
                wrong.append(f"{outcome}: {op} {change}: {text}")
            else:
                seen.add(key)
                outcome = "known"
        counts[outcome] += 1
    print(f"{counts.total()} cases: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert seen == set(KNOWN), f"these agree now: {set(KNOWN) - seen}"
    assert counts["refused by both"] > 200
    assert counts["equal"] > 80


def one(op_type: str, shape: tuple[int, ...], attrs: dict, *constants: list, outputs: int = 1, opset: int = 18):
    names = [f"c{i}" for i in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], [f"y{i}" for i in range(outputs)], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
        [helper.make_tensor(n, TensorProto.INT64, [len(c)], c) for n, c in zip(names, constants, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (one("Slice", (4, 5), {}, [0], [2], [0], [0]), "a step is 0"),
        (one("Slice", (4, 5), {}, [0], [2], [7]), "an axis is out of range"),
        (one("Slice", (4, 5), {}, [0, 0], [2, 2], [0, -2]), "an axis is repeated"),
        (one("Expand", (4, 5), {}, [-1, 5]), "is negative"),
        (one("Expand", (4, 5), {}, [3, 5]), "do not broadcast"),
        (one("Tile", (4, 5), {}, [-1, 5]), "is negative"),
        (one("Reshape", (4, 5), {}, [-1, -1]), "more than one"),
        (one("Reshape", (4, 5), {}, [3, -1]), "do not divide"),
        (one("Reshape", (0, 5), {"allowzero": 1}, [0, -1]), "beside one of 0"),
        (one("Squeeze", (4, 1), {}, [0]), "is not 1"),
        (one("Squeeze", (4, 1), {}, [1, -1]), "an axis is repeated"),
        (one("Unsqueeze", (4, 1), {}, [0, 0]), "an axis is repeated"),
        (one("Transpose", (4, 1), {"perm": [0, 0]}), "no permutation"),
        (one("Split", (4, 6), {"axis": 1}, [2, 2], outputs=2), "do not add up"),
        (one("Split", (4, 6), {"num_outputs": 0}, outputs=2), "has a wrong value"),
        (one("Split", (4, 6), {"num_outputs": 3}, outputs=2), "not the number of outputs"),
        (one("TopK", (4, 6), {}, [-1], outputs=2), "is negative"),
        (one("TopK", (4, 6), {}, [2, 2], outputs=2), "is not one number"),
        (one("DepthToSpace", (1, 4, 2, 2), {"blocksize": 0}), "has a wrong value"),
        (one("DepthToSpace", (1, 4, 2, 2), {"blocksize": 2, "mode": "RDC"}), "has a wrong value"),
        (one("MaxPool", (1, 1, 4, 4), {"kernel_shape": [0, 2]}), "has a wrong value"),
        (one("MaxPool", (1, 1, 4, 4), {"kernel_shape": [2, 2], "strides": [0, 1]}), "has a wrong value"),
        (one("MaxPool", (1, 1, 4, 4), {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}), "as wide as the window"),
        (one("MaxPool", (1, 1, 4, 4), {"kernel_shape": [7, 2]}), "larger than the padded input"),
        (one("LRN", (1, 4, 4, 4), {"size": 4}), "odd and positive"),
        (one("CumSum", (4, 6), {}, [7]), "out of range"),
        (one("ReduceSum", (4, 6), {"keepdims": 2}, [0]), "has a wrong value"),
        (one("ArgMax", (4, 6), {"axis": 2}), "out of range"),
        (one("ReverseSequence", (4, 2), {}, [9, 1]), "a length is out of range"),
    ],
)
def test_refused(model, what) -> None:
    with pytest.raises(ModelImportError, match="ONNX node 0") as e:
        from_onnx(model)
    assert what in str(e.value), e.value
