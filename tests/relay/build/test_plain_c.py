"""Models as plain C: compiled by a C compiler alone, they answer as the virtual machine does."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import weft
from tests import onnx_models
from tests.refusals import refuses
from weft import error, relay
from weft.cli import main
from weft.script import from_source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

PROGRAMS = {
    "convolutions, a weight, and a result that another reads": (
        {"x": ((1, 3, 9, 11), "float32"), "w": ((5, 3, 3, 3), "float32")},
        """
        a = R.nn.relu(R.nn.conv2d(x, w, padding=1))
        b = R.nn.softmax(a, axis=1)
        c = R.reshape(b, (5, 99))
        d = R.sum(c, axis=[1])
        return (c, d)""",
    ),
    "results that are inputs, views and the same": (
        {"x": ((3, 5), "float32"), "w": ((5,), "float32")},
        """
        a = R.add(x, w)
        return (x, a, R.reshape(a, (15,)), a, w)""",
    ),
    "narrow integers and truth": (
        {"x": ((7,), "int8"), "w": ((7,), "int8")},
        """
        a = R.less(x, w)
        b = R.astype(R.where(a, x, w), "int32")
        return (a, b)""",
    ),
    "nothing": ({"x": ((0, 4), "float32"), "w": ((4,), "float32")}, "\n        return R.multiply(x, w)"),
    "one number": ({"x": ((), "float64"), "w": ((), "float64")}, "\n        return R.exp(R.subtract(x, w))"),
}


def made(types, body, rng):
    """The module, and arrays for its parameters; the last is a weight."""
    params = ", ".join(f'{n}: R.Tensor({shape}, "{dtype}")' for n, (shape, dtype) in types.items())
    text = f"@R.function\ndef main({params}):\n" + body.replace("\n        ", "\n    ")
    arrays = {n: np.asarray(rng.integers(-9, 9, s) if d.startswith("int") else rng.standard_normal(s)).astype(d)
              for n, (s, d) in types.items()}
    bound = weft.relax.transform.BindParams("main", {"w": arrays["w"]})
    return bound(weft.IRModule.from_expr(from_source(text))), arrays["x"]


def compiled(model, folder, name):
    """The C function, from a library that only a C compiler made."""
    model.write(folder / f"{name}.c")
    command = ["cc", "-std=gnu99", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-fwrapv",
               "-fPIC", "-shared", "-o", f"{name}.so", f"{name}.c", "-lm", "-Wl,-z,defs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return getattr(ctypes.CDLL(str(folder / f"{name}.so")), name)


def flat(value):
    return [v.numpy() for v in value] if isinstance(value, (tuple, list)) or hasattr(value, "__len__") and not hasattr(
        value, "numpy") else [value.numpy()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_c_answers_as_the_machine(program, tmp_path):
    mod, x = made(*PROGRAMS[program], np.random.default_rng(3))
    expected = flat(weft.relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"](x))
    model = relay.plain_c(mod, "net")
    function = compiled(model, tmp_path, "net")
    n_bytes = int(model.header.split("NET_WORKSPACE_BYTES ")[1].split()[0])
    workspace = np.full(n_bytes + 128, 255, np.uint8)
    at = -(-workspace.ctypes.data // 64) * 64
    for memory in (None, ctypes.c_void_p(at)):
        outputs = [np.full(y.shape, 1, y.dtype) for y in expected]
        rc = function(memory, *(ctypes.c_void_p(a.ctypes.data) for a in (x, *outputs)))
        assert rc == 0
        for found, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert (workspace[at - workspace.ctypes.data + n_bytes :] == 255).all(), "the workspace is as large as it says"


def test_relay_programs_become_c(tmp_path):
    x = relay.var("class", shape=(2, 3), dtype="float32")  # a name that C does not take
    model = relay.plain_c(weft.IRModule.from_expr(relay.Function([x], relay.tanh(x))), "net")
    assert "const float* class_1x" in model.header
    value, out = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3), np.zeros((2, 3), "float32")
    compiled(model, tmp_path, "net")(None, *(ctypes.c_void_p(a.ctypes.data) for a in (value, out)))
    np.testing.assert_allclose(out, np.tanh(value), rtol=1e-5)


HOST = """
#include <stdio.h>
#include "linear.h"
int main(void) {
  float x[16], y[10];
  for (int i = 0; i < 16; ++i) x[i] = (float)i / 8;
  if (linear(0, x, y)) return 1;
  for (int i = 0; i < 10; ++i) printf("%.5f ", y[i]);
}
"""


def test_command_line_writes_c_that_needs_libc_alone(tmp_path, capsys):
    proto, w, b = onnx_models.linear()
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    arguments = ["compile", str(tmp_path / "m.onnx"), "--target", "c", "-o", str(tmp_path / "linear.c")]
    assert main(arguments) == 1
    assert "tensors of constant shapes only" in capsys.readouterr().err
    assert main([*arguments, "--shape", "x=2,8"]) == 0
    (tmp_path / "host.c").write_text(HOST)
    command = ["cc", "-O1", "-static", "-w", "host.c", "linear.c", "-o", "host", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "host"], capture_output=True, text=True, check=True).stdout
    x = (np.arange(16, dtype="float32") / 8).reshape(2, 8)
    np.testing.assert_allclose(np.array(printed.split(), float).reshape(2, 5), np.maximum(x @ w + b, 0), atol=1e-4)


def test_what_c_cannot_say_is_refused():
    mod, _ = made(*PROGRAMS["one number"], np.random.default_rng(0))
    refuses(error.InvalidArgument, "a function of C", relay.plain_c, mod, "my-net")
    half, _ = made({"x": ((3, 7), "float16"), "w": ((7, 2), "float16")}, "\n        return R.matmul(x, w)",
                   np.random.default_rng(0))
    refuses(error.CodegenError, "no code for 'float16'", relay.plain_c, half)
    text = '@R.function\ndef main(x: R.Tensor(("n",), "float32")):\n    return R.add(x, x)\n'
    refuses(error.LoweringError, "constant shapes", relay.plain_c, weft.IRModule.from_expr(from_source(text)))
