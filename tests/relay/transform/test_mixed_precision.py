"""Programs in another precision have the values of the program, in the data types that were asked for."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.testing.temp_op_attr import TempOpAttr
from weft.relay.transform import InferType, ToMixedPrecision
from weft.relay.transform.mixed_precision import MIXED_PRECISION_NEVER, register_mixed_precision_conversion

rng = np.random.default_rng(0)


def module(body):
    return InferType()(weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))


def values(mod):
    args = [rng.random([int(d) for d in p.ty.shape], "float32") for p in mod["main"].params]

    def run(m):
        out = relay.create_executor("debug", mod=m).evaluate()(*args)
        return [o.numpy() for o in (out if isinstance(out, (tuple, list)) or hasattr(out, "fields") else [out])]

    return run


def dense(x, n=4):
    return relay.nn.dense(x, relay.const(rng.random((n, 4), "float32")))


def programs():
    x = relay.var("x", shape=(3, 4))
    y = dense(x)
    yield relay.nn.softmax(y + y)
    yield relay.Tuple([relay.nn.relu(y), relay.sum(y), x])
    parts = relay.split(y, 2, axis=1)
    yield relay.concatenate([parts[1], relay.exp(parts[0])], axis=1)
    v = relay.var("v", shape=(3, 4))
    yield relay.Let(v, y, relay.Let(w := relay.var("w", shape=(3, 4)), dense(v + v), w * x))
    yield relay.If(relay.sum(y) > relay.const(0.0), dense(y), x)
    p = relay.var("p", shape=(3, 4))
    yield relay.Call(relay.Function([p], dense(p) + p), [y])
    yield relay.cast(relay.take(y, relay.const(np.array([0, 2]))), "float32") + relay.const(1.0)
    yield relay.reshape(relay.var("z", shape=(0, 4)), (0, 4)) + dense(relay.var("z", shape=(0, 4)))


@pytest.mark.parametrize("i", range(8))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-2), ("float64", 1e-5)])
def test_values_stay(i, dtype, tolerance):
    mod = module(list(programs())[i])
    run = values(mod)
    before, text = run(mod), str(mod)
    after = ToMixedPrecision(dtype)(mod)
    assert dtype in str(after) and str(mod) == text
    with weft.transform.PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        kept = ToMixedPrecision(dtype)(mod)
    assert kept["main"].checked_type == mod["main"].checked_type
    for m in (after, kept):
        for a, b in zip(run(m), before, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_only_what_follows_products_changes():
    x = relay.var("x", shape=(3, 4))
    for body in (
        relay.nn.softmax(x),
        relay.exp(x) + relay.exp(x),
        relay.var("i", shape=(2,), dtype="int8") + relay.const(1, "int8"),
    ):
        mod = module(body)
        assert ToMixedPrecision()(mod)["main"] is mod["main"]
    text = str(ToMixedPrecision()(module(relay.nn.softmax(dense(x)))))
    assert text.count("cast(") == 3  # of the operands, and of the result; none is cast there and back


def test_operators_may_have_another_kind():
    x = relay.var("x", shape=(3, 4))
    with TempOpAttr("nn.dense", "FTVMMixedPrecisionConversionType", lambda c, d: [MIXED_PRECISION_NEVER, d, d]):
        assert "float16" not in str(ToMixedPrecision("float16")(module(dense(x))))
    assert callable(register_mixed_precision_conversion)


def test_operators_of_unknown_kind():
    mod = module(relay.erf(relay.ceil(dense(relay.var("x", shape=(3, 4))))))
    with pytest.raises(error.UnsupportedOperator, match="ceil"):
        ToMixedPrecision("float16", 0)(mod)
    with pytest.warns(UserWarning, match="leaves: ceil"):
        ToMixedPrecision("float16")(mod)
    assert "ceil" in str(ToMixedPrecision("float16", 2)(mod))
