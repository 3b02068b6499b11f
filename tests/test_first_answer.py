"""A session whose model no cache has answers before it is compiled, and goes over to the compiled model."""

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from onnx import helper

from tests import onnx_models

_START = """
import json, os, sys, threading
import numpy as np
import weft
from weft import model_cache
from weft.error import WeftError

release = threading.Event()  # the compiled model is held back until the test has seen what is there without
apart = model_cache.compile_apart
model_cache.compile_apart = lambda *given: release.wait(60) and apart(*given)
x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
session = weft.Session(sys.argv[1])
said = {}
"""
_END = "\nrelease.set()\nprint(json.dumps(said))\n"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    proto, w, b = onnx_models.linear()
    path.write_bytes(proto.SerializeToString())
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    return path, np.maximum(x.astype("float64") @ w + b, 0)


def said_by(path, program) -> dict:
    """What a program says whose session is of a model that has to be compiled."""
    env = {**os.environ, "WEFT_MODEL_CACHE": "1", "WEFT_CACHE_DIR": str(path.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _START + program + _END, str(path)], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def run(model):
    return partial(said_by, model[0])


def test_it_answers_and_then_runs_the_compiled_model(model, run):
    said = run("""
said["first"] = session.run({"x": x})[0].numpy().tolist()
said["names"] = [tuple(i) for i in session.inputs]
said["before"] = session.is_compiled
release.set()
while not session.is_compiled:  # calls go on while the model is exchanged
    during = session.run({"x": x})[0].numpy()
said["during"] = during.tolist()
said["after"] = session.run({"x": x})[0].numpy().tolist()
said["outputs"] = [tuple(o) for o in session.outputs]
session.wait()
said["compiler"] = "weft.relax.vm_build" in sys.modules
""")
    for when in ("first", "during", "after"):
        np.testing.assert_allclose(said[when], model[1], rtol=1e-5, atol=1e-6)
    assert said["names"] == [["x", "float32", ["rows", 8]]]
    assert said["outputs"] == [["y", "float32", ["rows", 5]]]
    assert (said["before"], said["compiler"]) == (False, False)


def test_a_process_that_ends_after_its_first_answer_leaves_the_model_in_the_cache(model, run):
    said = run("""
said["first"] = session.run({"x": x})[0].numpy().tolist()
threading.Timer(0.5, release.set).start()
print(json.dumps(said))
sys.stdout.flush()
del session, release
if True:
    raise SystemExit
""")
    np.testing.assert_allclose(said["first"], model[1], rtol=1e-5, atol=1e-6)
    assert run('said["compiled"] = session.is_compiled') == {"compiled": True}


def test_inputs_are_checked_before_it_is_compiled(run):
    said = run("""
for name, feeds in {"missing": {}, "dtype": {"x": x.astype("float64")}, "shape": {"x": x[:, :7]}}.items():
    try:
        session.run(feeds)
    except WeftError as e:
        said[name] = f"{type(e).__name__}: {e}"
tensors = session.run({"x": weft.runtime.tensor(x)})[0].numpy()
lists = session.run({"x": np.asfortranarray(x)})[0].numpy()
said["same"] = bool(np.array_equal(tensors, lists)) and not session.is_compiled
""")
    assert said["missing"].startswith("InvalidArgument: wrong inputs")
    assert said["dtype"].startswith("DTypeMismatch: input 'x'")
    assert said["shape"].startswith("ShapeMismatch: input 'x' has a wrong dimension 1")
    assert said["same"]


def test_outputs_are_fresh_and_by_name(tmp_path):
    path = tmp_path / "m.onnx"
    spec = ("float32", ("n", 8))
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Neg", ["x"], ["less"])]
    path.write_bytes(onnx_models.model(nodes, {"x": spec}, {"same": spec, "less": spec}).SerializeToString())
    said = said_by(
        path,
        """
same = session.run({"x": x})[0]
before = x.copy()
x[:] = 7
said["fresh"] = bool(np.array_equal(same.numpy(), before)) and not session.is_compiled
release.set()
said["less"] = session.run(["less"], {"x": x})[0].numpy().tolist()
""",
    )
    assert said["fresh"]
    assert said["less"] == [[-7.0] * 8] * 3


def test_what_the_first_program_does_not_take_waits_for_the_compiled_one(run):
    said = run("""
threading.Timer(0.2, release.set).start()
said["shape"] = list(session.run({"x": x[:0]})[0].shape)  # empty tensors are not for it
said["compiled"] = session.is_compiled
""")
    assert said == {"shape": [0, 5], "compiled": True}


def test_a_model_that_cannot_be_compiled_says_so(run):
    said = run("""
def fail(*_):
    raise WeftError("no")
weft.session._compiled = fail
other = weft.Session(sys.argv[1])
for name, ask in {"wait": other.wait, "run": lambda: other.run({"x": x}), "outputs": lambda: other.outputs}.items():
    try:
        ask()
    except WeftError as e:
        said[name] = str(e)
""")
    assert said == {"wait": "no", "run": "no", "outputs": "no"}


def test_it_can_be_switched_off(model):
    """Then making the session waits; nothing but the cache's own process compiles."""
    program = _START.replace("release.wait(60) and ", "") + 'said["first"] = not session.is_compiled' + _END
    for switch, first in (("1", True), ("0", False)):
        cache = str(model[0].parent / f"cache{switch}")
        env = {**os.environ, "WEFT_MODEL_CACHE": "1", "WEFT_CACHE_DIR": cache, "WEFT_FIRST_ANSWER": switch}
        done = subprocess.run([sys.executable, "-c", program, str(model[0])], capture_output=True, env=env, check=True)
        assert json.loads(done.stdout) == {"first": first}
