"""Programs for the vectors that a processor has, under emulators of processors with vectors of several lengths.

The server says what its machine has, programs are compiled for that and linked here, and the results are compared with
NumPy's in float64 on shapes that no vector divides.
"""

import math

import numpy as np
import pytest

from tests.devices.test_remote_machines import Running
from weft import error, relax, script
from weft.runtime import tensor
from weft.target import Target

SCALABLE = "rv64,v=true,vext_spec=v1.0,vlen="
# Processors, the emulator's name of what they have, how wide their vectors are, and features that the target names.
FORMS = {
    "x86_64": ("x86_64", "", 0, ""),  # this machine
    "neon": ("aarch64", "max,sve=off", 128, "+neon"),
    "sve128": ("aarch64", "max,sve128=on", 128, "+sve"),
    "sve256": ("aarch64", "max,sve256=on", 256, "+sve"),
    "sve512": ("aarch64", "max,sve512=on", 512, "+sve"),
    "neon of 32 bits": ("armv7", "cortex-a15", 128, "+neon"),
    "rv64gc": ("riscv64", "rv64", 64, "+d"),
    "rvv128": ("riscv64", f"{SCALABLE}128", 128, "+zvl128b"),
    "rvv256": ("riscv64", f"{SCALABLE}256", 256, "+zvl256b"),
    "rvv512": ("riscv64", f"{SCALABLE}512", 512, "+zvl512b"),
}
SOURCE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 5, 9, 7), "float32"), w: R.Tensor((6, 5, 3, 3), "float32"),
             m: R.Tensor((63, 33), "float32"), q: R.Tensor(("n", 37), "int8"), k: R.Tensor((37, 11), "int8")):
        c = R.nn.conv2d(x, w, padding=1)
        f = R.nn.gelu(R.flatten(R.permute_dims(c, [1, 2, 3, 0])))
        p = R.matmul(q, k, out_dtype="int32")
        h = R.astype(R.astype(c, "float16"), "float32")
        return (c, f, h, p, R.nn.softmax(R.matmul(R.reshape(c, (-1, 63)), m)), R.mean(c, axis=[2, 3]),
                R.max(c, axis=[1]), R.cumsum(c, axis=1), R.argmax(p, axis=1), R.tanh(c), R.sigmoid(c),
                R.permute_dims(q))
"""


def expected(x, w, m, q, k):
    """What the program computes, in float64 and integers."""
    padded, n = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1))), len(x)
    c = np.zeros((n, 6, 9, 7))
    for i in range(3):
        for j in range(3):
            c += np.einsum("nchw,oc->nohw", padded[:, :, i : i + 9, j : j + 7], w[:, :, i, j].astype(float))
    flat = c.transpose(1, 2, 3, 0).ravel()
    gelu = np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in flat])
    product = c.reshape(-1, 63) @ m
    rows = np.exp(product - product.max(1, keepdims=True))
    p = q.astype(np.int64) @ k.astype(np.int64)
    half = c.astype(np.float32).astype(np.float16)
    return (
        c,
        gelu,
        half,
        p,
        rows / rows.sum(1, keepdims=True),
        c.mean((2, 3)),
        c.max(1),
        c.cumsum(1),
        p.argmax(1),
        np.tanh(c),
        1 / (1 + np.exp(-c)),
        q.T,
    )


@pytest.mark.parametrize("form", FORMS)
def test_programs_agree_on_vectors_of_every_length(form, tmp_path, monkeypatch):
    processor, emulated, bits, feature = FORMS[form]
    monkeypatch.setenv("QEMU_CPU", emulated)
    server, rng = Running(processor), np.random.default_rng(0)
    with server.connect() as remote:
        target = Target.from_device(remote.cpu())
        assert processor == "x86_64" or target.machine.vector_bits == bits
        assert feature in ["", *str(target).split("-mattr=")[1].split()[0].split(",")]
        relax.build(script.from_source(SOURCE), target).export_library(tmp_path / "program.so")
        remote.upload(tmp_path / "program.so")
        vm = relax.VirtualMachine(remote.load_module("program.so"), remote.cpu())
        w, m = rng.standard_normal((6, 5, 3, 3), np.float32), rng.standard_normal((63, 33), np.float32)
        k = rng.integers(-128, 128, (37, 11)).astype("int8")
        for n in (0, 1, 3, 17):
            x, q = rng.standard_normal((n, 5, 9, 7), np.float32), rng.integers(-128, 128, (n, 37)).astype("int8")
            vm.set_input("main", *(tensor(a, remote.cpu()) for a in (x, w, m, q, k)))
            vm.invoke_stateful("main")
            for i, (f, e) in enumerate(zip(vm.get_outputs("main"), expected(x, w, m, q, k), strict=True)):
                tolerance = 1e-3 if i == 2 else 1e-5
                np.testing.assert_allclose(f.numpy(), e, rtol=tolerance, atol=tolerance, err_msg=f"output {i}")
        assert vm.get_function_param_name("main", 1) == "w"
        with pytest.raises(error.InvalidArgument, match="expected 5 arguments"):
            vm["main"](tensor(w, remote.cpu()))
    server.end()
