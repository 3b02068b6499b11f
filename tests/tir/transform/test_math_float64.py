"""Functions of float64 without a C library: a few ULP from numbers of 64 bits, and C's special values."""

import math

import numpy as np
import pytest

import weft
from weft import ir, tir
from weft.script import tir as T

_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 5e-324, -5e-324, 2.0**-1022, 1e308, -1e308])
_N = 4000


def _compiled(name, arguments):
    """The function on arrays of any length, with nothing left to call."""
    op, n = getattr(T, name), T.int64()
    if arguments == 2:

        @T.prim_func
        def f(A: T.Buffer((n,), "float64"), B: T.Buffer((n,), "float64"), C: T.Buffer((n,), "float64")):
            for i in range(n):
                C[i] = op(A[i], B[i])

    else:

        @T.prim_func
        def f(A: T.Buffer((n,), "float64"), C: T.Buffer((n,), "float64")):
            for i in range(n):
                C[i] = op(A[i])

    mod = tir.transform.lower_math(library=False)(weft.IRModule({"f": f}))
    assert not any(isinstance(x, ir.CallIntrin) and x.op.name == f"tir.{name}" for x in ir.walk(mod["f"].body))
    built = weft.build(mod, "llvm")["f"]

    def run(*xs):
        out = np.empty_like(xs[0])
        tensors = [weft.runtime.tensor(np.ascontiguousarray(x)) for x in (*xs, out)]
        built(*tensors)
        return tensors[-1].numpy()

    return run


def _check(got, expected, ulp):
    with np.errstate(over="ignore"):
        rounded = expected.astype("float64")
    plain = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~plain], rounded[~plain])
    error = np.abs(got[plain] - expected[plain]) / np.spacing(np.abs(rounded[plain]))
    assert error.max() < ulp
    assert np.array_equal(np.signbit(got[rounded == 0]), np.signbit(rounded[rounded == 0]))


def _numbers(low, high):
    """Numbers between limits, and of every size, subnormal ones among them."""
    rng = np.random.default_rng(7)
    sizes = np.ldexp(rng.uniform(-1, 1, _N), rng.integers(-1074, 1024, _N))
    near = np.ldexp(rng.uniform(-1, 1, _N), rng.integers(-60, 8, _N))
    found = np.concatenate([rng.uniform(low, high, _N), sizes, near])
    return np.concatenate([found[(found >= low) & (found <= high)], _SPECIAL])


_FUNCTIONS = {
    "exp": (np.exp, -760.0, 720.0, 1.5),
    "exp2": (np.exp2, -1080.0, 1030.0, 1.5),
    "exp10": (lambda x: np.longdouble(10) ** x, -330.0, 310.0, 2),
    "log": (np.log, -1.0, 1e300, 1.5),
    "log2": (np.log2, -1.0, 1e300, 2),
    "log10": (np.log10, -1.0, 1e300, 2),
    "log1p": (np.log1p, -1.5, 1e300, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -700.0, 700.0, 3),
    "tanh": (np.tanh, -30.0, 30.0, 3),
    "sinh": (np.sinh, -715.0, 715.0, 3),
    "cosh": (np.cosh, -715.0, 715.0, 3),
    "asinh": (np.arcsinh, -1e300, 1e300, 3),
    "acosh": (np.arccosh, -2.0, 1e300, 3),
    "atanh": (np.arctanh, -1.1, 1.1, 3),
    "atan": (np.arctan, -1e3, 1e3, 2),
    "asin": (np.arcsin, -1.1, 1.1, 3),
    "acos": (np.arccos, -1.1, 1.1, 3),
    "erf": (lambda x: np.vectorize(math.erf)(x.astype("float64")).astype("longdouble"), -6.5, 6.5, 3.5),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions_of_one_number(name):
    reference, low, high, ulp = _FUNCTIONS[name]
    x = _numbers(low, high)
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(x.astype("longdouble")))
    _check(_compiled(name, 1)(x), expected, ulp)


@pytest.mark.parametrize(("name", "ulp"), [("pow", 2), ("hypot", 2.5), ("atan2", 2.5)])
def test_functions_of_two_numbers(name, ulp):
    rng = np.random.default_rng(8)
    x, y = (np.repeat(_SPECIAL, len(_SPECIAL)), np.tile(_SPECIAL, len(_SPECIAL)))
    base = np.concatenate([rng.uniform(0, 20, _N), 1 + np.ldexp(rng.uniform(-0.3, 0.4, _N), rng.integers(-30, 1, _N))])
    power = rng.uniform(-740, 700, 2 * _N) / np.log(base)
    whole = rng.integers(-9, 10, (2, _N)).astype("float64")
    x, y = np.concatenate([x, base, whole[0]]), np.concatenate([y, power, whole[1]])
    reference = {"pow": np.power, "hypot": np.hypot, "atan2": np.arctan2}[name]
    with np.errstate(all="ignore"):
        expected = reference(x.astype("longdouble"), y.astype("longdouble"))
        if name == "pow":  # a quotient of 0 and infinities has C's value
            expected[: len(_SPECIAL) ** 2] = np.power(x, y)[: len(_SPECIAL) ** 2]
    _check(_compiled(name, 2)(x, y), expected, ulp)


@pytest.mark.parametrize(("name", "ulp"), [("sin", 2.5), ("cos", 2.5), ("tan", 4)])
def test_waves_of_vectors(name, ulp):
    """Near multiples of pi / 2 too; where a lane is far out, the C library answers for its vector."""
    op = getattr(T, name)

    @T.prim_func
    def f(A: T.Buffer((3600, 8), "float64"), C: T.Buffer((3600, 8), "float64")):
        for i in range(3600):
            for j in T.vectorized(8):
                C[i, j] = op(A[i, j])

    once = tir.transform.lower_math()(tir.transform.vectorize_loop()(weft.lower(f)))
    assert ir.structural_equal(tir.transform.lower_math()(once), once)
    rng = np.random.default_rng(9)
    near, zeros = rng.uniform(-1e6, 1e6, 8000), rng.integers(1, 660000, 4000) * (np.pi / 2)
    near[::2] *= 1e-5
    parts = near, zeros, np.nextafter(zeros, 0), _numbers(-9e9, 9e9)
    x, out = np.resize(np.concatenate(parts), (3600, 8)), np.zeros((3600, 8))
    weft.build(f, "llvm")["f"](x, out)
    with np.errstate(all="ignore"):
        _check(out, getattr(np, name)(x.astype("longdouble")), ulp)
