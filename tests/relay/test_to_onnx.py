"""Relay programs as ONNX models: ONNX Runtime computes what every case of the operators' contract says."""

import numpy as np
import pytest
from weft.contrib.target.onnx import to_onnx

from tests.refusals import refuses
from tests.relay.op.contract import Known, drawn, typed_call, values
from tests.relay.op.test_contract import ALL, flat
from weft import error, relay
from weft.relay import to_onnx as rules
from weft.relay.op import evaluate

WRITTEN = [(name, index) for name, index in ALL if name in {*rules._SAME, *rules._RULES}]


@pytest.mark.parametrize(("name", "index"), WRITTEN)
def test_values(name: str, index: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    for case in drawn(name, index):
        arrays = values(case)
        if (name in ("divide", "power") and arrays[0].dtype.kind in "iu") or (name == "nn.lrn" and arrays[0].ndim != 4):
            continue  # quotients by zero and negative powers are anybody's, and ONNX Runtime has images only
        body = typed_call(name, case)
        wanted = flat(evaluate(body, arrays))
        if any(w.dtype.name == "bfloat16" for w in wanted):
            continue  # ONNX Runtime hands out no such array
        given = flat(tuple(v for v, i in zip(arrays, case.inputs, strict=True) if not isinstance(i, Known)))
        try:
            model = to_onnx(relay.Function(relay.analysis.free_vars(body), body), {}, "test").SerializeToString()
            session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        except (error.InvalidArgument, runtime.capi.onnxruntime_pybind11_state.NotImplemented) as e:
            pytest.skip(str(e))
        inputs = dict(zip((i.name for i in session.get_inputs()), given, strict=True))
        for mine, theirs in zip(wanted, session.run(None, inputs), strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(mine, theirs, case.rtol, case.atol)


def test_a_model_of_two_outputs_and_a_parameter() -> None:
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(5, 4))
    body = relay.Tuple([relay.nn.dense(x, w), x])
    model = to_onnx(relay.Function([x, w], body), {"w": np.ones((5, 4), "float32")}, "f")
    assert (len(model.graph.input), len(model.graph.output)) == (1, 2)
    refuses(error.InvalidArgument, "'cumsum'", to_onnx, relay.Function([w], relay.cumsum(w)), {}, "f")
    refuses(error.InvalidArgument, "14 to 17", to_onnx, relay.Function([w], w), {}, "f", 13)
