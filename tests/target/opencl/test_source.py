"""The text of OpenCL kernels; ``tests/devices`` runs them where a device is."""

import os
import re
import sys

import weft
from tests import clock
from tests.refusals import refuses
from tests.target import programs
from weft import error, te, tir
from weft.script import tir as T


def text_of(func):
    """The kernels of a function, without what stands before them."""
    text = weft.build(func, target="opencl").imported_modules[0].get_source()
    return text[text.index("__kernel") :]


def vector(f, dtype="float32", target="opencl"):
    return weft.build(programs.vector(f, dtype), target)


def test_the_page_on_intrinsic_functions():
    """``te.exp`` under the target of TVM's tutorial, and its text."""
    text = vector(te.exp).imported_modules[0].get_source()
    head = r"__kernel __attribute__\(\(reqd_work_group_size\(64, 1, 1\)\)\) void f_kernel\("
    assert re.search(head + r"__global float\* restrict v_B, __global const float\* restrict v_A, int v_n\)", text)
    assert "get_group_id(0)" in text
    assert re.search(r"v_B\[.*\] = exp\(v_A\[", text)


def test_what_a_device_may_lack_is_there_only_where_it_is_needed():
    plain, double, half = (
        vector(te.sqrt, d).imported_modules[0].get_source() for d in ("float32", "float64", "float16")
    )
    assert "cl_khr_fp64" not in plain
    assert "double" not in plain
    assert "half" not in plain
    assert plain.count("#pragma OPENCL") == 0
    assert double.startswith("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    assert "cl_khr_fp16" not in half
    assert "double" not in half
    assert "weft_to_float16(weft_float16(sqrt(weft_from_float16(v_A[" in half


def test_address_spaces_and_barriers():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((64,), "float32", scope="shared")
            D = T.alloc_buffer((64,), "int32", scope="shared.dyn")
            L = T.alloc_buffer((2,), "float32", scope="local")
            S[t] = A[t]
            D[t] = 63 - t
            L[0] = S[D[t]]
            B[t] = L[0]

    text = text_of(f)
    assert "__local uint4* weft_shared_memory) {" in text
    assert re.search(r"^  __local float v_S\[64\];", text, re.M)
    assert "__local int* v_D = (__local int*)(weft_shared + 0);" in text
    assert re.search(r"^ +float v_L\[\d\];", text, re.M)
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text


def test_truth_is_a_byte_in_memory_and_among_arguments():
    @T.prim_func
    def f(A: T.Buffer((8,), "bool"), keep: T.bool, B: T.Buffer((8,), "bool")):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            B[t] = A[t] and keep

    text = text_of(f)
    assert "__global const uchar* restrict v_A" in text or "__global const uchar* v_A" in text
    assert "uchar v_keep" in text
    assert re.search(r"\(v_A\[.*\] != 0\)", text)


def test_values_are_bound_without_a_statement():
    x = tir.Var("x", "float32")
    text = vector(lambda v: tir.Let(x, v * 2.0, x * x)).imported_modules[0].get_source()
    kernel = text[text.index("__kernel") :]
    assert re.search(r"\(v_x = \(.*v_A\[.*\), \(\(float\)\(v_x \* v_x\)\)\)", kernel)
    assert kernel.count("* 2.0") + kernel.count("0x1.0000000000000p+1") == 1  # computed once


def test_shuffles_stay_within_their_lanes():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            B[t] = A[t] + T.call_intrin(
                "float32",
                "tir.tvm_warp_shuffle_down",
                T.call_intrin("uint32", "tir.tvm_warp_activemask"),
                A[t],
                16,
                32,
                32,
            )

    text = weft.build(f, target="opencl").imported_modules[0].get_source()
    assert text.startswith("#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable")
    assert re.search(r"weft_shuffle_down\(v_A\[.*\], 16, 32\)", text)
    assert "WEFT_SUB_GROUPS(32) void" in text


def test_warps_that_are_no_part_of_a_row_are_refused():
    @T.prim_func
    def f(A: T.Buffer((48,), "float32"), B: T.Buffer((48,), "float32")):
        for t in T.thread_binding(48, thread="threadIdx.x"):
            B[t] = T.call_intrin("float32", "tir.tvm_warp_shuffle", T.uint32(0), A[t], 0, 32, 32)

    refuses(error.WeftError, "no code for these warps", weft.build, f, target="opencl")


def test_what_cannot_be_said_is_refused():
    refuses(error.WeftError, "target opencl has no code for 'float8_e4m3fn'", vector, lambda v: v, "float8_e4m3fn")
    refuses(error.WeftError, "a block has too many threads", vector, te.exp, target="opencl -max_num_threads=32")


def test_without_a_device():
    """The loader's library is looked for at first use; its absence is an error that names it."""
    program = """
import pytest
from weft import runtime as rt
dev = rt.opencl(0)
assert not dev.exist and dev.device_name is None
for use in (dev.sync, lambda: rt.empty((3,), "float32", dev), lambda: rt.tensor([1.0], device=dev)):
    with pytest.raises(RuntimeError, match="no OpenCL device .*nowhere.*WEFT_OPENCL_DRIVER"):
        use()
"""
    env = {**os.environ, "WEFT_OPENCL_DRIVER": "/nowhere/libOpenCL.so"}
    done = clock.run([sys.executable, "-c", program], env=env)
    assert done.returncode == 0, done.stderr


def test_threads_that_race_for_a_shared_element_are_refused():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((1,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((1,), "float32", scope="shared")
            S[0] = T.sin(S[0]) + A[t]
            if t == 0:
                B[0] = S[0]

    refuses(error.WeftError, "a store to 'S' is not one thread's own", weft.build, f, target="opencl")
