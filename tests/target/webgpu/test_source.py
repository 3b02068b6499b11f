"""The text of WebGPU's kernels; ``tests/devices`` runs them where an adapter is."""

import re

import pytest

import weft
from tests.refusals import refuses
from tests.target.programs import FUNCTIONS, FUNCTIONS_OF_TWO, vector
from weft import target, te, tir
from weft.error import CodegenError, WeftError
from weft.script import tir as T
from weft.target.gpu import lower_for_gpu
from weft.target.webgpu import emit_wgsl


def text_of(func):
    """The text of a function's kernels, all of it, and what kernels have of their own."""
    text = emit_wgsl(lower_for_gpu(weft.IRModule({"f": func}), target.Target("webgpu")).device)
    return text, text[text.index("struct k0_Args") :]


def test_tensors_are_bindings_and_numbers_are_a_uniform():
    text, body = text_of(vector(te.exp))
    assert "f16" not in text
    assert "struct k0_Args { base: vec3<u32>, k0_n: i32 }" in body
    assert "@group(0) @binding(0) var<storage, read_write> k0_B: array<f32>;" in body
    assert "@group(0) @binding(1) var<storage, read> k0_A: array<f32>;" in body
    assert "@group(0) @binding(2) var<uniform> k0_args: k0_Args;" in body
    assert re.search(r"@compute @workgroup_size\(64, 1, 1\)\nfn f_kernel\(", body)
    assert re.search(r"k0_B\[.*\] = exp\(k0_A\[", body)


def test_what_browsers_may_lack_is_there_only_where_it_is_needed():
    text, body = text_of(vector(te.sqrt, "float16"))
    assert text.startswith("enable f16;")
    assert "f16(weft_float16(sqrt(f32(k0_A[" in body


def test_memory_of_a_group_and_choices():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), keep: T.bool):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((64,), "float32", scope="shared")
            D = T.alloc_buffer((64,), "bool", scope="shared.dyn")
            S[t] = A[t]
            D[t] = keep and A[t] > T.float32(0)
            A[t] = T.Select(D[63 - t], S[63 - t], T.float32("inf"))

    body = text_of(f)[1]
    assert re.search(r"^var<workgroup> k0_S: array<f32, 64>;", body, re.M)
    assert re.search(r"^var<workgroup> k0_D: array<bool, 64>;", body, re.M)
    assert "workgroupBarrier();" in body
    assert "select(f32(weft_float(0x7f800000u)), k0_S[" in body
    assert "k0_keep: u32" in body


def test_what_webgpu_has_no_code_for_is_refused():
    for f, dtype, found in (
        (te.exp, "float64", "no code for 'float64'"),
        (lambda v: v, "int8", "no code for 'int8'"),
        (lambda v: tir.nextafter(v, v), "float32", "no code for intrinsic 'tir.nextafter' of float32"),
    ):
        refuses(WeftError, f"target webgpu has {found}", text_of, vector(f, dtype))


@pytest.mark.parametrize("f", [lambda v: v + 1, lambda v: v * v > 0, lambda v: (v * 3).astype("float32")])
def test_numbers_of_64_bits_are_indices_alone(f):
    with pytest.raises(CodegenError, match=r"(?s)webgpu has integers of 32 bits.*int64 that are indices.*in int32"):
        text_of(vector(f, "int64"))


def test_a_module_of_text():
    (kernels,) = weft.build(vector(te.exp), target="webgpu").imported_modules
    assert kernels.kind == "webgpu" and "fn f_kernel(" in kernels.get_source()
    refuses(ValueError, "kernels of webgpu run in browsers, not here", lambda: kernels["f_kernel"])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *FUNCTIONS_OF_TWO])
def test_each_function_of_floats_has_text(name, dtype):
    of = getattr(tir, name)
    assert text_of(vector((lambda v: of(v, v)) if name in FUNCTIONS_OF_TWO else of, dtype))[1]
