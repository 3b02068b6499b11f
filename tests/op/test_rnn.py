"""Recurrent layers of whole models: what is computed when they are compiled."""

import numpy as np
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.relax_models import model
from weft import ir, relax
from weft.op import get_op_def, make_call

GATES = {"LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("kind", GATES)
def test_biases_of_constants_are_added_once(kind):
    n, inputs, rng = 20, 12, np.random.default_rng(3)
    shapes = {"W": (1, GATES[kind] * n, inputs), "R": (1, GATES[kind] * n, n), "B": (1, 2 * GATES[kind] * n)}
    weights = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    late = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["y"], hidden_size=n, **late)
    out = {"y": ("float32", ("t", 1, 1, n))}
    proto = onnx_models.model([node], {"x": ("float32", ("t", 1, inputs))}, out, weights)
    session = weft.Session(proto.SerializeToString())
    kernels = {f.name for f in session.executable.functions if "." not in f.name} - {"main"}
    assert not [k for k in kernels if k.startswith(("add", "split", "concat", "strided_slice"))], kernels
    x = rng.standard_normal((7, 1, inputs)).astype(np.float32)
    onnxruntime = pytest.importorskip("onnxruntime")
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected, rtol=1e-4, atol=1e-5)


PARTS = {"lstm": (4, 2), "gru": (3, 1), "rnn": (1, 1)}
"""Gates and states."""


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("kind", "hidden", "direction", "options"),
    [
        ("lstm", 20, "bidirectional", {}),
        ("lstm", 300, "forward", {"clip": 0.7}),
        ("gru", 33, "reverse", {}),
        ("gru", 320, "forward", {"linear_before_reset": True}),
        ("rnn", 70, "bidirectional", {}),
    ],
)
def test_samples_of_different_lengths_go_through_blocks_together(kind, hidden, direction, options, symbolic):
    rng, steps, batch, directions = np.random.default_rng(7), 5, 7, 2 if direction == "bidirectional" else 1
    gates, n_states = PARTS[kind]
    scale = 1 / np.sqrt(hidden)
    x = [
        rng.standard_normal((steps, batch, 6)),
        rng.standard_normal((directions, gates * hidden, 6)),
        rng.standard_normal((directions, gates * hidden, hidden)) * scale,
        rng.standard_normal((directions, 2 * gates * hidden)),
        np.array([5, 3, 4, 5, 0, 5, 1]),
        *(rng.standard_normal((directions, batch, hidden)) for _ in range(n_states)),
        *([rng.standard_normal((directions, 3 * hidden))] if kind == "lstm" else []),
    ]
    x = [a.astype(np.int32 if a.dtype == np.int64 else np.float32) for a in x]
    free = weft.tir.Var("batch", "int64")
    parameters = [
        relax.Var(f"x{i}", relax.TensorType([free if symbolic and d == batch else d for d in a.shape], str(a.dtype)))
        for i, a in enumerate(x)
    ]
    mod = model(lambda *v: make_call(f"nn.{kind}")(*v, direction=direction, **options), *parameters)
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())
    op = get_op_def(ir.Op.get(f"relax.nn.{kind}"))
    attrs = {**{k: v.default for k, v in op.attrs.items()}, "direction": direction, **options}
    for found, wanted in zip(machine["main"](*map(weft.runtime.tensor, x)), op.reference(*x, **attrs), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", PARTS)
def test_lengths_are_read_ahead_of_the_products(kind):
    """Where a step of the backward direction stands depends on the sample's length, not on what is multiplied."""
    gates, n_states, hidden = *PARTS[kind], 96
    batch = weft.tir.Var("batch", "int64")
    shapes = [
        (5, batch, 6),
        (2, gates * hidden, 6),
        (2, gates * hidden, hidden),
        (2, 2 * gates * hidden),
        (batch,),
        *[(2, batch, hidden)] * n_states,
        *([(2, 3 * hidden)] if kind == "lstm" else []),
    ]
    parameters = [
        relax.Var(f"x{i}", relax.TensorType(s, "int32" if i == 4 else "float32")) for i, s in enumerate(shapes)
    ]
    mod = model(lambda *v: make_call(f"nn.{kind}")(*v, direction="bidirectional"), *parameters)
    mod = relax.get_pipeline("default", weft.target.Target("llvm"))(mod)
    (kernel,) = [f for v, f in mod.items() if "recurrence" in v.name_hint]
    products = [f for f in ir.find(kernel.body, weft.tir.For) if f.loop_var.name.startswith("k")]
    assert products and not any(x.dtype == "int32" for f in products for x in ir.find(f, weft.tir.BufferLoad))
    states = [{str(x) for x in ir.find(f, weft.tir.BufferLoad) if x.indices[-1] is f.loop_var} for f in products]
    assert {2, 4} <= {len(each) for each in states}, "what is left over of four samples goes by two"
