"""Functions of float32 against float64: the ULP that each docstring states, special values, no calls in vector code."""

import inspect
import math
import re

import numpy as np
import pytest

from tests.target.programs import N, elementwise
from weft import tir
from weft.ir import CallIntrin, Op
from weft.target import Target, build, get_source
from weft.tir.transform.math_float32 import POLYNOMIALS

EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38], np.float32
)
LEAST = 1.1754944e-38
NAMES = {f"a{n}": f"arc{n}" for n in "sin cos tan sinh cosh tanh tan2".split()} | {"pow": "power"}
OTHERS = """
    exp exp2 exp10 log log2 log10 log1p tanh sinh erf sigmoid sin cos tan asin acos atan sqrt rsqrt atanh""".split()


def exact(name, *args):
    args = [a.astype(np.float64) for a in args]
    if name == "erf":
        return np.vectorize(math.erf, otypes=[float])(args[0])
    if name == "sigmoid":
        return 1 / (1 + np.exp(-args[0]))
    if name == "exp10":
        return np.power(10.0, args[0])
    return getattr(np, NAMES.get(name, name))(*args)


def arguments(name):
    rng = np.random.default_rng(3)
    patterns = np.arange(0, 2**32, 400009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [np.float32(v) * (1 + np.linspace(-1e-3, 1e-3, 500)) for v in (1, -1, math.pi, math.pi / 2, 1e6 * math.pi)]
    near += [rng.normal(size=5000) * 3, rng.uniform(-100, 100, 5000)]
    x = np.concatenate([EDGES, patterns, *near]).astype(np.float32)
    parameters = inspect.signature(POLYNOMIALS["tir." + name]).parameters.values()
    if sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) == 1:
        return [x]
    grid = np.array([(a, b) for a in EDGES for b in EDGES], np.float32)
    some = np.abs(rng.normal(size=5000) * 10), rng.normal(size=5000) * 8
    whole = rng.normal(size=3000) * 4, rng.integers(-20, 20, 3000)
    return [
        np.concatenate([grid[:, 0], x, some[0], whole[0]]).astype(np.float32),
        np.concatenate([grid[:, 1], rng.permutation(x), some[1], whole[1]]).astype(np.float32),
    ]


def stated_ulp(name):
    return float(re.search(r"At most (\d+) ULP", POLYNOMIALS["tir." + name].__doc__)[1])


def ulp(found, want):
    rounded = want.astype(np.float32)
    spacing = np.spacing(np.maximum(np.abs(rounded), np.float32(LEAST))).astype(np.float64)
    error = np.abs(found.astype(np.float64) - want) / spacing
    return np.where((np.isnan(found) & np.isnan(want)) | (found == rounded), 0, error)


def kernel(name, lanes=16):
    count = 2 if name in ("pow", "atan2", "hypot", "fmod") else 1
    return elementwise(
        lambda *a: CallIntrin(a[0].dtype, Op.get("tir." + name), a), ["float32"] * count, "float32", N, lanes
    )


@pytest.mark.parametrize("name", [n.removeprefix("tir.") for n in POLYNOMIALS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_accuracy(name):
    args = arguments(name)
    want = exact(name, *args)
    for target, lanes in (("llvm", 16), ("llvm -mcpu=haswell", 8), ("llvm -mcpu=x86-64", 4), ("llvm", 0)):
        out = np.zeros_like(args[0])
        build(kernel(name, lanes), Target(target))["main"](*args, out)
        error = ulp(out, want)
        error[np.abs(want) < LEAST] = 0  # may be flushed
        worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
        assert error[worst] <= stated_ulp(name), ([float(a[worst]) for a in args], out[worst], want[worst], target)
        assert np.all(np.abs(out[np.abs(want) < LEAST]) <= np.float32(1.2e-38))
        edge = slice(0, 256 if len(args) > 1 else len(EDGES))
        sign = np.signbit(out[edge]) == np.signbit(want[edge])
        assert sign[~np.isnan(out[edge])].all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_values():
    cases = {
        "exp": {-np.inf: 0, np.inf: np.inf, np.nan: np.nan, 89: np.inf, -104: 0},
        "log": {0: -np.inf, -1: np.nan, np.inf: np.inf, 1: 0, 1e-45: math.log(1.401298464324817e-45)},
        "tanh": {np.inf: 1, -np.inf: -1, np.nan: np.nan},
        "sin": {np.inf: np.nan, 1e30: math.sin(np.float32(1e30))},
        "acosh": {0.5: np.nan, 1: 0},
    }
    for name, values in cases.items():
        x = np.array(list(values), np.float32)
        out = np.zeros_like(x)
        build(kernel(name), "llvm")["main"](x, out)
        np.testing.assert_allclose(out, np.array(list(values.values()), np.float32), rtol=3e-7, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "pow", "atan", "asinh"])
def test_no_call_out_of_vectors(name):
    text = get_source(kernel(name), Target("llvm -mcpu=x86-64-v4"), "asm")
    body = text.split("main_impl:")[1].split(".Lfunc_end")[0]
    assert not re.search(r"\bcall", body)
    assert "zmm" in body


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "log"])
def test_no_call_out_of_vectors_of_float64(name):
    made = elementwise(lambda x: CallIntrin(x.dtype, Op.get("tir." + name), (x,)), ["float64"], "float64", N, 4)
    text = get_source(made, Target("llvm -mcpu=haswell"), "asm")
    assert not re.search(r"\bcall", text.split("main_impl:")[1].split(".Lfunc_end")[0])
    x, out = np.linspace(0.1, 5, 101), np.zeros(101)
    build(made, Target("llvm -mcpu=haswell"))["main"](x, out)
    np.testing.assert_allclose(out, exact(name, x), rtol=1e-15)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_far_arguments_only_are_called_out(name):
    text = get_source(kernel(name), Target("llvm -mcpu=x86-64-v4"), "ll")
    assert f"@weft.lanes.{name}.v16f64" in text
    assert text.count(f"call <16 x double> @weft.lanes.{name}") >= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_other_types(dtype, lanes):
    x = np.random.default_rng(0).uniform(0.05, 0.95, 37).astype(tir.numpy_dtype(dtype))
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[dtype]
    for name in OTHERS:
        func = elementwise(
            lambda v, name=name: CallIntrin(v.dtype, Op.get("tir." + name), (v,)), [dtype], dtype, N, lanes
        )
        out = np.zeros_like(x)
        build(func, "llvm")["main"](x, out)
        want = 1 / np.sqrt(x.astype(np.float64)) if name == "rsqrt" else exact(name, x)
        np.testing.assert_allclose(out.astype(np.float64), want, rtol=tolerance, err_msg=name)


def test_rounding_and_classes():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.4, np.nan, np.inf, -np.inf, 8388609.0], np.float32)
    for target in ("llvm", "llvm -mcpu=x86-64"):
        for name in "floor ceil trunc round nearbyint fabs".split():
            want = getattr(np, "rint" if name in ("round", "nearbyint") else name)
            func = elementwise(
                lambda v, name=name: CallIntrin(v.dtype, Op.get("tir." + name), (v,)), ["float32"], "float32", N, 8
            )
            out = np.zeros_like(x)
            build(func, target)["main"](x, out)
            np.testing.assert_array_equal(out, want(x))
        for name, want in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
            func = elementwise(getattr(tir, name), ["float32"], "bool", N, 0)
            out = np.zeros(x.shape, bool)
            build(func, target)["main"](x, out)
            np.testing.assert_array_equal(out, want(x))
