"""CUDA C through NVRTC, on machines with and without the library."""

import re
import struct

import pytest

from tests.refusals import refuses
from weft.error import CodegenError, InvalidArgument, MissingDependency
from weft.target.cuda import compile_cuda, nvrtc_version

ADD = """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def _has_nvrtc() -> bool:
    try:
        nvrtc_version()
    except MissingDependency:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="NVRTC is not installed (pip install 'weft[cuda]')")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cubin_is_a_cuda_elf_with_the_kernel(arch: str) -> None:
    image = compile_cuda(ADD, "cubin", arch)
    assert image[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", image, 18)[0] == 190  # EM_CUDA
    assert b".text.add\0" in image


@needs_nvrtc
def test_cubins_of_two_architectures_differ() -> None:
    assert compile_cuda(ADD, "cubin", "sm_80") != compile_cuda(ADD, "cubin", "sm_90")


@needs_nvrtc
def test_ptx_names_the_architecture_and_ends_with_zero() -> None:
    image = compile_cuda(ADD, "ptx", "sm_90")
    assert image.endswith(b"\0")
    text = image.decode()
    assert ".target sm_90" in text
    assert re.search(r"\.entry add\(", text)
    assert "add.f32" in text or "add.rn.f32" in text


@needs_nvrtc
def test_options_reach_the_compiler() -> None:
    code = 'extern "C" __global__ void set(int* p) { *p = VALUE; }'
    assert "4711" in compile_cuda(code, "ptx", options=["-DVALUE=4711"]).decode()
    assert "4712" in compile_cuda(code, "ptx", options="-DVALUE=4712").decode()


@needs_nvrtc
def test_an_error_in_the_program_shows_the_log() -> None:
    with pytest.raises(CodegenError, match=r"weft\.cu\(1\).*\"missing\" is undefined"):
        compile_cuda('extern "C" __global__ void f(int* p) { *p = missing; }')


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know() -> None:
    refuses(CodegenError, r"invalid value for --gpu-architecture", compile_cuda, ADD, arch="sm_11")


def test_an_unknown_format_and_architecture_are_refused() -> None:
    refuses(InvalidArgument, "'cubin' or 'ptx'", compile_cuda, ADD, "fatbin")
    refuses(InvalidArgument, "not a CUDA architecture", compile_cuda, ADD, arch="hopper")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NVRTC", "/nowhere/libnvrtc.so")
    refuses(MissingDependency, r"(?s)/nowhere/libnvrtc\.so.*pip install 'weft\[cuda\]'", compile_cuda, ADD)
