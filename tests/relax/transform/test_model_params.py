"""Weights in a tuple, prepared once, or taken one by one: results stay."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import error, relax
from weft.relax import transform
from weft.relax.analysis import well_formed
from weft.script import from_source

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32"),
             u: R.Tensor((4,), "float32"), unused: R.Tensor((9,), "float32")):
        n = T.int64()
        R.func_attr({"num_input": 1})
        with R.dataflow():
            w2 = R.multiply(w, w)
            b2 = R.multiply(b, R.const(2.0, "float32"))
            o = R.ones((n, 4), "float32")
            y = R.matmul(x, w2)
            z = R.add(R.add(y, b2), o)
            v = R.add(z, u)
            R.output(v)
        return v
"""
MOD = from_source(SOURCE)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3), np.float32)
WEIGHTS = [RNG.standard_normal(s, np.float32) for s in ((3, 4), (4,), (4,), (9,))]
EXPECTED = X @ WEIGHTS[0] ** 2 + WEIGHTS[1] * 2 + 1 + WEIGHTS[2]


def machine(mod):
    well_formed(mod)
    return relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())


@pytest.mark.parametrize("name", ["model_params", "ps"])
def test_bundle(name):
    new = transform.BundleModelParams(*([name] if name == "ps" else []))(MOD)
    assert [p.name_hint for p in new["main"].params] == ["x", name]
    np.testing.assert_allclose(machine(new)["main"](X, tuple(WEIGHTS)).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)
    assert transform.BundleModelParams(name)(new)["main"] is new["main"]


@pytest.mark.parametrize("shared", [False, True])
def test_lift(shared):
    new = transform.LiftTransformParams(shared)(MOD)
    name = "transform_params" if shared else "main_transform_params"
    assert {v.name_hint for v in new} == {"main", name}
    assert [p.name_hint for p in new["main"].params] == ["x", "u", "w2", "b2"]
    assert "ones" in str(new["main"]), "what depends on the size of an input stays"
    vm = machine(new)
    prepared = vm[name](tuple(WEIGHTS))
    np.testing.assert_allclose(prepared[1].numpy(), WEIGHTS[0] ** 2)
    np.testing.assert_allclose(vm["main"](X, *prepared).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)


def test_nothing_to_lift():
    plain = from_source(SOURCE.replace('R.func_attr({"num_input": 1})', "pass"))
    assert transform.LiftTransformParams()(plain) is plain
    assert transform.BundleModelParams()(plain) is plain
    two = from_source(SOURCE + SOURCE.split("class Module:")[1].replace("def main", "def other"))
    assert {v.name_hint for v in transform.LiftTransformParams()(two)} == {
        "main",
        "other",
        "main_transform_params",
        "other_transform_params",
    }
    for shared in (True, ["other", "main"]):
        new = transform.LiftTransformParams(shared)(two)
        assert {v.name_hint for v in new} == {"main", "other", "transform_params"}
        vm = machine(new)
        prepared = vm["transform_params"](tuple(WEIGHTS))
        for name in ("main", "other"):
            np.testing.assert_allclose(vm[name](X, *prepared).numpy(), EXPECTED, rtol=1e-5, atol=1e-5)
    assert {v.name_hint for v in transform.LiftTransformParams(["main"])(two)} == {"main", "other", "transform_params"}
    with pytest.raises(error.InvalidArgument, match=r"(?s)no such function with weights.*found none"):
        transform.LiftTransformParams(["main", "none"])(two)


SHARED = """@I.ir_module
class Module:
    @R.function
    def first(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, "k"), "float32"), v: R.Tensor((3, "k"), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            one = R.ones((3, 1), "float32")
            a = R.exp(w)
            b = R.builtin.stop_lift_params(R.add(v, one))
            c = R.add(R.negative(b), one)
            y = R.add(R.matmul(x, R.add(a, c)), R.matmul(x, R.broadcast_to(one, R.shape([3, 1]))))
            R.output(y)
        return y

    @R.function
    def second(x: R.Tensor(("n", 3), "float32"), s: R.Tensor((3, "m"), "float32"), t: R.Tensor((3, "m"), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            b = R.add(t, R.ones((3, 1), "float32"))
            a = R.exp(s)
            c = R.exp(R.exp(t))
            y = R.matmul(x, R.multiply(R.multiply(a, b), c))
            R.output(y)
        return y
"""


def test_functions_share_what_all_compute():
    mod = from_source(SHARED)
    new = transform.LiftTransformParams(shared_transform=True)(mod)
    # what both have, and what one still uses
    assert [p.name_hint for p in new["first"].params] == ["x", "v", "a", "lv"]
    x, w, v = (RNG.standard_normal(s, np.float32) for s in ((5, 3), (3, 4), (3, 4)))
    vm, old = machine(new), machine(mod)
    prepared = vm["transform_params"]((w, v))
    for name in ("first", "second"):
        np.testing.assert_allclose(vm[name](x, *prepared).numpy(), old[name](x, w, v).numpy(), rtol=1e-5, atol=1e-5)
    assert "exp" in str(new["transform_params"]) and "stop_lift" not in str(new)
    last = 't: R.Tensor((3, "m"), "float32")'
    other = from_source(SHARED.replace(last, f'{last}, more: R.Tensor((3,), "float32")'))
    with pytest.raises(error.InvalidArgument, match="share a transform take the same weights"):
        transform.LiftTransformParams(shared_transform=True)(other)


SIZES = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32"), w: R.Tensor(("m", "k"), "float32"), s: R.Shape(["q"])):
        m, k, q = T.int64(), T.int64(), T.int64()
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.sum(R.exp(w), axis=[1])
            y = R.add(R.reshape(R.broadcast_to(x, R.shape([q, 3])), R.shape([q * 3])), R.ones((q * 3,), "float32"))
            z = R.add(R.broadcast_to(x, R.shape([k, 3])), R.sum(a))
            R.output(y, z)
        return (y, z)
"""


@pytest.mark.parametrize("shared", [False, True])
def test_sizes_that_only_lifted_weights_had_are_passed_on(shared):
    """``k`` comes from a weight that is not needed any more, ``q`` from a shape among the weights."""
    old, new = from_source(SIZES), transform.LiftTransformParams(shared)(from_source(SIZES))
    assert len(new["main"].params) == 3 and str(new["main"].params[1].ty) == "R.Shape([k, q])"
    vm = machine(new)
    given = (X[:3, 0].copy(), np.float32([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]), weft.runtime.ShapeTuple([4]))
    prepared = vm["transform_params" if shared else "main_transform_params"](given[1:])
    for found, expected in zip(vm["main"](given[0], *prepared), machine(old)["main"](*given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_lazy():
    new = transform.LazyTransformParams("test.params.get", "test.params.set")(transform.LiftTransformParams()(MOD))
    taken, stored = [], {}

    @weft.register_global_func("test.params.get", override=True)
    def get(i):
        taken.append(i)
        return weft.runtime.tensor(WEIGHTS[i])

    @weft.register_global_func("test.params.set", override=True)
    def put(i, value):
        stored[i] = weft.runtime.tensor(value.numpy())

    vm = machine(new)
    assert vm["main_transform_params"]() == ()
    assert sorted(taken) == [0, 1, 2]
    assert sorted(stored) == [0, 1, 2]
    found = vm["main"](X, *(stored[i] for i in range(3))).numpy()
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-5, atol=1e-5)


def test_weights_come_and_results_go_by_functions():
    source = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((3,), 'float32'), a: R.Tensor(('n',), "
        "'float32'), b: R.Tensor(('n',), 'float32')):\n        R.func_attr({'num_input': 1})\n"
        "        c = R.multiply(a, R.const(2, 'float32'))\n        return (R.add(c, b), b, c)\n"
    )
    new = transform.LazySetOutput()(transform.LazyGetInput()(source))
    assert int(new["main"].attrs["num_input"]) == 3 and not new["main"].is_pure
    weights, order, results = {"a": np.float32([1, 2]), "b": np.float32([5, 7])}, [], {}

    def get(place, name):
        order.append(name)
        return weft.runtime.tensor(weights[name])

    def put(place, value):
        results[place] = value.numpy().copy()
        order.append(place)

    args = [weft.runtime.tensor(np.zeros(3, "float32")), *map(weft.runtime.convert, (get, put))]
    assert machine(new)["main"](*args) == ()
    assert order == ["a", 2, "b", 1, 0] or order == ["a", 2, "b", 0, 1]
    np.testing.assert_array_equal(results[0], [7, 11])
    np.testing.assert_array_equal(results[1], [5, 7])
    np.testing.assert_array_equal(results[2], [2, 4])
