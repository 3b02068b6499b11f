import subprocess

import numpy as np
import pytest

from tests.runtime.programs import linked
from weft import relay


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return linked("deploy_graph.cc", tmp_path_factory.mktemp("deploy") / "deploy_graph")


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_built_models_run_without_python(program, tmp_path, executor):
    """A C++ program links the runtime and runs what relay.build exported; no Python is in the process."""
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    func = relay.Function([x, w], relay.nn.relu(relay.nn.dense(relay.nn.relu(x), w)) + relay.const(1.0))
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    library = relay.build(func, params={"w": weight}, executor=executor).export_library(tmp_path / "m.so")
    out = subprocess.run([str(program), library], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    lines = out.stdout.splitlines()
    total = (np.arange(6, dtype=np.float32).reshape(2, 3) @ weight.T + 1).sum()
    assert lines[0] == f"2 x 4 sum {total:g}"
    assert lines[1] == "InvalidArgument: set_input 'x': expected float32[2, 3], found float32[3, 3]"
