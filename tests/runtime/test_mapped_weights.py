"""Weights of a library are used where the library is mapped: aligned, shared, and safe when the file changes."""

import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from weft import relax, runtime
from weft.runtime import VMExecutable, VMFuncInfo, load_module

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def weights(*constants):
    """A function that copies each constant and returns the first."""
    builder = relax.ExecBuilder()
    with builder.function("main", 0):
        words = [builder.convert_constant(value) for value in constants]
        for word in [*words, words[0]]:
            builder.emit_call("vm.builtin.copy", [word], builder.r(0))
        builder.emit_ret(builder.r(0))
    return builder.get()


def mapped_file(address: int) -> str:
    """Path of the file that is mapped at an address, if one is."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if begin <= address < end:
                return line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
    return ""


def export(tmp_path, *constants):
    path = tmp_path / "model.so"
    weights(*constants).export_library(path)
    return path


def test_large_constants_lie_in_the_mapped_file(tmp_path):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(np.float32) for n in (256, 1000, 7, 12345, 300)]
    path = export(tmp_path, *arrays)
    loaded = VMExecutable(load_module(path))
    tensors = [c for c in loaded.constants if isinstance(c, runtime.Tensor)]
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.data_ptr() % 64 == 0
        assert (mapped_file(tensor.data_ptr()) == str(path)) == (array.nbytes >= 1024)
    np.testing.assert_array_equal(runtime.VirtualMachine(loaded)["main"]().numpy(), arrays[0])


@pytest.mark.parametrize("seed", range(8))
def test_padding_leaves_no_trace(tmp_path, seed):
    rng = np.random.default_rng(seed)
    constants, scopes = [], {}
    for i in range(int(rng.integers(1, 12))):
        kind = rng.integers(5)
        if kind == 0:
            constants.append("weft.pad" + "." * int(rng.integers(4)))  # looks like padding, but is used
        elif kind == 1:
            constants.append(int(rng.integers(1 << 40)))
        else:
            shape = tuple(int(n) for n in rng.integers(1, 40, int(rng.integers(0, 4))))
            constants.append(rng.integers(0, 255, shape).astype(np.uint8))
            if rng.integers(2):
                scopes[i] = "global" * int(rng.integers(1, 3))
    offset, data = [], []
    for i in range(len(constants)):
        offset.append(len(data))
        data += [1, 0, 0, 1, (2 << 56) | i]
    offset.append(len(data))
    data += [2, 0]
    rows = [VMFuncInfo(0, "vm.builtin.copy"), VMFuncInfo(1, "main", 0, len(offset), 0, 1)]
    made = VMExecutable.from_parts(rows, constants, scopes, offset, data)
    path = tmp_path / "model.so"
    made.export_library(path)
    loaded = VMExecutable(load_module(path))
    assert loaded.bytes == made.bytes
    assert loaded.as_text() == made.as_text()
    again = tmp_path / "again.so"
    loaded.export_library(again)
    assert VMExecutable(load_module(again)).bytes == made.bytes


def test_a_constant_outlives_its_library(tmp_path):
    path = export(tmp_path, np.arange(5000, dtype=np.float32))
    loaded = VMExecutable(load_module(path))
    (tensor,) = [c for c in loaded.constants if isinstance(c, runtime.Tensor)]
    view = tensor.numpy()
    machine = runtime.VirtualMachine(loaded)
    result = machine["main"]()
    del loaded, machine, tensor
    gc.collect()
    path.unlink()
    np.testing.assert_array_equal(view, np.arange(5000))
    np.testing.assert_array_equal(result.numpy(), np.arange(5000))
    assert mapped_file(view.__array_interface__["data"][0]).startswith(str(path))
    del view, result
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert str(path) not in maps.read()


def test_export_over_a_library_in_use(tmp_path):
    path = export(tmp_path, np.full(100_000, 1, np.float32))
    machine = runtime.VirtualMachine(load_module(path))
    export(tmp_path, np.full(90_000, 2, np.float32))
    np.testing.assert_array_equal(machine["main"]().numpy(), np.full(100_000, 1))
    np.testing.assert_array_equal(runtime.VirtualMachine(load_module(path))["main"]().numpy(), np.full(90_000, 2))


def test_writing_to_a_constant_stays_in_this_process(tmp_path):
    path = export(tmp_path, np.zeros(10_000, np.float32))
    loaded = VMExecutable(load_module(path))
    (tensor,) = [c for c in loaded.constants if isinstance(c, runtime.Tensor)]
    tensor.copyfrom(np.ones(10_000, np.float32))
    assert tensor.numpy().sum() == 10_000
    load = f"runtime.VirtualMachine(runtime.load_module({str(path)!r}))"
    code = f"from weft import runtime; print({load}['main']().numpy().sum())"
    assert float(subprocess.check_output([sys.executable, "-c", code], timeout=60)) == 0


def test_a_forked_process_uses_the_same_weights(tmp_path):
    machine = runtime.VirtualMachine(load_module(export(tmp_path, np.arange(50_000, dtype=np.float32))))
    child = os.fork()
    if child == 0:
        os._exit(0 if machine["main"]().numpy().sum() == np.arange(50_000, dtype=np.float32).sum() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_memory_grows_when_weights_are_touched_and_is_shared(tmp_path):
    megabytes = 64
    path = export(tmp_path, np.ones(megabytes << 18, np.float32))
    program = textwrap.dedent(f"""
        import numpy as np
        from weft import runtime

        def status(key, file="/proc/self/status"):
            return sum(int(line.split()[1]) for line in open(file) if line.startswith(key)) / 1024

        before = status("VmRSS")
        machine = runtime.VirtualMachine(runtime.load_module({str(path)!r}))
        loaded = status("VmRSS")
        total = float(machine["main"]().numpy().sum(dtype=np.float64))
        assert total == {megabytes << 18}, total
        touched = status("VmRSS")
        own, inside = 0, False
        for line in open("/proc/self/smaps"):
            if "-" in line.split()[0]:
                inside = {str(path)!r} in line
            elif inside and line.startswith("Anonymous:"):
                own += int(line.split()[1]) / 1024
        print(loaded - before, touched - loaded, own)
    """)
    loaded, touched, own = map(float, subprocess.check_output([sys.executable, "-c", program], timeout=60).split())
    assert loaded < 8  # nothing of the weights
    assert touched > megabytes - 8
    assert own < 1  # every page is the file's, which processes share
