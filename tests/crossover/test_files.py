"""Parameter files cross both ways between Weft and Apache TVM."""

import os
import subprocess

import numpy as np
import pytest

from tests.crossover.test_crossover import TVM, needs_tvm
from weft import runtime

PROGRAM = """
import sys
import numpy as np, tvm
from tvm.runtime import load_param_dict, save_param_dict
read, written = sys.argv[1:]
params = load_param_dict(open(read, "rb").read())
changed = {name: tvm.runtime.tensor(value.numpy()[::-1].copy()) for name, value in params.items()}
open(written, "wb").write(save_param_dict(changed))
"""


@needs_tvm
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "float64", "bool", "float16"])
def test_parameters_cross(tmp_path, dtype):
    params = {"w": np.arange(12).reshape(3, 4).astype(dtype), "empty": np.zeros((0, 2), dtype), "v": np.ones(1, dtype)}
    runtime.save_param_dict_to_file(params, tmp_path / "weft")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [TVM, "-c", PROGRAM, str(tmp_path / "weft"), str(tmp_path / "tvm")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = runtime.load_param_dict_from_file(tmp_path / "tvm")
    assert found.keys() == params.keys()
    for name, value in params.items():
        array = found[name].numpy()
        assert (array.dtype, array.tobytes()) == (value.dtype, np.ascontiguousarray(value[::-1]).tobytes())
