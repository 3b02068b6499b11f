"""Element-wise operators, over data types and broadcasts."""

import numpy as np

from tests.op.contract import Case, Cases, Sizes, call, case, cases
from weft.op import list_ops

FLOAT_ONLY = {
    name: (float(low), float(high))
    for name, low, high in (
        words.split(":")
        for words in """acos:-1:1 acosh:1:9 asin:-1:1 asinh:-9:9 atan:-9:9 atanh:-0.99:0.99 cos:-9:9 cosh:-4:4 erf:-4:4
        exp:-20:20 log:0.01:99 rsqrt:0.01:99 sigmoid:-20:20 sin:-9:9 sinh:-4:4 sqrt:0:99 tan:-1.4:1.4 tanh:-9:9
        reciprocal:0.1:9 log2:0.01:99 log10:0.01:99 log1p:-0.9:99 expm1:-3:3""".split()
    )
}
ACTIVATIONS = (
    "nn.gelu nn.gelu_tanh nn.silu nn.softplus nn.mish nn.hardswish nn.softsign nn.leakyrelu nn.elu nn.selu "
    "nn.hardsigmoid nn.celu nn.thresholded_relu nn.shrink"
).split()
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)
ANY_NUMBER = ("abs", "ceil", "floor", "negative", "round", "square", "trunc", "sign", "nn.relu")


@cases(*FLOAT_ONLY)
def _float_only(s: Sizes, name: str) -> Case:
    low, high = FLOAT_ONLY[name]
    return call(s.real(s.a, s.b, low=low, high=high), rtol=2e-5)


FLOAT64, HALF = "exp tanh sigmoid sqrt erf nn.gelu nn.silu".split(), "exp tanh sigmoid nn.gelu negative floor".split()
case(*FLOAT64, make=lambda s, name: call(s.real(s.b, dtype="float64", low=0.1, high=3), rtol=1e-6))
case(*HALF, make=lambda s, name: call(s.real(s.b, s.c, dtype="float16")))
case(*ACTIVATIONS, make=lambda s, name: call(s.real(s.a, s.b, s.c, low=-6, high=6), rtol=1e-4, atol=1e-5))
case(*ANY_NUMBER, make=lambda s, name: call(s.real(s.a, s.b, low=-6, high=6)))
case(*ANY_NUMBER, "nn.dropout", make=lambda s, name: call(s.integer(s.b)))


case("round", make=lambda s: call(s.rows(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5)))
case("sign", "nn.relu", "abs", "nn.leakyrelu", make=lambda s, name: call(s.rows(*SPECIAL)))
case("maximum", "minimum", make=lambda s, name: call(s.rows(*SPECIAL), s.real(6)))
case("isnan", "isinf", "isfinite", make=lambda s, name: call(s.rows(*SPECIAL)))
case("isnan", "isinf", "isfinite", make=lambda s, name: call(s.integer(s.b)))
case("logical_not", make=lambda s: call(s.boolean(s.a, s.b)))
case("bitwise_not", make=lambda s: call(s.integer(s.a, s.b, dtype="int32")))
case("bitwise_not", make=lambda s: call(s.integer(s.a, low=0, high=255, dtype="uint8")))
case("nn.leakyrelu", make=lambda s: call(s.real(s.b), alpha=0.3))
case("nn.prelu", make=lambda s: call(s.real(s.a, s.b, s.c), s.real(s.b, 1)))
case("nn.prelu", make=lambda s: call(s.real(s.a, s.b, s.c), s.real(s.b)))
case("nn.prelu", make=lambda s: call(s.real(s.a, s.b, s.c), s.real(s.c), axis=-1))
case("nn.prelu", make=lambda s: call(s.real(s.a, s.b, s.c), s.real(s.c), axis=None))
case("clip", make=lambda s: call(s.real(s.a, s.b), min=-1.0, max=0.5))
case("clip", make=lambda s: call(s.real(s.a, s.b), max=0.5))
case("clip", make=lambda s: call(s.integer(s.a, s.b), min=-2))
case("clip", make=lambda s: call(s.integer(s.a, low=0, high=255, dtype="uint8"), min=-1, max=300))
case("clip", make=lambda s: call(s.rows(np.nan, 9, -9), min=-1.0, max=1.0))


def _cast(source: str, target: str) -> None:
    @cases("astype")
    def make(s: Sizes) -> Case:
        return call(s.draw(source, s.a, s.b), dtype=target)


for _pair in (
    "float32:int64 float32:bool int64:float32 int64:int8 bool:float32 bool:int64 float32:float16 "
    "float16:float32 int32:uint8 uint8:float32 float32:float64 float64:float32 float32:bfloat16 int64:bool "
    "float32:float32"
).split():
    _cast(*_pair.split(":"))


case("reinterpret", make=lambda s: call(s.real(s.a, s.b), dtype="int32"))
case("reinterpret", make=lambda s: call(s.integer(s.a, s.b, low=1 << 52, high=1 << 60), dtype="float64"))


# --- two operands -----------------------------------------------------------------------------------------------------

ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
DIVISION = ("divide", "floor_divide", "mod", "floor_mod", "fmod")
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


case(*ARITHMETIC, *COMPARE, "divide", "log_add_exp", make=lambda s, name: call(s.real(s.a, s.b), s.real(s.a, s.b)))


@cases(*ARITHMETIC, *COMPARE)
def _broadcast(s: Sizes, name: str) -> Case:
    return call(s.integer(s.a, 1, s.c, low=-2, high=3), s.integer(s.b, 1, low=-2, high=3))


case(*ARITHMETIC, "atan2", make=lambda s, name: call(s.real(s.a, s.b), s.real()))


@cases("add", "maximum", "equal", "where", when=lambda s: s.a == s.d or 1 in (s.a, s.d))
def _maybe_one(s: Sizes, name: str) -> Case | None:
    """Two symbolic dimensions of which one is 1 at run time, or which are equal."""
    pair = s.real(s.a, s.b), s.real(s.d, s.b)
    return call(s.boolean(s.a, 1), *pair) if name == "where" else call(*pair)


@cases(*DIVISION)
def _division(s: Sizes, name: str) -> Case:
    y = s.real(s.a, s.b, low=0.5, high=3)
    y.value[:] *= np.sign(s.real(s.a, s.b).value)
    return call(s.real(s.a, s.b, low=-9, high=9), y, rtol=1e-4, atol=1e-5)


def _integer_division(dtype: str) -> None:
    @cases(*DIVISION)
    def make(s: Sizes, name: str) -> Case:
        return call(s.draw(dtype, s.a, s.b), s.draw(dtype, s.a, s.b))  # zero divisors among them


for _dtype in ("int64", "int32", "uint8", "int8"):
    _integer_division(_dtype)


@cases("power")
def _power(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.b, low=0.1, high=4), s.real(s.b), rtol=2e-5)
    y = s.real(s.a, s.b)
    y.value[:] = s.integer(s.a, s.b, low=-3, high=4).value
    yield call(s.real(s.a, s.b, low=-4, high=-0.3), y, rtol=2e-5)
    yield call(s.integer(s.a, s.b), s.integer(s.a, s.b, low=0, high=6))
    yield call(s.integer(s.a, s.b), s.integer(s.a, s.b, low=-5, high=23))


case("atan2", make=lambda s: call(s.real(s.a, s.b), s.real(s.a, s.b), rtol=1e-4))


BOOLS = "add logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor maximum minimum equal".split()
case(*BOOLS, make=lambda s, name: call(s.boolean(s.a, s.b), s.boolean(s.b)))


case(*BITWISE, make=lambda s, name: call(s.integer(s.a, s.b, dtype="int32"), s.integer(s.b, dtype="int32")))


@cases("left_shift", "right_shift")
def _shift(s: Sizes, name: str) -> Case:
    return call(s.integer(s.a, s.b, dtype="int32"), s.integer(s.a, s.b, low=0, high=9, dtype="int32"))


@cases("right_shift", "left_shift")
def _shift_unsigned(s: Sizes, name: str) -> Case:
    return call(s.integer(s.a, s.b, low=0, high=255, dtype="uint8"), s.integer(s.a, s.b, low=0, high=7, dtype="uint8"))


case("where", make=lambda s: call(s.boolean(s.b, 1), s.real(s.a, s.b, s.c), s.real(s.c)))
case("ewise_fma", make=lambda s: call(s.real(s.a, s.b), s.real(s.a, s.b), s.real(s.a, s.b)))


assert set(FLOAT_ONLY) | set(ANY_NUMBER) <= {*list_ops(), *FLOAT_ONLY}


case("nn.relu6", make=lambda s: call(s.real(s.a, s.b, low=-9, high=9)))
case("nn.softplus", make=lambda s: call(s.real(s.a, low=-60, high=60), rtol=1e-5, atol=1e-30))
case("nn.softplus", make=lambda s: call(s.real(s.a, low=-9, high=9), beta=2.0, rtol=1e-4, atol=1e-5))
case("wrap_param", make=lambda s: call(s.real(s.a, s.b), dtype="float16"))
