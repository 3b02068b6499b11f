"""``weft quantize``: what it writes is standard, near the float model, and as small as was asked for."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft
from tests import onnx_models
from tests.refusals import refuses
from weft import error, quantize
from weft.cli.main import main
from weft.support.ranges import Observed

RNG = np.random.default_rng(12)


def constants(**arrays):
    return {name: a.astype(np.float32) for name, a in arrays.items()}


def perceptron(opset=17, spoiled=False):
    """Three products, one transposed with a bias; `spoiled`: the middle one has weights that 4 bits cannot hold."""
    a, b, c = (RNG.standard_normal(s) / 8 for s in ((64, 96), (80, 96), (80, 10)))
    if spoiled:
        b = np.sign(b) / 14
        b[:, ::32] *= 14
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "b", "bias"], ["g"], name="middle", transB=1),
        helper.make_node("MatMul", ["g", "c"], ["y"], name="last"),
    ]
    weights = constants(a=a, b=b, c=c, bias=RNG.standard_normal(80))
    return onnx_models.model(nodes, {"x": ("float32", ("n", 64))}, {"y": ("float32", ("n", 10))}, weights, opset)


def convolution():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], name="point"),
    ]
    arrays = constants(
        w=RNG.standard_normal((8, 3, 3, 3)) / 5, b=RNG.standard_normal(8), v=RNG.standard_normal((4, 8, 1, 1))
    )
    return onnx_models.model(nodes, {"x": ("float32", (1, 3, 9, 7))}, {"y": ("float32", (1, 4, 9, 7))}, arrays)


def both(model, feeds):
    """What the standard says, and Weft's result; ONNX Runtime, which rounds more, has to take the model, too."""
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.isfinite(peer.run(None, feeds)[0]).all()
    return ReferenceEvaluator(model).run(None, feeds)[0], weft.Session(model).run(feeds)[0].numpy()


def distance(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.share(32, "weights", "group")
@pytest.mark.parametrize(
    ("weights", "group", "limit"),
    [("int4", 32, 0.2), ("uint4", 32, 0.19), ("uint4", 0, 0.2), ("int8", 0, 0.01), ("int8", 64, 0.01)],
)
def test_weights_without_data(weights, group, limit):
    model, x = perceptron(), RNG.standard_normal((5, 64)).astype(np.float32)
    before = model.SerializeToString()
    made, layers = quantize.quantize_model(model, weights, group)
    onnx.checker.check_model(made)
    assert model.SerializeToString() == before
    assert [x.node for x in layers] == ["first", "middle", "last"] and not any(x.kept for x in layers)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    theirs, ours = both(made, {"x": x})
    assert distance(ours, expected) < limit
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert made.ByteSize() < model.ByteSize() * (0.36 if weights == "int8" else 0.28)


def test_convolutions_have_eight_bits_and_blocks_sixteen_levels():
    model, x = convolution(), RNG.standard_normal((1, 3, 9, 7)).astype(np.float32)
    theirs, ours = both(quantize.quantize_model(model, "int4", 32)[0], {"x": x})
    assert distance(ours, ReferenceEvaluator(model).run(None, {"x": x})[0]) < 0.01
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    held = {t.name: t for t in quantize.quantize_model(perceptron(), "int4", 32)[0].graph.initializer}
    scale, q = (numpy_helper.to_array(held[f"b.{part}"]) for part in ("scale", "q"))
    assert (scale < 0).any() and q.astype(np.int8).min() == -8 and q.astype(np.int8).max() == 7


def test_each_weight_is_within_half_a_step():
    model = perceptron()
    w = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "b")
    made, _ = quantize.quantize_model(model, "int8", 32)
    held = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    scale = np.repeat(held["b.scale"], 32, 1)
    assert (np.abs(held["b.q"] * scale - w) <= scale * 0.501).all()


@pytest.mark.parametrize("method", quantize.METHODS)
@pytest.mark.parametrize("make", [perceptron, convolution])
def test_activations_on_data(make, method):
    model = make()
    shape = (200, 64) if make is perceptron else (1, 3, 9, 7)
    samples = [{"x": RNG.standard_normal(shape).astype(np.float32)} for _ in range(3 if make is perceptron else 60)]
    made, layers = quantize.quantize_model(model, "int8", 0, samples, method, max_loss=0.2)
    onnx.checker.check_model(made)
    assert not any(x.kept for x in layers) and all(x.found < 0.15 for x in layers)
    expected = ReferenceEvaluator(model).run(None, samples[0])[0]
    theirs, ours = both(made, samples[0])
    assert distance(ours, expected) < 0.15
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=0.05)  # a step of a byte, where roundings meet a half


def branching():
    """A product whose weight, and a constant of whose own, the branches of a choice read; names like those of parts."""
    branches = {}
    for branch, sign in (("then_branch", "Add"), ("else_branch", "Sub")):
        nodes = [
            helper.make_node("MatMul", ["h", "w.scale"], ["inner"]),
            helper.make_node(sign, ["inner", "shift"], ["chosen"]),
        ]
        branches[branch] = helper.make_graph(nodes, branch, [], [helper.make_empty_tensor_value_info("chosen")])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["b"], **branches),
        helper.make_node("MatMul", ["b", "w.scale"], ["y"]),
    ]
    arrays = {"w": RNG.standard_normal((32, 32)) / 5, "w.scale": RNG.standard_normal((32, 32)) / 5}
    weights = constants(**arrays, shift=RNG.standard_normal(32), zero=np.zeros(())) | {"axes": np.array([0, 1])}
    return onnx_models.model(nodes, {"x": ("float32", ("n", 32))}, {"y": ("float32", ("n", 32))}, weights)


@pytest.mark.parametrize("calibrated", [False, True])
def test_what_branches_read_stays(calibrated):
    model, x = branching(), RNG.standard_normal((5, 32)).astype(np.float32)
    made, layers = quantize.quantize_model(model, samples=[{"x": x}, {"x": -x}] if calibrated else ())
    onnx.checker.check_model(made, full_check=True)
    assert len(layers) == 2 and not any(layer.kept for layer in layers)
    for feed in (x, -x):
        expected = ReferenceEvaluator(model).run(None, {"x": feed})[0]
        theirs, ours = both(made, {"x": feed})
        assert distance(ours, expected) < 0.05
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=0.05)


def test_costly_layers_stay():
    made, layers = quantize.quantize_model(perceptron(spoiled=True), "int4", 32, max_loss=0.11)
    assert {x.node: x.kept for x in layers} == {"first": False, "middle": True, "last": False}
    assert "b" in {t.name for t in made.graph.initializer}


def test_rare_large_values_are_cut_off():
    seen, x = Observed(), RNG.standard_normal(100_000)
    x[0] = 1000
    seen.widen(x)
    seen.count(x)
    assert quantize.METHODS["minmax"](seen)[1] == 1000
    assert quantize.METHODS["percentile"](seen)[1] < 10 and quantize.METHODS["entropy"](seen)[1] < 100


@pytest.mark.parametrize("count", [300, 3000, 300_000])
@pytest.mark.parametrize("of", [lambda x: x, lambda x: np.maximum(x, 0), np.exp])
def test_entropy_does_not_cut_off_what_few_values_or_many_zeros_hide(of, count):
    draw = np.random.default_rng(1)
    seen, x, others = Observed(), of(draw.standard_normal(count)), of(draw.standard_normal(50_000))
    seen.widen(x)
    seen.count(x)
    lost = {}
    for method, range_of in quantize.METHODS.items():
        step = max(map(abs, range_of(seen))) / 127
        lost[method] = np.square(others - step * np.clip(np.rint(others / step), -128, 127)).mean()
    assert lost["entropy"] < 2 * min(lost.values())


@pytest.mark.parametrize("options", [{"weights": "int5"}, {"method": "mean"}, {"group": 24}])
def test_settings_that_are_refused(options):
    refuses(error.InvalidArgument, "unknown setting", quantize.quantize_model, perceptron(), **options)


def test_old_models_and_those_of_float16_are_refused():
    refuses(error.InvalidArgument, "too old", quantize.quantize_model, perceptron(opset=11))
    model = perceptron()
    for t in model.graph.initializer:
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), t.name))
    refuses(error.InvalidArgument, r"(?s)no layer .*constants of float16", quantize.quantize_model, model)


def scales(path):
    tensors = onnx.load(path).graph.initializer
    return np.concatenate([numpy_helper.to_array(t).reshape(-1) for t in tensors if t.data_type == 1])


def test_command(tmp_path, capsys):
    onnx.save(perceptron(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=RNG.standard_normal((2, 6, 64)).astype(np.float32))
    words = ["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx")]
    assert main([*words, "--weights", "int4"]) == 0
    assert "3 of 3 layers quantised" in capsys.readouterr().out
    assert main([*words, "--calibrate", str(tmp_path / "d.npz")]) == 0
    assert "%" in capsys.readouterr().out and (tmp_path / "q.onnx").stat().st_size < 30_000
    by_samples = scales(tmp_path / "q.onnx")
    with np.load(tmp_path / "d.npz") as data:  # the same rows, each a batch of one
        np.savez(tmp_path / "rows.npz", x=data["x"].reshape(12, 64))
    assert main([*words, "--calibrate", str(tmp_path / "rows.npz")]) == 0
    np.testing.assert_allclose(scales(tmp_path / "q.onnx"), by_samples, rtol=1e-3)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:-30])
    for damaged in ("m.onnx", "cut.npz"):
        assert main([*words, "--calibrate", str(tmp_path / damaged)]) == 1
        assert "is no NumPy file" in capsys.readouterr().err
    assert main(["quantize", str(tmp_path / "d.npz"), "-o", str(tmp_path / "q.onnx")]) == 1
    assert "not a complete ONNX model" in capsys.readouterr().err
