"""The instructions that programs name are registered, and what they compute is found in a product of bytes."""

import numpy as np

import weft
from weft import te
from weft.script.tensor_intrin import x86
from weft.tir.schedule import Schedule


def test_a_product_of_bytes_calls_the_instruction():
    a, b = te.placeholder((8, 4), "uint8", "a"), te.placeholder((16, 4), "int8", "b")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="c")
    sch = Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_block("c")
    _, j, _ = sch.get_loops(block)
    sch.decompose_reduction(block, j)
    sch.tensorize(sch.get_loops(sch.get_block("c_update"))[1], x86.VNNI_DOT_16x4_INTRIN)
    assert "vpdpbusd.512" in str(sch.func)


def test_what_the_instruction_computes():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, 4).astype("uint8"), rng.integers(-128, 127, (16, 4)).astype("int8")
    c = np.arange(16, dtype="int32")
    out = weft.runtime.tensor(c)
    weft.build(x86.dot_product_16x4_u8i8i32_desc, target="llvm")(weft.runtime.tensor(a), weft.runtime.tensor(b), out)
    np.testing.assert_array_equal(out.numpy(), c + b.astype("int32") @ a.astype("int32"))
