"""The buffers of a function are pairs and a mapping, and stay so through passes and files."""

import pytest

import weft
from weft import ir, tir
from weft.script import tir as T


@T.prim_func
def copied(a: T.handle, n: T.int64, b: T.handle):
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)


def changed(func):
    """Two functions that other code made of it."""
    yield weft.tir.transform.ConvertBlocksToOpaque()(ir.IRModule({"main": func}))["main"]
    yield ir.load_json(ir.save_json(func))
    yield tir.PrimFunc(list(func.params), func.body, None, dict(func.buffer_map))


def test_buffers_by_parameter():
    for func in [copied, *changed(copied)]:
        a, n, b = func.params
        buffers = func.buffer_map
        assert buffers[a] is func.buffer_of(a) and buffers.keys() == [a, b] and len(buffers) == 2
        assert buffers.items() == list(buffers) and buffers.values() == [buffers[a], buffers[b]]
        assert buffers.get(n) is None and buffers[0] == (a, buffers[a]) and dict(buffers)[b].name == "B"
        with pytest.raises(KeyError):
            buffers[n]
        assert any(x is buffers[b] for x in ir.walk(func))
    ir.assert_structural_equal(ir.load_json(ir.save_json(copied)), copied)
