"""Element-wise operators."""

from __future__ import annotations

import numpy as np

from tests.relay.op.contract import Case, Sizes, call, case, cases

FLOATS = {
    "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "floor": np.floor, "isfinite": np.isfinite,
    "isinf": np.isinf, "isnan": np.isnan, "negative": np.negative, "round": np.rint, "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc, "abs": np.abs, "atan": np.arctan,
    "asinh": np.arcsinh, "sigmoid": lambda x: 1 / (1 + np.exp(-x.astype(np.float64))), "erf": None,
}  # fmt: skip
POSITIVE = {
    "log": np.log, "log10": np.log10, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5,
    "acosh": lambda x: np.arccosh(x + 1),
}  # fmt: skip
UNIT = {"acos": np.arccos, "asin": np.arcsin, "atanh": np.arctanh}


case(*FLOATS, make=lambda s, name: call(s.real(s.a, s.b), expect=FLOATS[name], rtol=1e-3))


@cases(*POSITIVE)
def _positive(s: Sizes, name: str) -> Case:
    if name == "acosh":
        return call(s.real(s.a, low=1.5, high=4), expect=np.arccosh)
    return call(s.real(s.a, s.b, low=0.1, high=9), expect=POSITIVE[name])


case(*UNIT, make=lambda s, name: call(s.real(s.b, low=-0.9, high=0.9), expect=UNIT[name]))
case("abs", "negative", "sign", make=lambda s, name: call(s.integer(s.a, s.b, dtype="int32"), expect=getattr(np, name)))
case("logical_not", make=lambda s: call(s.boolean(s.a, s.b), expect=np.logical_not))
case("bitwise_not", make=lambda s: call(s.integer(s.a), expect=np.invert))


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "floor_divide": lambda a, b: np.floor(a / b), "floor_mod": np.mod, "mod": np.fmod, "trunc_mod": np.fmod,
    "trunc_divide": lambda a, b: np.trunc(a / b),
}  # fmt: skip


@cases(*BINARY)
def _binary(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.b), s.real(s.b, low=0.5), expect=BINARY[name], rtol=1e-3, atol=1e-4)


@cases("mod", "trunc_mod", "trunc_divide", "divide", "floor_mod", "floor_divide")
def _integer_division(s: Sizes, name: str) -> Case:
    by_name = {"floor_mod": np.mod, "floor_divide": np.floor_divide}
    fallback = np.fmod if "mod" in name else (lambda a, b: np.trunc(a / b).astype(a.dtype))
    return call(
        s.integer(s.a, s.b, dtype="int32"), s.integer(1, low=1, dtype="int32"), expect=by_name.get(name, fallback)
    )


case("power", make=lambda s: call(s.real(s.a, s.b, low=0.1), s.real(1), expect=np.power, rtol=1e-3))


@cases("logical_and", "logical_or", "logical_xor")
def _logical(s: Sizes, name: str) -> Case:
    return call(s.boolean(s.a, s.b), s.boolean(s.b), expect=getattr(np, name))


@cases("bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(s: Sizes, name: str) -> Case:
    return call(s.integer(s.a, s.b), s.integer(s.b), expect=getattr(np, name))


@cases("left_shift", "right_shift")
def _shifts(s: Sizes, name: str) -> Case:
    return call(
        s.integer(s.a, low=0, dtype="int32"), s.integer(s.a, low=0, high=5, dtype="int32"), expect=getattr(np, name)
    )


case("cast", make=lambda s: call(s.real(s.a, s.b), dtype="int32", expect=lambda x: x.astype("int32")))
case("cast_like", make=lambda s: call(s.real(s.a, s.b), s.integer(3), expect=lambda x, y: x.astype(y.dtype)))
case("clip", make=lambda s: call(s.real(s.a, s.b), a_min=-1.0, a_max=2.0, expect=lambda x: np.clip(x, -1, 2)))
case("copy", make=lambda s: call(s.real(s.a, s.b), expect=lambda x: x))
case("where", make=lambda s: call(s.boolean(s.a, 1), s.real(s.b), s.real(s.a, s.b), expect=np.where))


@cases("where")
def _where_integers(s: Sizes) -> Case:
    return call(
        s.integer(s.a, low=0, high=2, dtype="int32"), s.real(s.a), s.real(s.a), expect=lambda c, x, y: np.where(c, x, y)
    )


@cases("fixed_point_multiply")
def _fixed(s: Sizes) -> Case:
    return call(
        s.integer(s.a, s.b, low=-5000, high=5000, dtype="int32"), multiplier=1 << 30, shift=2, expect=lambda x: x * 2
    )


@cases("fixed_point_multiply")
def _fixed_rounded(s: Sizes) -> Case:
    return call(s.integer(s.a, dtype="int32"), multiplier=1 << 30, shift=0, expect=lambda x: np.floor(x / 2 + 0.5))


@cases("fast_exp", "fast_tanh", "fast_erf")
def _fast(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.b), expect={"fast_exp": np.exp, "fast_tanh": np.tanh}.get(name))


case("reinterpret", make=lambda s: call(s.real(s.a, s.b), dtype="int32", expect=lambda x: x.view("int32")))


@cases("relay.op.annotation.simulated_quantize")
def _simulated_quantize(s: Sizes) -> Case:
    limits = np.float32(0.25), np.float32(-7), np.float32(7)
    return call(
        s.real(s.a, s.b), *limits, kind=1, expect=lambda x, d, low, high: np.clip(np.rint(x / d), low, high) * d
    )
