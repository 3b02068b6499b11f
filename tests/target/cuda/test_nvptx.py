"""NVPTX: PTX has what a kernel needs, NVIDIA's assembler takes it, and its LLVM IR run on the host gives the values."""

import re

import numpy as np
import pytest

import weft
from tests.target.nvptx_emulation import emulate
from weft import te


def _lowered(schedule, args, name="f"):
    return {v.name_hint: f for v, f in weft.lower(schedule, args, name=name).items()}


def _bound(out, factor=32):
    s = te.create_schedule(out.op)
    block, thread = s[out].split(s[out].fuse(*out.op.axis), factor=factor)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    return s


def _params(ptx, name):
    return re.findall(r"\.param \.(\w+)", re.search(rf"\.entry {name}\((.*?)\)\n", ptx, re.DOTALL)[1])


@pytest.mark.parametrize("n", [0, 1, 31, 100])
def test_vector_addition_of_symbolic_length(n):
    size = te.var("n")
    a, b = te.placeholder((size,), name="A"), te.placeholder((size,), name="B")
    c = te.compute((size,), lambda i: a[i] + b[i], name="C")
    x, y = np.random.default_rng(n).random((2, n), "float32")
    out = np.full(n, np.nan, "float32")
    functions = _lowered(_bound(c), [a, b, c])
    ptx = emulate(functions, "f_kernel", [out, x, y, ("int32", n)], ((n + 31) // 32, 1, 1), (32, 1, 1))
    np.testing.assert_array_equal(out, x + y)
    assert _params(ptx, "f_kernel") == ["u64", "u64", "u64", "u32"]
    assert ".target sm_80" in ptx and ".maxntid 32, 1, 1" in ptx
    assert ptx.count("ld.global") == 2 and ptx.count("st.global") == 1 and "ld.b32" not in ptx
