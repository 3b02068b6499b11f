"""Functions of quantized tensors as tables, and the names that quantized operators take."""

import numpy as np
import pytest

from weft import error, relay
from weft.relay.qnn.op import canonicalizations, legalizations

F, Z = (lambda v: relay.const(v, "float32")), (lambda v: relay.const(v, "int32"))


@pytest.mark.parametrize(("source", "made"), [("uint8", "int8"), ("int8", "uint8"), ("int8", "int16")])
def test_a_table_is_the_function_of_all_numbers(source, made):
    x = np.arange(256, dtype="uint8").view(source)
    scales, types = (F(0.05), Z(3), F(0.1), Z(-4)), {"in_dtype": source, "out_dtype": made}
    function = legalizations.hardswish_func
    looked = canonicalizations.create_integer_lookup_op(relay.const(x), function, *scales, **types)
    real = (x.astype("float64") - 3) * np.float32(0.05)
    info = np.iinfo(made)
    wanted = np.clip(np.round(real * np.clip(real + 3, 0, 6) / 6 / np.float32(0.1) - 4), info.min, info.max)
    assert np.abs(canonicalizations.run_const_expr(looked) - wanted).max() <= 1  # where float32 rounds a half


def test_what_is_no_number_and_tables_that_are_refused():
    table = canonicalizations.create_integer_lookup_table(np.log, F(1.0), Z(0), F(1.0), Z(0), in_dtype="int8")
    assert table[0] == 0 and table[200] == 0 and table[8] == 2
    with pytest.raises(error.InvalidArgument, match="an entry for each input"):
        canonicalizations.create_integer_lookup_table(np.log, F(1.0), Z(0), F(1.0), Z(0), in_dtype="int16")
    with pytest.raises(error.InvalidArgument, match="one input_scale"):
        canonicalizations.create_integer_lookup_table(np.log, F([1.0, 2.0]), Z(0), F(1.0), Z(0))


def test_leaky_relu_of_one_scale_for_both():
    x = np.array([0, 9, 60, 133, 255], "uint8")
    var = relay.var("x", shape=x.shape, dtype="uint8")
    out = relay.qnn.op.qnn.leaky_relu(var, 0.9, scale=F(0.125), zero_point=Z(60))
    got = relay.create_executor("debug").evaluate(relay.Function([var], out))(x).numpy()
    wanted = np.where(x < 60, np.round(0.9 * (x.astype(int) - 60) + 60), x)
    assert np.abs(got.astype(int) - wanted).max() <= 1


def test_dimensions_that_only_run_time_knows_are_alike_whatever_their_width():
    a, b = (relay.TensorType((relay.Any(dtype=d), 3)) for d in ("int32", "int64"))
    assert a == b and hash(a) == hash(b)
