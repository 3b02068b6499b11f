"""Maps and lists of nodes across the language border, and as JSON."""

import pickle

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import ir, runtime, te, tir
from weft.runtime.container import ADT


def test_a_map_finds_nodes():
    a, b = tir.Var("a", "int32"), tir.Var("b", "int32")
    found = weft.runtime.convert({a: 2, b: 3})
    assert isinstance(found, tvm_ffi.Map) and len(found) == 2
    assert a in found and a + 1 not in found
    assert found[b] == 3 and found.get(a + 1) is None
    assert set(found) == {a, b} and dict(found.items()) == {a: 2, b: 3}


def test_a_map_that_crossed_the_border():
    x = tir.Var("x", "int32")
    echo = weft.runtime.convert(lambda value: value)
    found = echo({"x": x, "n": [x]})
    assert found["x"] is x and found["n"] == (x,)


def test_maps_and_lists_are_saved():
    x, y = tir.Var("x", "int32"), tir.const(10, "int32")
    loaded = ir.load_json(ir.save_json([{"z": x + y, "x": x}, {x: 1}]))
    assert loaded[0]["z"].a is loaded[0]["x"]
    assert [(k.name, v) for k, v in loaded[1].items()] == [("x", 1)]
    ir.assert_structural_equal(loaded[0], {"z": x + y, "x": x}, map_free_vars=True)
    refuses(ValueError, "differ", ir.assert_structural_equal, loaded[0], {"z": x + 11, "x": x}, map_free_vars=True)


def test_tensors_by_name_are_saved():
    tensors = {"a": weft.runtime.tensor(np.arange(4.0)), "b": weft.runtime.tensor(np.ones(2, "int8"))}
    ir.assert_structural_equal(ir.load_json(ir.save_json(tensors)), tensors)


def test_shapes_and_fields():
    shape = runtime.ShapeTuple([2, 3])
    assert shape == [2, 3] and shape == (2, 3) and shape != [2] and hash(shape) == hash(runtime.ShapeTuple([2, 3]))
    again = pickle.loads(pickle.dumps(shape))
    assert isinstance(again, runtime.ShapeTuple) and again == shape
    assert [int(v.item()) for v in ADT(0, [1, 2, 3])[1:]] == [2, 3]


def test_make_node():
    x = ir.make_node("ir.IntImm", ty=ir.PrimType("int32"), value=10, span=None)
    assert (x.dtype, x.value) == ("int32", 10)
    a = te.placeholder((10,), name="A")
    again = ir.make_node("te.Tensor", shape=a.shape, dtype=a.dtype, op=a.op, value_index=0)
    assert again.op == a.op and again.value_index == 0
    refuses(KeyError, "no node class", ir.make_node, "te.Absent")


def test_buffers_as_parameters():
    n, i = te.var("n"), te.var("i")
    buffer = tir.decl_buffer((n,), "int64")
    store = tir.BufferStore(buffer, tir.BufferLoad(buffer, [i]) + 1, [i + 1])
    body = tir.For(i, 0, n - 1, tir.ForKind.SERIAL, store)
    func = tir.PrimFunc([buffer], body).with_attr("global_symbol", "count")
    data = np.zeros(10, "int64")
    weft.build(func)(data)
    np.testing.assert_array_equal(data, np.arange(10))


def test_options_of_passes():
    config = ir.PassContext(config={"tirx.UnrollLoop": {"auto_max_step": 10}}).config
    assert config["tirx.UnrollLoop"].auto_max_step == config["tir.UnrollLoop"]["auto_max_step"] == 10
    assert config["tirx.UnrollLoop"].explicit_unroll is True
    assert "s_tir.UnrollLoop" in config and "tir.LoopPartition" not in config
    refuses(AttributeError, "no option 'x'", getattr, config["tirx.UnrollLoop"], "x")
    refuses(TypeError, "no option 'invalid'", ir.PassContext, config={"tirx.UnrollLoop": {"invalid": 1}})
    for wrong in ({"no-such-option": True}, {"tirx.UnrollLoop": 1}):
        refuses(AttributeError, "", ir.PassContext, config=wrong)


@pytest.mark.parametrize("apart", [True, False])
def test_parameters_that_may_overlap(apart):
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    with ir.PassContext(config={"tir.noalias": apart}):
        built = weft.build(te.create_schedule(b.op), [a, b])
    assert ("noalias" in built.get_source("ll").split("_impl(")[1].split(")")[0]) == apart
