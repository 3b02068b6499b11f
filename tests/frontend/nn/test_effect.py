"""State across calls: caches that grow, and printing in order."""

import numpy as np
import pytest
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import compiled
from tests.refusals import refuses


class TwoCaches(nn.Module):
    def __init__(self):
        self.k = nn.KVCache(2, (2, 3))
        self.v = nn.KVCache(2, (2, 3))

    def forward(self, x, total):
        self.k.append(x)
        self.v.append(x * 2)
        return self.k.view(total) + 1, self.v.view(total)

    def length(self, total):
        return op.sum(self.k.view(total), [1, 2])


SPECS = {"forward": {"x": spec.Tensor(["n", 2, 3], "float32"), "total": int}, "length": {"total": int}}


def shape(*dims):
    return weft.runtime.ShapeTuple(dims)


@pytest.mark.parametrize("mode", ["plain", "packed"])
def test_caches_grow(mode):
    specs = {k: {**v, "$": {"effect_mode": mode}} for k, v in SPECS.items()}
    mod, params = TwoCaches().export_tvm(specs)
    assert params == [] and mod["forward"].attrs["num_input"] == (4 if mode == "plain" else 3)
    vm = compiled(mod)
    state = vm["_initialize_effect"]()
    rng, seen = np.random.default_rng(0), np.zeros((0, 2, 3), "float32")
    pack = (lambda s: s) if mode == "plain" else lambda s: [s]
    for n in (1, 1, 3, 0, 7):
        x = rng.standard_normal((n, 2, 3), "float32")
        seen = np.concatenate([seen, x])
        (k, v), state = vm["forward"](weft.runtime.tensor(x), shape(len(seen)), *pack(state))
        np.testing.assert_array_equal(k.numpy(), seen + 1)
        np.testing.assert_array_equal(v.numpy(), seen * 2)
    total, state = vm["length"](shape(5), *pack(state))
    np.testing.assert_allclose(total.numpy(), seen[:5].sum((1, 2)), rtol=1e-5)
    refuses(Exception, "the cache has no such rows", vm["length"], shape(13), *pack(state))


def test_fresh_states_are_apart():
    vm = compiled(TwoCaches().export_tvm(SPECS)[0])
    one, two = vm["_initialize_effect"](), vm["_initialize_effect"]()
    x = np.ones((1, 2, 3), "float32")
    for state, n in ((one, 1), (one, 2), (two, 1)):
        (k, _), _ = vm["forward"](weft.runtime.tensor(x), shape(n), *state)
        assert k.shape == (n, 2, 3)


def test_effect_mode_none():
    with pytest.raises(weft.error.InvalidArgument, match="does not get the KVCache"):
        TwoCaches().export_tvm({"length": {"total": int, "$": {"effect_mode": "none"}}})


def test_wrong_rows():
    cache = TwoCaches()
    with pytest.raises(weft.error.ShapeMismatch) as e:
        cache.export_tvm({"forward": {"x": spec.Tensor(["n", 6], "float32"), "total": int}})
    assert "expected (n, 2, 3) float32, found (n, 6) float32" in str(e.value)
    assert "self.k.append(x)" in str(e.value)


def test_runtime_errors():
    make = weft.get_global_func("vm.builtin.attention_kv_cache_create")
    append = weft.get_global_func("vm.builtin.attention_kv_cache_append")
    view = weft.get_global_func("vm.builtin.attention_kv_cache_view")
    start = weft.runtime.tensor(np.arange(6, dtype="float32").reshape(3, 2))
    cache = make(start, shape(4, 2), 2)
    append(cache, start)
    np.testing.assert_array_equal(view(cache, shape(5, 2)).numpy(), np.concatenate([start.numpy()[:2], start.numpy()]))
    for call, text in (
        (lambda: append(cache, weft.runtime.tensor(np.zeros((1, 3), "float32"))), "rows are not those"),
        (lambda: append(cache, weft.runtime.tensor(np.zeros((1, 2), "int32"))), "rows are not those"),
        (lambda: view(cache, shape(5, 3)), "has no such rows"),
        (lambda: append(start, start), "no cache of keys and values"),
        (lambda: make(start, shape(4, 3), 0), "do not fit the cache"),
    ):
        refuses(Exception, text, call)


class Printing(nn.Module):
    define_subroutine = True

    def __init__(self, depth=1):
        self.inner = Printing(depth - 1) if depth else None

    def forward(self, x):
        op.print_(x)
        y = x + 1 if self.inner is None else self.inner(x + 1)
        op.debug_func("test.nn.debug", y, 3, "text")
        return y


def test_printing_in_order(capfd):
    calls = []
    weft.register_global_func("test.nn.debug", lambda *args: calls.append(args), override=True)
    mod, _ = Printing().export_tvm({"forward": {"x": spec.Tensor(["n"], "float32")}}, debug=True)
    vm = compiled(mod)
    y, state = vm["forward"](weft.runtime.tensor(np.zeros(2, "float32")), *vm["_initialize_effect"]())
    np.testing.assert_array_equal(y.numpy(), [2, 2])
    out = capfd.readouterr().out
    assert out.index("[0. 0.]") < out.index("[1. 1.]") and "test_effect.py:" in out
    assert [(c[0].rsplit(":", 1)[0], c[1].numpy().tolist(), c[2], c[3]) for c in calls] == [
        (__file__, [2.0, 2.0], 3, "text")
    ] * 2


def test_printing_needs_debug():
    with pytest.raises(weft.error.InvalidArgument, match="export with debug=True"):
        Printing().export_tvm({"forward": {"x": spec.Tensor(["n"], "float32")}})
