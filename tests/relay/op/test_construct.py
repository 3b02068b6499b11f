"""Constructors have TVM's names, parameter order and defaults, and say what was wrong with a call."""

import importlib
import inspect

import numpy as np
import pytest

from tests.refusals import refuses
from weft import IRModule, cpu, error, relay
from weft.relay.op import evaluate, infer_call
from weft.target import VirtualDevice

x = relay.var("x", shape=(2, 3, 4))

SIGNATURES = {
    "nn.dense": "data, weight, units=None, out_dtype=''",
    "nn.conv2d": "data, weight, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=None, "
    "kernel_size=None, data_layout='NCHW', kernel_layout='OIHW', out_layout='', out_dtype=''",
    "nn.conv2d_transpose": "data, weight, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=None, "
    "kernel_size=None, data_layout='NCHW', kernel_layout='IOHW', out_layout='', output_padding=(0, 0), out_dtype=''",
    "gather": "data, axis, indices",
    "reshape_like": "data, shape_like, lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None",
    "nn.max_pool2d": "data, pool_size=(1, 1), strides=(1, 1), dilation=(1, 1), padding=(0, 0), layout='NCHW', "
    "out_layout='', ceil_mode=False",
    "nn.batch_norm": "data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-05, center=True, scale=True",
    "nn.batch_matmul": "tensor_a, tensor_b, out_dtype='', transpose_a=False, transpose_b=True",
    "take": "data, indices, axis=None, batch_dims=0, mode='clip'",
    "strided_slice": "data, begin, end, strides=None, axes=None, slice_mode='end'",
    "reshape": "data, newshape, allowzero=False",
    "argmax": "data, axis=None, keepdims=False, exclude=False, select_last_index=False",
    "arange": "start, stop=None, step=None, dtype='float32'",
    "full": "fill_value, shape=(), dtype=''",
    "clip": "a, a_min, a_max",
    "cast": "data, dtype",
    "split": "data, indices_or_sections, axis=0",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    shown = [
        str(p.replace(annotation=inspect.Parameter.empty)).strip()
        for p in inspect.signature(relay.op.constructor(name)).parameters.values()
    ]
    assert ", ".join(shown) == SIGNATURES[name]


def test_names_are_attributes() -> None:
    assert relay.nn.dense is relay.op.nn.dense
    assert relay.op.nn.dense is relay.op.constructor("nn.dense")
    assert relay.op.op.get("nn.dense") is relay.op.get("nn.dense") is relay.nn.dense(x, x).op
    assert relay.op.tensor.exp is relay.exp
    assert importlib.import_module("weft.relay.op.transform").reshape is relay.reshape
    assert relay.sort is relay.op.sort is relay.op.constructor("sort")
    assert "softmax" in dir(relay.nn)
    assert "dense" not in dir(relay)
    refuses(AttributeError, "no_such", getattr, relay.nn, "no_such")
    refuses(error.UnsupportedOperator, "near names", relay.op.get, "nn.densed")


def test_wrong_calls() -> None:
    refuses(error.InvalidArgument, "nn.dense: missing a required argument: 'weight'", relay.nn.dense, x)
    refuses(error.InvalidArgument, "unit", relay.nn.dense, x, x, unit=3)
    refuses(error.InvalidArgument, "missing a required argument", relay.cast, x)


def test_tuples_have_a_length() -> None:
    parts = relay.split(x, 3, axis=1)
    assert len(parts) == 3
    assert [p.index for p in parts] == [0, 1, 2]
    assert len(relay.split(x, (1, 2), axis=2)) == 3
    out, mean, var = relay.nn.batch_norm(x, *[relay.var(f"v{i}", shape=(3,)) for i in range(4)])
    assert (out.index, mean.index, var.index) == (0, 1, 2)
    assert isinstance(relay.nn.dropout(x), relay.TupleGetItem)
    assert len(relay.mean_variance(x, 1)) == 2


def test_numbers_and_lists_become_constants_and_tuples() -> None:
    assert isinstance(relay.concatenate([x, x], axis=0).args[0], relay.Tuple)
    padded = relay.nn.pad(x, [[0, 0], [1, 2], [0, 0]])
    assert infer_call(padded).concrete_shape == (2, 6, 4)
    assert padded.attrs["pad_width"] == ((0, 0), (1, 2), (0, 0))


def test_shapes_that_are_expressions() -> None:
    n = relay.var("n", shape=(2,), dtype="int64")
    assert relay.reshape(x, n).op.name == "dyn.reshape"
    assert relay.reshape(x, relay.const([6, 4])).attrs["newshape"] == (6, 4)
    assert relay.zeros(n).op.name == "dyn.zeros"
    assert relay.full(1.0, n, "float32").op.name == "dyn.full"
    assert relay.tile(x, n).op.name == "dyn.tile"
    assert relay.squeeze(x, n).op.name == "dyn.squeeze"
    assert relay.expand_dims(x, n).op.name == "dyn.expand_dims"
    refuses(error.InvalidArgument, "attribute 'axis' is no constant", relay.nn.softmax, x, axis=n)
    cut = relay.strided_slice(x, n, [1, 2])
    assert cut.op.name == "dyn.strided_slice"
    assert cut.args[2].data.numpy().tolist() == [1, 2]
    mixed = relay.reshape(x, [relay.var("k", "int64"), 4])
    assert mixed.op.name == "dyn.reshape"
    assert mixed.args[1].op.name == "concatenate"


def test_values_of_derived_constructors() -> None:
    data = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")

    def run(e: relay.Expr):
        if isinstance(e, relay.Constant):
            return e.data.numpy()
        return evaluate(e, [data if a is x else run(a) for a in e.args])

    np.testing.assert_allclose(run(relay.std(x, axis=1)), data.std(1), rtol=1e-5)
    np.testing.assert_allclose(
        run(relay.variance(x, axis=(0, 2), keepdims=True, unbiased=True)),
        data.var((0, 2), ddof=1, keepdims=True),
        rtol=1e-5,
    )
    np.testing.assert_array_equal(run(relay.reverse_reshape(x, (-1, 0))), data.reshape(6, 4))
    np.testing.assert_array_equal(run(relay.arange(5, dtype="int32")), np.arange(5))


def test_a_range_of_computed_floats() -> None:
    start, stop = relay.var("start", "float32"), relay.var("stop", "float32")
    func = relay.Function([start, stop], relay.arange(start, stop, 0.25))
    for kind in ("debug", "vm"):
        run = relay.create_executor(kind, IRModule.from_expr(func)).evaluate()
        for b, e in ((1.0, 2.6), (0.5, 0.5), (3.0, 1.0)):
            found = run(np.float32(b), np.float32(e)).numpy()
            assert found.dtype == "float32"
            np.testing.assert_array_equal(found, np.arange(b, e, 0.25, "float32"))


def test_every_operator_is_reached_by_its_name() -> None:
    """Also those that share their name with a module of the package, and those inside nested namespaces."""
    inside = ("memory.", "vm.")  # what only the compiler writes
    for name in relay.op.list_ops():
        if not name.startswith(inside):
            found = relay.op
            for part in name.split("."):
                assert part in dir(found), name
                found = getattr(found, part)
            assert callable(found), name


@pytest.mark.parametrize(("given", "kind"), [("cuda", 2), (cpu(0), 1), (VirtualDevice("cuda:1"), 2)])
def test_operators_on_devices_describe_them(given, kind: int) -> None:
    there, copied = relay.annotation.on_device(x, given).attrs, relay.op.device_copy(x, given, "cpu").attrs
    assert [there.virtual_device.device_type_int, copied.src_virtual_device.device_type_int] == [kind, kind]
    assert copied.dst_virtual_device.device_type_int == 1 and not hasattr(relay.exp(x).attrs, "virtual_device")
    assert relay.annotation.on_device(x, "cpu", constrain_body=False).attrs.virtual_device.device is None
