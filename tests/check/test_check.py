"""``weft check``: a sound model passes; what is made wrong on purpose is named."""

import sys

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests import onnx_models
from weft.check import Tolerance, compare
from weft.cli import main
from weft.ir import FloatImm, Function, module_pass, rewrite
from weft.relax import SeqExpr
from weft.relax.op import multiply
from weft.relax.rewriter import rewrite_bindings

SCHEDULE_TIR = sys.modules["weft.relax.transform.schedule_tir"]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """What is wrong on purpose is found by nobody else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="mm"),
        helper.make_node("Add", ["a", "b"], ["c"], name="bias"),
        helper.make_node("Relu", ["c"], ["d"], name="act"),
        helper.make_node("Mul", ["d", "half"], ["e"], name="half"),
        helper.make_node("Concat", ["e", "c"], ["f"], name="cat", axis=1),
        helper.make_node("Softmax", ["f"], ["y"], name="prob", axis=1),
    ]
    weights = {
        "w": rng.standard_normal((16, 8), np.float32),
        "b": rng.standard_normal(8, np.float32),
        "half": np.float32(0.5),
    }
    made = onnx_models.model(nodes, {"x": ("float32", ("n", 16))}, {"y": ("float32", ("n", 16))}, weights)
    path = tmp_path_factory.mktemp("check") / "net.onnx"
    onnx.save(made, path)
    return path


def check(model, capsys, *options):
    code = main(["check", str(model), "--input", "x=3,16", *options])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_sound_model_agrees_everywhere(model, capsys):
    code, out, err = check(model, capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "nodes: 6 as ONNX has it" and lines[-2:] == ["compiled model: 1 as imported", "nothing differs"]
    assert int(lines[1].split()[5]) >= 8 and lines[1].endswith("as imported"), "passes"
    assert int(lines[2].split()[1]) >= 2 and lines[2].endswith("as their loops"), "kernels"
    assert len(lines) == 5, "nothing is left out"


def doubling(name, at):
    """A pass that doubles the results of an operator."""

    @module_pass(name=name)
    def wrong(mod):
        def rule(binding, value, bb):
            if getattr(getattr(value, "op", None), "name", "") == at:
                return multiply(bb.emit(value), weft.relax.const(np.float32(2)))
            return None

        return mod.with_functions(
            {v: rewrite_bindings(f, mod, rule) if isinstance(f, Function) else f for v, f in mod.items()}
        )

    return wrong


@pytest.mark.parametrize("options", [(), ("--each",)])
def test_a_wrong_pass_is_named_with_the_value_that_it_made_wrong(model, capsys, monkeypatch, options):
    monkeypatch.setattr(weft.relax.transform, "widen_conv1d", doubling("WrongOnPurpose", "relax.nn.relu"))
    code, out, err = check(model, capsys, *options)
    assert code == 1
    assert "pass WrongOnPurpose is wrong\n  output 'y': largest error" in err
    assert "the program before it, of" in err and 'ONNX node 2 "act" (Relu)' in err and "of (3, 16) float32" in err
    assert f"WEFT_DUMP_DIR=dump weft compile {model}" in err and "dump/0001-net/" in err and "-WrongOnPurpose.py" in err
    assert "nodes: 6 as ONNX has it\n" in out and "1 different" in out and "kernel" not in err


def test_a_pass_that_breaks_the_form_of_the_program_is_named(model, capsys, monkeypatch):
    """A function that loses a binding that others use."""

    @module_pass(name="LosesAValue")
    def wrong(mod):
        func = mod["main"]
        block, *rest = func.body.blocks
        shorter = SeqExpr((type(block)(block.bindings[1:]), *rest), func.body.body, ty=func.body.ty)
        return mod.with_functions({**dict(mod.items()), mod.get_global_var("main"): func.replace(body=shorter)})

    monkeypatch.setattr(weft.relax.transform, "kill_after_last_use", wrong)
    code, out, err = check(model, capsys)
    assert code == 1 and err.startswith("error: pass LosesAValue is wrong\n  the program: ")
    assert "is not bound" in err and "passes that changed the program: " in out and "kernels" not in out


@pytest.mark.parametrize("options", [(), ("--each",)])
def test_a_wrong_schedule_is_named_by_its_kernel_and_nodes(model, capsys, monkeypatch, options):
    sound = SCHEDULE_TIR.default_schedule

    def rule(func, target):
        made = sound(func, target)
        if "softmax" in func.attrs["global_symbol"]:
            return made
        half = lambda e: FloatImm(e.dtype, 0.25) if isinstance(e, FloatImm) and e.value == 0.5 else None  # noqa: E731
        return rewrite(made, half)

    monkeypatch.setattr(SCHEDULE_TIR, "default_schedule", rule)
    code, _, err = check(model, capsys, *options)
    assert code == 1
    assert err.startswith("error: kernel fused_relu_multiply_kernel is wrong\n  argument '") and "largest error" in err
    assert 'computes ONNX node 2 "act" (Relu), ONNX node 3 "half" (Mul)\n' in err and "pass " not in err
    assert "dump/0001-net/kernels/fused_relu_multiply_kernel/" in err


def test_a_wrong_conversion_is_named_by_its_node_and_value(model, capsys, monkeypatch):
    converters = weft.frontend.onnx.registry._CONVERTERS
    monkeypatch.setitem(converters, ("", "Relu"), converters["", "Identity"])
    code, out, err = check(model, capsys)
    assert code == 1
    assert "node ONNX node 2 \"act\" (Relu) is wrong\n  output 'd': largest error" in err
    assert "nodes: 2 as ONNX has it, 1 different" in out


def test_a_wrong_machine_is_what_is_left(model, capsys, monkeypatch):
    class Wrong(weft.Session):
        def run(self, *arguments):
            return [weft.runtime.tensor(t.numpy() + 1) for t in super().run(*arguments)]

    monkeypatch.setattr("weft.check.model.Session", Wrong)
    code, _, err = check(model, capsys)
    assert code == 1 and "executable net.onnx is wrong" in err and "every kernel is right" in err


def test_inputs_are_shapes_or_values_and_are_checked(model, capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 16), np.float32))
    code = main(["check", str(model), "--input", f"x=@{tmp_path / 'x.npy'}", "--input", "z=1,2"])
    assert code == 0, "a shape for what the model has not"
    code = main(["check", str(model), "--input", "x=3,16", "--input", "z=[1]"])
    assert code == 1 and "wrong inputs\n  expected x, found z" in capsys.readouterr().err
    assert main(["check", str(model), "--input", "x=3"]) == 1
    assert "error: input 'x' is given a wrong rank\n  expected ['n', 16], found [3]" in capsys.readouterr().err


def test_what_cannot_run_here_is_no_wrong_model(model, capsys):
    code, _, err = check(model, capsys, "--target", "cuda")
    assert code == 1 and "models are checked on the processor here\n  found target cuda" in err and "wrong" not in err


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (np.ones((2, 2), "f4"), np.ones(4, "f4"), "expected (4,) float32, found (2, 2) float32"),
        (np.ones(2, "f4"), np.ones(2, "f8"), "found (2,) float32"),
        (np.array([1, 2.1, 3], "f4"), np.array([1, 2, 3], "f4"), "largest error 0.1 at [1]: expected 2, found 2.1"),
        (np.array([np.nan, 2], "f4"), np.array([1, 2], "f4"), "largest error inf at [0]"),
        (np.array([1, 2]), np.array([1, 3]), "largest error 1 at [1]: expected 3, found 2; 1 of 2 elements"),
        (np.array([True, False]), np.array([True, True]), "1 of 2"),
    ],
)
def test_differences_are_told(found, expected, words):
    assert words in str(compare(found, expected, Tolerance()))


def test_rounding_is_no_difference():
    x = np.random.default_rng(0).standard_normal(100)
    assert compare((x * (1 + 1e-5)).astype("f4"), x.astype("f4"), Tolerance()) is None
    assert compare((x * 1.001).astype("f2"), x.astype("f2"), Tolerance()) is None
    infinite = np.array([np.inf, np.nan, -np.inf], "f4")
    assert compare(infinite.copy(), infinite, Tolerance()) is None
