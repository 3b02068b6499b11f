"""Building for CUDA and launching, against the stand-in for the driver."""

import re
from pathlib import Path

import pytest

from tests.texts import named

HEAD = """
from tests.target import programs
def fadd(n=None, target="cuda -arch=sm_90"):
    return programs.fadd(target, n)
rng = np.random.default_rng(0)
"""

PROGRAMS = named("""
# fadd
f = fadd()
for n in (1, 63, 64, 1000, 0):
    x, y = rng.random((2, n), "float32")
    a, b, c = put(x, y, np.zeros(n, "float32"))
    f(a, b, c)
    dev.sync()
    np.testing.assert_array_equal(c.numpy(), x + y)
calls = log()
assert calls.count("load") == 1, calls
launches = [c for c in calls if c.startswith("launch")]
assert launches == ["launch:%d,1,1:64,1,1:0:0" % g for g in (1, 1, 1, 16)], launches
# arguments are checked
f = fadd()
x = np.zeros(8, "float32")
a, b, c = put(x, x, x)
with pytest.raises(ValueError, match=r"(?s)B.device_type on argument #1 .*fadd.*expected cuda, found cpu"):
    f(a, rt.tensor(x), c)
with pytest.raises(ValueError, match=r"(?s)C.device_id on argument #2 .*expected 0 .*an earlier.*found 1"):
    f(a, b, rt.tensor(x, device=rt.cuda(1)))
with pytest.raises(ValueError, match=r"(?s)B.shape\\[0\\] on argument #1 .*expected to match A.shape\\[0\\] == 8"):
    f(a, rt.tensor(np.zeros(9, "float32"), device=dev), c)
assert not [c for c in log() if c.startswith("launch")]
# each device loads the code and kernels run on the current stream
f = fadd(100)
x = rng.random(100, "float32")
for device in (rt.cuda(1), rt.cuda(0), rt.cuda(1)):
    a, b, c = (rt.tensor(v, device=device) for v in (x, x, x * 0))
    f(a, b, c)
    np.testing.assert_array_equal(c.numpy(), x + x)
s = dev.create_raw_stream()
dev.set_raw_stream(s)
f(*put(x, x, x))
dev.sync(s)
dev.sync_stream_from_to(s, 0)
dev.free_raw_stream(s)
f(*put(x, x, x))
del f
calls = [c for c in log() if c.startswith(("load", "unload", "launch", "event", "record", "await", "unevent"))]
shape = ":2,1,1:64,1,1:0:"
assert calls == ["load", "launch" + shape + "1", "load", "launch" + shape + "0", "launch" + shape + "1",
                 "launch@stream" + shape + "0", "event", "record@stream", "await", "unevent", "launch" + shape + "0",
                 "unload", "unload"], calls
# kernels pass workspaces of the device
f = weft.build(*programs.rows_by_their_sums(), "cuda", name="share")
assert f.imported_modules[0].function_names() == ["share_kernel", "share_kernel_1"]
for n in (5, 100, 5, 99):
    x = rng.random((n, 8), "float32")
    a, c = put(x, x * 0)
    before = log().count("alloc")
    f(a, c)
    np.testing.assert_allclose(c.numpy(), x / x.sum(1, keepdims=True), rtol=1e-5)
assert log().count("alloc") == before, "the last call reuses the workspace of the second"
# timing is by events
x = np.ones(8, "float32")
result = fadd().time_evaluator("fadd", dev, number=4, repeat=3)(*put(x, x, x))
assert [round(r, 6) for r in result.results] == [0.00025] * 3, result.results  # a record is a millisecond there
calls = log()
assert calls.count("timing-event") == calls.count("unevent") == 2
assert len([c for c in calls if c.startswith("launch")]) == 13
# launches that fail
weft.register_global_func("tvm_callback_cuda_compile", lambda text, target: b"no image", override=True)
a, b, c = put(*np.zeros((3, 8), "float32"))
with pytest.raises(RuntimeError, match=r"cuda:0 \\(compute capability 9.0\\) cannot load .*fadd_kernel.*"
                                       r"no kernel image.*expected code for sm_90: build with .*-arch=sm_90"):
    fadd()(a, b, c)
weft.register_global_func("tvm_callback_cuda_compile", lambda text, target: host_compile(text), override=True)
kernel = fadd().imported_modules[0]["fadd_kernel"]
kernel(c, a, b, 8, 1, 64)
with pytest.raises(RuntimeError, match=r"cannot launch fadd_kernel .*\\(1, 1, 1\\) blocks of \\(2048, 1, 1\\)"):
    kernel(c, a, b, 8, 1, 2048)
with pytest.raises(TypeError, match="expected 4 arguments and 2 launch parameters, found 5"):
    kernel(c, a, b, 8, 1)
with pytest.raises(TypeError, match="fadd_kernel: argument 3: expected an int, found .*float"):
    kernel(c, a, b, 8.5, 1, 64)
with pytest.raises(TypeError, match="fadd_kernel: argument 0: expected a pointer or a tensor"):
    kernel(1, a, b, 8, 1, 64)
with pytest.raises(RuntimeError, match="out of range"):
    kernel(c, a, b, 8, 1 << 40, 64)
# without nvrtc llvm makes the code
os.environ["WEFT_NVRTC"] = "/nowhere/libnvrtc.so"
weft.register_global_func("tvm_callback_cuda_compile", lambda text, target: 1 / 0, override=True)
from weft.ffi import remove_global_func
remove_global_func("tvm_callback_cuda_compile")
for target in ("cuda -arch=sm_80", "cuda"):
    code = fadd(target=target).imported_modules[0]
    assert "__global__" in code.get_source("cuda")
    assert re.search(r"\\.entry fadd_kernel\\(", code.get_source("ptx"))
    assert ".target " + ("sm_80" if "arch" in target else "sm_90") in code.get_source("ptx")  # the stand-in's is 9.0
a, b, c = put(*np.ones((3, 8), "float32"))
with pytest.raises(RuntimeError, match="cannot load the ptx code"):
    fadd()(a, b, c)
# hooks see the text
weft.register_global_func("tvm_callback_cuda_postproc", lambda text, target: "// " + str(target) + "\\n" + text)
text = fadd().imported_modules[0].get_source()
assert text.startswith("// cuda -arch=sm_90\\n")
""")


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(text, program):
    program(text)


def test_a_host_in_c(program, tmp_path):
    program(f"""
f = fadd(target=weft.target.Target("cuda -arch=sm_90", host="c"))
path = {str(tmp_path / "f.so")!r}
f.export_library(path)
for module in (f, rt.load_module(path)):
    x, y = rng.random((2, 100), "float32")
    a, b, c = put(x, y, x * 0)
    module["fadd"](a, b, c)
    np.testing.assert_array_equal(c.numpy(), x + y)
    with pytest.raises(ValueError, match=r"(?s)B.device_type on argument #1 .*expected cuda, found cpu"):
        module["fadd"](a, rt.tensor(y), c)
    with pytest.raises(ValueError, match=r"(?s)device_id .* earlier arguments\\) on argument #2 .*expected 0, found 1"):
        module["fadd"](a, b, rt.tensor(x, device=rt.cuda(1)))
assert "weft_call(" in f.get_source("c")
""")


def test_a_library_has_its_kernels_inside(program, tmp_path):
    program(f"""
f = fadd()
path = {str(tmp_path / "f.so")!r}
f.export_library(path)
x, y = rng.random((2, 70), "float32")
again, twice = rt.load_module(path), rt.load_module(path)
assert again.kind == "library" and [m.kind for m in again.imported_modules] == ["cuda"]
for module in (f, again, twice):
    a, b, c = put(x, y, x * 0)
    module["fadd"](a, b, c)
    np.testing.assert_array_equal(c.numpy(), x + y)
del twice, module
a, b, c = put(x, y, x * 0)
again["fadd"](a, b, c)
np.testing.assert_array_equal(c.numpy(), x + y)
with pytest.raises(ValueError, match="no source"):
    again.get_source()
""")


def test_a_library_needs_no_compiler_to_load(program, tmp_path):
    path = tmp_path / "f.so"
    client = """
import sys
import numpy as np
import weft.runtime as rt
x = np.arange(70, dtype="float32")
a, b, c = (rt.tensor(v, device=rt.cuda(0)) for v in (x, x, x * 0))
rt.load_module(sys.argv[1])["fadd"](a, b, c)
np.testing.assert_array_equal(c.numpy(), x + x)
assert not any(m in sys.modules for m in ("llvmlite", "weft.tir", "weft.target"))
"""
    program(f"""
import subprocess, sys
for options in ({{}}, {{"container": True}}):
    fadd().export_library({str(path)!r}, **options)
    program = {client!r}
    if options:  # a container's code is placed by the just-in-time linker
        program = program.replace("import sys", "import sys, weft.target").rsplit("assert", 1)[0]
    subprocess.run([sys.executable, "-c", program, {str(path)!r}], check=True)
""")


def test_without_a_driver(program):
    text = """
kernel = fadd().imported_modules[0]["fadd_kernel"]
with pytest.raises(RuntimeError, match="no CUDA driver.*WEFT_CUDA_DRIVER"):
    kernel(None, None, None, 8, 1, 64)
"""
    program(text, "no_such_library.so")


def test_the_page_on_cuda(program):
    page = Path(__file__).parents[3] / "docs" / "cuda.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.S | re.M)
    program(block + "np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())")
