"""The pipeline at every stage: its modules print and parse back, and a second run of a pass changes nothing."""

import numpy as np
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.fuzz import graphs
from weft.relax.pipeline import default_passes
from weft.script import from_source

NOT_IDEMPOTENT = {"VMShapeLower"}  # as its docstring says


def convolutions():
    """A residual block with batch normalisation, a pool and a classifier, of any batch and size."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 3, 3, 3), np.float32), "d": rng.standard_normal((8, 4), np.float32)}
    weights |= {n: rng.random(8, np.float32) + 0.5 for n in ("gamma", "beta", "mean", "var")}
    nodes = onnx_models.onnx_nodes("""
        c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w); b = BatchNormalization(c, gamma, beta, mean, var);
        h = HardSwish(b); s = Add(h, b); g = GlobalAveragePool(s); f = Flatten(g); y = MatMul(f, d)""")
    image, out = ("float32", ("batch", 3, "height", "width")), ("float32", ("batch", 4))
    return onnx_models.model(nodes, {"x": image}, {"y": out}, weights)


def branches():
    """An ``If`` whose branches compute with values from outside."""
    row = [helper.make_tensor_value_info("o", 1, None)]
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["o"])], "then", [], row)
    other = helper.make_graph([helper.make_node("Exp", ["x"], ["o"])], "else", [], row)
    nodes = [
        helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    spec = ("float32", ("n", 4))
    return onnx_models.model(nodes, {"x": spec, "p": ("bool", ())}, {"z": spec})


def computed_shapes():
    """A shape that the model computes: ``reshape(x, (shape(x)[0] * 2, -1))``."""
    nodes = onnx_models.onnx_nodes("""
        s = Shape(x); head = Slice(s, zero, one); twice = Mul(head, two); to = Concat <axis = 0> (twice, rest);
        r = Reshape(x, to); y = Softmax <axis = -1> (r)""")
    weights = {n: np.array([v], np.int64) for n, v in (("zero", 0), ("one", 1), ("two", 2), ("rest", -1))}
    return onnx_models.model(nodes, {"x": ("float32", ("n", 4, 6))}, {"y": ("float32", ("rows", "columns"))}, weights)


MODELS = {
    "add": onnx_models.add,
    "empty": lambda: onnx_models.add((0, 4)),
    "scalar": lambda: onnx_models.add(()),
    "linear": lambda: onnx_models.linear()[0],
    "convolutions": convolutions,
    "branches": branches,
    "computed_shapes": computed_shapes,
    **{f"graph {seed}": lambda seed=seed: graphs.Graph(seed, 8).model() for seed in (1001, 1002, 1003, 1007)},
}


def same_functions(a, b):
    return a.functions.keys() == b.functions.keys() and all(a[v] is b[v] for v in a.functions)


@pytest.mark.parametrize("name", MODELS)
def test_every_stage_round_trips(name):
    mod = weft.relax.frontend.onnx.from_onnx(MODELS[name]())
    for step in (None, *default_passes()):
        mod = mod if step is None else step(mod)
        weft.ir.assert_structural_equal(mod, from_source(mod.script(show_meta=True)))


@pytest.mark.parametrize("name", MODELS)
def test_passes_leave_their_own_output_alone(name):
    mod = weft.relax.frontend.onnx.from_onnx(MODELS[name]())
    for step in default_passes():
        mod = step(mod)
        if step.name not in NOT_IDEMPOTENT:
            assert same_functions(step(mod), mod), f"a second {step.name} makes other functions"
