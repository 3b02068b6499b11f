"""``relay.quantize``: networks on integers against the same networks on floats, computed in float64."""

import numpy as np
import pytest

import weft as tvm
from tests.refusals import refuses
from weft import error, relay
from weft.relay.quantize.conversions import NotIntegral

RNG = np.random.default_rng(7)
LEVEL3 = {"opt_level": 3}


def _ran(mod, *args, kind="vm"):
    with tvm.transform.PassContext(opt_level=3):
        out = relay.create_executor(kind, mod=mod, target="llvm").evaluate()(*args)
    return [o.numpy() for o in out] if isinstance(out, (list, tuple)) else out.numpy()


def _ops(func, name):
    found = []
    relay.analysis.post_order_visit(
        func, lambda e: found.append(e) if isinstance(e, relay.Call) and getattr(e.op, "name", "") == name else None
    )
    return found


def _network(channels=5, size=9):
    """Convolutions with a bias, a residual sum, pools and a product: odd numbers of everything."""
    x = relay.var("x", shape=(2, 3, size, size))
    w1 = relay.const(RNG.normal(0, 0.3, (channels, 3, 3, 3)).astype("float32"))
    w2 = relay.const(RNG.normal(0, 0.2, (channels, channels, 3, 3)).astype("float32"))
    bias = relay.const(RNG.normal(0, 0.5, channels).astype("float32"))
    first = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, w1, padding=(1, 1)), bias))
    total = relay.nn.relu(relay.add(first, relay.nn.conv2d(first, w2, padding=(1, 1))))
    pooled = relay.nn.max_pool2d(total, pool_size=(2, 2), strides=(2, 2))
    w3 = relay.const(RNG.normal(0, 0.2, (7, channels * (size // 2) ** 2)).astype("float32"))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(relay.nn.batch_flatten(pooled), w3)))


MODES = [
    (0.06, {"calibrate_mode": "global_scale", "global_scale": 6.0, "weight_scale": "max"}),
    (0.25, {"calibrate_mode": "kl_divergence", "weight_scale": "max"}),  # cuts off what is rare
    (0.06, {"calibrate_mode": "percentile", "weight_scale": "max", "rounding": "TONEAREST"}),
    (0.06, {"calibrate_mode": "percentile", "weight_scale": "power2"}),
    (0.25, {"calibrate_mode": "percentile", "weight_scale": "max", "nbit_weight": 4}),
]


@pytest.mark.share(32, "off")
@pytest.mark.parametrize(("off", "config"), MODES)
def test_a_network_on_integers_is_near_the_one_on_floats(off, config):
    mod = _network()
    data = [{"x": RNG.normal(0, 1, (2, 3, 9, 9)).astype("float32")} for _ in range(30)]
    every = {**config, "skip_conv_layers": [], "skip_dense_layer": False}
    with tvm.transform.PassContext(**LEVEL3), relay.quantize.qconfig(**every):
        made = relay.quantize.quantize(mod, None, data)
    with tvm.transform.PassContext(**LEVEL3), relay.quantize.qconfig(**every, do_simulation=True):
        simulated = relay.quantize.quantize(mod, None, data)
    products = _ops(made["main"], "nn.conv2d") + _ops(made["main"], "nn.dense")
    assert [str(c.checked_type.dtype) for c in products] == ["int32"] * 3
    assert all(str(a.checked_type.dtype) == "int8" for c in products for a in c.args)
    wanted, got, rounded = (_ran(m, data[0]["x"]) for m in (mod, made, simulated))
    spread = np.abs(wanted).max()
    assert np.abs(got - wanted).max() < off * spread
    assert np.abs(got - rounded).max() < 0.02 * spread  # what it simulates
    np.testing.assert_array_equal(got, _ran(made, data[0]["x"], kind="graph"))


def test_one_product_is_exact_in_the_steps_that_calibration_chose():
    x, w = RNG.uniform(-3, 3, (3, 11)).astype("float32"), RNG.uniform(-1, 1, (5, 11)).astype("float32")
    v = relay.var("x", shape=x.shape)
    mod = tvm.IRModule.from_expr(relay.Function([v], relay.nn.dense(v, relay.const(w))))
    with relay.quantize.qconfig(global_scale=4.0, weight_scale="power2", skip_dense_layer=False):
        made = relay.quantize.quantize(mod)
    steps = [np.clip(np.round(a / s), -127, 127) for a, s in ((x, 4 / 128), (w, 1 / 128))]
    np.testing.assert_allclose(_ran(made, x), steps[0] @ steps[1].T * (4 / 128 / 128), rtol=1e-6)


@pytest.mark.parametrize(("skip", "left"), [([], 0), ([0], 1), ([1, 2], 2), (None, 0)])
def test_convolutions_are_skipped_by_their_place(skip, left):
    x = out = relay.var("x", shape=(1, 4, 6, 6))
    for _ in range(3):
        out = relay.nn.conv2d(out, relay.const(RNG.normal(size=(4, 4, 1, 1)).astype("float32")))
    with relay.quantize.qconfig(skip_conv_layers=skip):
        made = relay.quantize.quantize(tvm.IRModule.from_expr(relay.Function([x], out)))
    assert sum(str(c.checked_type.dtype) == "float32" for c in _ops(made["main"], "nn.conv2d")) == left


def test_sums_of_other_steps_slices_and_joined_channels():
    x = relay.var("x", shape=(1, 4, 5, 5))
    w = [relay.const(RNG.normal(0, s, (4, 4, 1, 1)).astype("float32")) for s in (0.1, 0.3, 1.0)]
    a, b, c = (relay.nn.conv2d(x, v) for v in w)
    joined = relay.concatenate([relay.clip(a, 0.0, 6.0), b, x], axis=1)
    out = relay.Tuple(
        [
            relay.subtract(a, relay.multiply(b, c)),
            relay.nn.avg_pool2d(joined, (2, 2)),
            relay.strided_slice(relay.transpose(b, (0, 2, 3, 1)), [0, 0, 0, 1], [1, 5, 5, 3]),
        ]
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], out))
    data = [{"x": RNG.normal(0, 1, (1, 4, 5, 5)).astype("float32")}]
    with relay.quantize.qconfig(calibrate_mode="percentile", weight_scale="max", skip_conv_layers=[]):
        made = relay.quantize.quantize(mod, None, data)
    for got, wanted in zip(_ran(made, data[0]["x"]), _ran(mod, data[0]["x"]), strict=True):
        assert np.abs(got - wanted).max() < 0.06 * np.abs(wanted).max()


def test_weights_of_zeros_and_weights_that_are_inputs():
    x, w = relay.var("x", shape=(1, 2, 4, 4)), relay.var("w", shape=(3, 2, 1, 1))
    zeros = relay.const(np.zeros((2, 2, 1, 1), "float32"))
    out = relay.add(relay.nn.conv2d(relay.nn.conv2d(x, zeros), w), relay.nn.conv2d(x, w))
    with relay.quantize.qconfig(skip_conv_layers=[], weight_scale="max", global_scale=16.0):
        made = relay.quantize.quantize(tvm.IRModule.from_expr(relay.Function([x, w], out)))
    a, b = (RNG.uniform(-2, 2, s).astype("float32") for s in ((1, 2, 4, 4), (3, 2, 1, 1)))  # sums stay below 16
    wanted = np.einsum("ncij,oc->noij", a.astype("float64"), b[:, :, 0, 0])
    assert np.abs(_ran(made, a, b) - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_residual_sum_that_leaves_the_range_of_int8_is_cut_and_does_not_wrap():
    x = relay.var("x", shape=(1, 2, 3, 3))
    one = relay.const(np.eye(2, dtype="float32").reshape(2, 2, 1, 1))
    out = relay.nn.conv2d(relay.add(x, relay.nn.conv2d(x, one)), one)
    with relay.quantize.qconfig(skip_conv_layers=[], global_scale=4.0):
        made = relay.quantize.quantize(tvm.IRModule.from_expr(relay.Function([x], out)))
    np.testing.assert_allclose(_ran(made, np.full((1, 2, 3, 3), 3.5, "float32")), 4.0, atol=0.1)


def test_the_network_in_three_parts():
    x = relay.var("x", shape=(1, 3, 6, 6))
    out = relay.nn.relu(relay.nn.conv2d(x, relay.const(RNG.normal(0, 0.3, (4, 3, 3, 3)).astype("float32"))))
    mod = tvm.IRModule.from_expr(relay.Function([x], out))
    made = {}
    for how in ("disabled", "enabled", "fully_integral"):
        with relay.quantize.qconfig(skip_conv_layers=[], partition_conversions=how):
            made[how] = relay.quantize.quantize(mod)
    assert [v.name_hint for v in made["disabled"].get_global_vars()] == ["main"]
    names = {v.name_hint for v in made["fully_integral"].get_global_vars()}
    assert names == {"quantize_inputs", "quantized_main", "dequantize_outputs", "main"}
    assert relay.analysis.all_dtypes(made["fully_integral"]["quantized_main"]) <= {"int8", "int32"}
    data = RNG.normal(size=(1, 3, 6, 6)).astype("float32")
    first, *others = (_ran(m, data) for m in made.values())
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_floats_between_integers_are_refused_where_none_may_be():
    x = relay.var("x", shape=(1, 3, 6, 6))
    out = relay.exp(relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32"))))
    mod = tvm.IRModule.from_expr(relay.Function([x], out))
    with relay.quantize.qconfig(skip_conv_layers=[], partition_conversions="enabled"):
        relay.quantize.quantize(mod)
    with relay.quantize.qconfig(skip_conv_layers=[], partition_conversions="fully_integral"):
        e = refuses(NotIntegral, "not fully integral", relay.quantize.quantize, mod)
    assert "exp" in str(e)
    assert isinstance(e, AssertionError)  # as TVM's


def test_what_is_wrong_with_a_configuration_is_said():
    refuses(error.InvalidArgument, "calibrate_mode", relay.quantize.qconfig, calibrate_mode="kl")
    with pytest.warns(UserWarning, match="no option 'skip_dense_layers'"):
        relay.quantize.qconfig(skip_dense_layers=True)
    with relay.quantize.qconfig(calibrate_mode="percentile", skip_conv_layers=[]):
        assert relay.quantize.current_qconfig().calibrate_mode == "percentile"
        refuses(error.InvalidArgument, "needs a data set", relay.quantize.quantize, _network())
        refuses(error.InvalidArgument, "has no 'x'", relay.quantize.quantize, _network(), None, [{"y": np.zeros(1)}])
    assert relay.quantize.current_qconfig().calibrate_mode == "global_scale"


def test_a_rule_of_the_user_and_the_operators_that_may_be_quantized():
    seen = []

    @relay.quantize.register_annotate_function("nn.leaky_relu", level=11)
    def _rule(ref_call, new_args, ctx):
        seen.append(ref_call.op.name)

    x = relay.var("x", shape=(1, 2, 3, 3))
    out = relay.nn.leaky_relu(relay.nn.conv2d(x, relay.const(np.ones((2, 2, 1, 1), "float32"))))
    mod = tvm.IRModule.from_expr(relay.Function([x], out))
    for allowed, calls in ((None, 1), (["nn.leaky_relu"], 0)):
        with relay.quantize.qconfig(skip_conv_layers=[], debug_enabled_ops=allowed):
            made = relay.quantize.quantize(mod)
        assert sum(str(c.checked_type.dtype) == "int32" for c in _ops(made["main"], "nn.conv2d")) == calls
    assert seen == ["nn.leaky_relu"] * 2
