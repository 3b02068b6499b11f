"""WEFT_GUARD: kernels that leave their tensors die where they do it, in processes of their own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests import clock
from weft import ffi, relax
from weft.script import tir as T

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import ctypes, sys
import numpy as np
import weft
lib = weft.runtime.load_module({library!r})
count = lambda n: weft.runtime.tensor(np.array([n], "int32"))
x, y = weft.runtime.tensor(np.ones(16, "float32")), weft.runtime.empty((16,), "float32")
"""
AT_64 = "byte 64 of a tensor of 64 bytes"


@T.prim_func
def past(N: T.Buffer((1,), "int32"), A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(N[0]):
        B[i] = T.float32(2)


@T.prim_func
def past_input(N: T.Buffer((1,), "int32"), A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    B[0] = 0
    for i in range(N[0]):
        B[0] = B[0] + A[i]


@T.prim_func
def before(N: T.Buffer((1,), "int32"), A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(N[0]):
        B[i - N[0] // 2] = A[i]


@T.prim_func
def past_scratch(N: T.Buffer((1,), "int32"), A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    W = T.alloc_buffer((65536,), "float32")
    for i in range(N[0]):
        W[i * 4096] = T.float32(2)
    B[0] = W[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    kernels = {f.attrs["global_symbol"]: f for f in (past, past_input, before, past_scratch)}
    path = tmp_path_factory.mktemp("guard") / "wrong.so"
    weft.build(weft.IRModule(kernels), target="llvm").export_library(path)
    return path


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def model(request, tmp_path_factory):
    """Programs in whose middle a kernel uses `n` elements of tensors of 16."""
    bb = relax.BlockBuilder()
    vector = relax.TensorType((16,), "float32")
    for kernel in (past, past_input):
        x, n = relax.Var("x", vector), relax.Var("n", relax.TensorType((1,), "int32"))
        name = kernel.attrs["global_symbol"]
        with bb.function(f"main_{name}", [n, x]), bb.dataflow():
            y = bb.emit(relax.call_tir(bb.add_func(kernel, name), (n, x), vector))
            z = bb.emit(relax.op.exp(bb.emit(relax.op.reshape(y, (4, 4)))))
            bb.emit_func_output(bb.emit_output(bb.emit(relax.op.exp(z))))
    path = tmp_path_factory.mktemp("guard") / "model.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_GUARD", "1")  # functions that are compiled have an arena without it
        relax.build(bb.get(), "llvm", exec_mode=request.param).export_library(path)
    return path


def run(guard: str, library: Path, program: str) -> tuple[int, str]:
    """What a child that runs a program ends with, and says."""
    code = CHILD.format(library=str(library)) + program
    environment = {**os.environ, "WEFT_GUARD": guard, "PYTHONPATH": str(ROOT)}
    done = clock.run([sys.executable, "-c", code], env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("guard", "program", "message"),
    [
        ("1", "lib['past'](count(16 + at), x, y)", f"write to {AT_64}"),
        ("1", "lib['past_input'](count(16 + at), x, y)", f"read of {AT_64}"),
        ("start", "lib['before'](count(2 * at), x, y)", "write to byte -4 of a tensor of 64 bytes"),
        ("1", "lib['past_scratch'](count(16 + at), x, x)", "write to byte 262144 of a workspace of 262144 bytes"),
    ],
)
def test_an_access_outside_of_a_tensor_ends_the_process(library, guard, program, message):
    status, output = run(guard, library, f"for at in 0, 1:\n    {program}\n    print('done', at, flush=True)")
    assert status == -signal.SIGSEGV, output
    assert output.startswith(f"done 0\nguard: {message}, outside of it")


def test_without_the_mode_nobody_notices(library):
    assert run("0", library, "lib['past'](count(17), x, y)") == (0, "")


def test_a_write_between_a_tensor_and_its_page_is_found(library):
    program = "y = weft.runtime.empty((15,), 'float32'); ctypes.memset(y.data_ptr() + {}, 1, 1); del y"
    for guard in ("1", "start"):
        status, output = run(guard, library, program.format(60))
        assert status == -signal.SIGABRT, output
        assert "byte 60 of a tensor of 60 bytes, outside of it, was written" in output
        assert run(guard, library, program.format(59)) == (0, "")
    assert run("1", library, program.format(60).replace("del y", ""))[0] == -signal.SIGABRT  # seen at the end, too


def test_what_was_freed_cannot_be_read(library):
    status, output = run("1", library, "p = y.data_ptr(); del y; ctypes.string_at(p, 1)")
    assert status == -signal.SIGSEGV
    assert "byte 0 of a tensor of 64 bytes, after it was freed" in output


def test_fresh_memory_is_no_number(library):
    program = "lib['past'](count(15), x, y); print(np.isnan(y.numpy()).nonzero()[0].tolist())\n"
    program += "for t in 'float64', 'float16', 'bfloat16': assert np.isnan(weft.runtime.empty((9,), t).numpy()).all()"
    for guard in ("1", "start"):
        status, output = run(guard, library, program)  # NumPy may say that it met signalling NaNs
        assert status == 0, output
        assert output.startswith("[15]\n")


@pytest.mark.parametrize(
    ("call", "first", "access", "kernel"),
    [
        ("print(vm['main_past'](count(n), x).numpy()[0, 0] > 1000, flush=True)", "True\n", "write to", "past"),
        ("vm['main_past_input'](count(n), np.ones(16, 'float32'))", "", "read of", "past_input"),
    ],
    ids=["planned", "from elsewhere"],
)
def test_tensors_of_a_machine_are_guarded(model, call, first, access, kernel):
    program = f"vm = weft.runtime.VirtualMachine(lib, weft.cpu())\nfor n in 16, 17: {call}"
    status, output = run("1", model, program)
    assert status == -signal.SIGSEGV, output
    assert re.match(f"{first}guard: {access} {AT_64}, outside of it; running: (main_)?{kernel}\n", output), output
    assert run("0", model, program) == (0, first * 2)


GRAPH = """
from weft.runtime import graph_executor
attrs = {"func_name": "past", "num_inputs": "2", "num_outputs": "1", "flatten_data": "0"}
nodes = [{"op": "null", "name": n, "inputs": []} for n in ("n", "x", "large")]
nodes.append({"op": "tvm_op", "name": "y", "attrs": attrs, "inputs": [[0, 0, 0], [1, 0, 0]]})
g = {"nodes": nodes, "arg_nodes": [0, 1, 2], "heads": [[3, 0, 0]], "node_row_ptr": [0, 1, 2, 3, 4], "attrs": {
    "dltype": ["list_str", ["int32", "float32", "float32", "float32"]], "storage_id": ["list_int", [0, 1, 2, 2]],
    "shape": ["list_shape", [[1], [16], [64], [16]]]}}
m = graph_executor.create(g, lib, weft.cpu())
for n in 16, 17:
    m.run(n=count(n), x=x)
    print(m.get_output(0).numpy()[0], flush=True)
"""


def test_a_tensor_that_shares_storage_in_a_graph_is_guarded(library):
    assert run("0", library, GRAPH) == (0, "2.0\n2.0\n")
    status, output = run("1", library, GRAPH)
    assert status == -signal.SIGSEGV, output
    assert output.startswith(f"2.0\nguard: write to {AT_64}, outside of it; running: past\n")


def test_a_wrong_value_is_refused(library):
    status, output = run("yes", library, "")
    assert status == 1 and re.search("variable WEFT_GUARD has .*\n  expected 0, 1, start, found 'yes'", output), output


def test_a_program_without_python_is_refused_a_wrong_value():
    code = f"import tvm_ffi, ctypes; ctypes.CDLL({str(ffi.find_library())!r})"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "WEFT_GUARD": "yes"}, capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"weft: WEFT_GUARD: expected 0, 1 or start, found 'yes'\n")


@pytest.mark.parametrize("guard", ["1", "start"])
def test_the_promises_of_the_readme_hold(guard):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_tiny.py"]
    environment = {**os.environ, "WEFT_GUARD": guard, "PYTHONPATH": str(ROOT)}
    done = clock.run(command, 300, ROOT, environment)
    assert done.returncode == 0, done.stdout
