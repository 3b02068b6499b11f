"""Large outputs are stored past the caches where they are aligned, and as usual where not."""

import numpy as np
import pytest

from weft import machine, te
from weft.target import Target, build, get_source
from weft.tir.schedule import default_schedule

STREAM_BYTES = machine.UNKNOWN.streamed_output_bytes
X86 = Target("llvm -mcpu=x86-64-v4 -mtriple=x86_64-unknown-linux-gnu")
ARM = Target("llvm -mtriple=aarch64-linux-gnu")


def doubled(shape, target):
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x(*i) * 2.0, name="y")
    return default_schedule(te.create_prim_func([x, y]), target)


def test_only_large_outputs_are_streamed():
    large, small = (STREAM_BYTES // 4,), (STREAM_BYTES // 8,)
    assert "vmovnt" in get_source(doubled(large, X86), X86, "asm")
    assert "sfence" in get_source(doubled(large, X86), X86, "asm")
    assert "vmovnt" not in get_source(doubled(small, X86), X86, "asm")
    assert "!nontemporal" not in get_source(doubled(large, ARM), ARM, "ll").replace("!nontemporal !1 =", "")


def test_outputs_that_nobody_reads_soon_are_streamed_at_any_size():
    n = te.size_var("n", "int64")
    x = te.placeholder((n, 64), name="x")
    func = te.create_prim_func([x, te.compute((n, 64), lambda i, j: x(i, j) * 2.0, name="y")])
    assert "vmovnt" not in get_source(default_schedule(func, X86), X86, "asm")
    assert "vmovnt" in get_source(default_schedule(func.with_attr("tir.stream_outputs", True), X86), X86, "asm")


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("shape", [(STREAM_BYTES // 4 + 32,), (1025, 2053), (2049, 1024)])
def test_values_at_any_alignment(shape, offset):
    target = Target("llvm")
    kernel = build(doubled(shape, target), target)["main"]
    count = int(np.prod(shape))
    raw = np.full(count * 4 + 256, 7, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    y = raw[start : start + count * 4].view(np.float32).reshape(shape)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, x * 2)
    assert (raw[:start] == 7).all()
    assert (raw[start + count * 4 :] == 7).all()
