"""FlexibleShapeDispatch: any extent of an axis, with functions of their own for some."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.transform import ChangeBatch, FlexibleShapeDispatch


def machine(mod):
    return weft.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), weft.cpu())


@pytest.mark.parametrize("auto_pad", [False, True])
@pytest.mark.parametrize("axis", [1, -1])
def test_buckets_padding_and_other_extents(auto_pad, axis):
    x, w = relay.var("x", shape=(2, 7)), relay.var("w", shape=(2, 7))
    e = relay.var("e", relay.TensorType((2, 7)))
    y = relay.Let(e, relay.exp(x), relay.Tuple([e - w, relay.nn.relu(x)]))
    made = FlexibleShapeDispatch([6, 3], axis, auto_pad, 5.0, input_indices=[0, 1])(weft.IRModule.from_expr(y))
    assert {"main", "main_3", "main_6", "main_dynamic"} == {v.name_hint for v in made}
    vm = machine(made)
    for n in (1, 3, 4, 6, 11):
        a, b = np.random.default_rng(n).standard_normal((2, 2, n)).astype("float32")
        first, second = vm.invoke("main", a, b)
        np.testing.assert_allclose(first.numpy(), np.exp(a.astype("float64")) - b, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(second.numpy(), np.maximum(a, 0))


def test_outputs_of_one_shape():
    x, w = relay.var("x", shape=(3, 7)), relay.var("w", shape=(4, 7))
    mod = weft.IRModule.from_expr(relay.nn.dense(x, w))
    made = FlexibleShapeDispatch([5], 1, auto_pad=True, input_indices=[0, 1], affects_output=False)(mod)
    vm = machine(made)
    for n in (2, 5, 8):  # zeros, which padding is, add nothing
        a, b = np.ones((3, n), "float32"), np.full((4, n), 2, "float32")
        np.testing.assert_array_equal(vm.invoke("main", a, b).numpy(), np.full((3, 4), 2 * n))


def test_what_has_no_such_axis_is_refused():
    mod = weft.IRModule.from_expr(relay.exp(relay.var("x", shape=(2, 3))))
    for wrong in ({"buckets": [2], "axis": 2}, {"buckets": [0]}, {"buckets": [2], "input_indices": [1]}):
        with pytest.raises(error.InvalidArgument, match="FlexibleShapeDispatch|there is no axis 2"):
            FlexibleShapeDispatch(**wrong)(mod)


def test_another_batch():
    x, w = relay.var("x", shape=(1, 3, 6, 5)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.batch_flatten(relay.nn.relu(relay.nn.conv2d(x, w)))
    mod = ChangeBatch({x: 0}, 7)(weft.IRModule.from_expr(relay.Function([x, w], y)))
    assert [int(d) for d in mod["main"].ret_type.shape] == [7, 48]
    assert [int(d) for d in mod["main"].params[1].ty.shape] == [4, 3, 3, 3]
