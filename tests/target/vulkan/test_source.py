"""The text of Vulkan's kernels; ``tests/devices`` runs them where a device is."""

import re
import sys

import pytest

import weft
from tests import clock
from tests.target.programs import FUNCTIONS, FUNCTIONS_OF_TWO, sum_of_many, vector
from weft import te, tir
from weft.error import CodegenError, WeftError
from weft.script import tir as T
from weft.target.gpu import lower_for_gpu
from weft.target.vulkan import emit_glsl


def text_of(func):
    """The text of a function's kernels, all of it, and what kernels have of their own."""
    text = emit_glsl(lower_for_gpu(weft.IRModule({"f": func}), weft.target.vulkan()).device)
    return text, text[text.index("#if WEFT_KERNEL") :]


def test_elements_have_addresses_of_64_bits():
    text, body = text_of(vector(lambda v: v * 2.0))
    assert "double" not in text
    assert re.search(r"weft_at_float\(v_B \+ uint64_t\(int\(.*\)\) \* 4UL\)\.v = ", body)
    assert "int v_n = int(uint(weft_words[2]));" in body
    assert "(gl_WorkGroupID.x + weft_base.x)" in body  # grids may be larger than one dispatch
    assert "coherent" not in body


def test_what_a_device_may_lack_is_there_only_where_it_is_needed():
    assert "double" in text_of(vector(te.sqrt, "float64"))[0]
    half, body = text_of(vector(te.sqrt, "float16"))
    assert "double" not in half
    assert "weft_to_float16(weft_float16(sqrt(weft_from_float16(weft_at_uint16_t" in body


def test_more_arguments_than_travel_with_a_launch():
    assert "weft_at_uint64_t(weft_words[0] + 120UL).v" in text_of(sum_of_many(15))[1]


def test_memory_of_a_block_and_truth():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), M: T.Buffer((64,), "bool"), keep: T.bool):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((64,), "float32", scope="shared")
            D = T.alloc_buffer((64,), "int32", scope="shared.dyn")
            S[t] = A[t]
            D[t] = 63 - t
            A[t] = S[D[t]]
            M[t] = keep and A[t] > T.float32(0)

    body = text_of(f)[1]
    assert re.search(r"^  shared float v_S\[64\];", body, re.M)
    assert re.search(r"^  shared int v_D\[64\];", body, re.M)
    assert "weft_barrier();" in body
    assert "coherent buffer weft_at_float" in body  # threads of the block may read what others wrote
    assert "bool v_keep = (uint8_t(weft_words[2]) != uint8_t(0));" in body


def test_what_vulkan_has_no_code_for_is_refused():
    wide = [(f, "float64", f"tir.{f.__name__}") for f in (te.sin, te.cos, te.tan)]
    pairs = [(lambda v, f=f: f(v, v), "float32", f"tir.{f.__name__}") for f in (tir.nextafter, tir.ldexp)]
    for f, dtype, name in (*wide, *pairs):
        with pytest.raises(WeftError, match=f"target vulkan has no code for intrinsic '{name}' of {dtype}"):
            text_of(vector(f, dtype))


def test_a_machine_without_the_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CodegenError, match=r"(?s)expected glslangValidator on the PATH.*apt install glslang-tools"):
        weft.build(vector(te.exp), target="vulkan")


def test_a_machine_without_a_driver():
    program = "import weft; print(weft.vulkan(0).exist); weft.runtime.empty((1,), 'float32', weft.vulkan(0))"
    env = {"WEFT_VULKAN_DRIVER": "no_such.so", "PYTHONPATH": ":".join(sys.path)}
    done = clock.run([sys.executable, "-c", program], env=env)
    assert done.stdout.strip() == "False"
    assert "no Vulkan device (no_such.so: cannot open shared object file" in done.stderr


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *FUNCTIONS_OF_TWO])
def test_each_function_of_floats_has_text(name, dtype):
    of = getattr(tir, name)
    assert text_of(vector((lambda v: of(v, v)) if name in FUNCTIONS_OF_TWO else of, dtype))[1]
