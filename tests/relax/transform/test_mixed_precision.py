"""Products in half precision: which operators change, and how near results stay."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import error, relax
from weft.relax.analysis import well_formed
from weft.relax.rewriter import all_bindings
from weft.relax.transform import ToMixedPrecision
from weft.script import from_source

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32"),
             p: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.matmul(x, w)
            c = R.nn.relu(a)
            d = R.multiply(c, R.const(0.5, "float32"))
            e = R.add(d, b)
            f = R.nn.softmax(e)
            g = R.matmul(d, w)
            h = R.concat([c, g], axis=1)
            s = R.sum(h, axis=1)
            R.output(f, h, s)
        if p:
            r = R.matmul(f, w)
        else:
            r = R.exp(f)
        return (r, h, s)
"""
MOD = from_source(SOURCE)


def run(mod, p=True, half=False):
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, np.float32) for s in ((4, 8), (8, 8), (8,))]
    if half:
        args[1] = args[1].astype("float16")
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())
    return [t.numpy() for t in vm["main"](*args, np.array(p))]


def dtypes(func):
    return {
        b.var.name_hint: [getattr(a.ty, "dtype", "") for a in b.value.args] + [b.var.ty.dtype]
        for b in all_bindings(func)
        if hasattr(b.value, "args") and hasattr(b.var.ty, "dtype")
    }


@pytest.mark.parametrize("out_dtype", ["float16", "float32"])
@pytest.mark.parametrize("p", [True, False])
def test_results_stay_near(out_dtype, p):
    new = ToMixedPrecision(out_dtype)(MOD)
    well_formed(new)
    for found, wanted in zip(run(new, p), run(MOD, p), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2)
        assert not np.array_equal(found, wanted)
    assert ToMixedPrecision(out_dtype)(new) is new


def test_who_is_half():
    found = dtypes(ToMixedPrecision("float16")(MOD)["main"])
    assert found["a16"] == ["float16", "float16", "float16"]
    assert found["c16"] == ["float16", "float16"]
    assert found["d16"] == ["float16", "float16", "float16"]
    assert found["e"] == ["float32", "float32", "float32"], "one operand is no product"
    assert found["f"] == ["float32", "float32"]
    assert found["g16"] == ["float16", "float16", "float16"]
    assert found["s"] == ["float32", "float32"]
    assert sum(d[:1] == ["float32"] and d[-1] == "float16" for n, d in found.items() if n.startswith("w16")) == 2
    assert dtypes(ToMixedPrecision("float32")(MOD)["main"])["a"] == ["float16", "float16", "float32"]


def test_half_parameters():
    new = ToMixedPrecision("float32", ["w"])(MOD)
    assert [getattr(p.ty, "dtype", "") for p in new["main"].params] == ["float32", "float16", "float32", "bool"]
    well_formed(new)
    for found, wanted in zip(run(new, half=True), run(MOD), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2)


def test_nothing_to_do():
    plain = from_source(
        SOURCE.replace("R.matmul(x, w)", "R.exp(x)")
        .replace("R.matmul(d, w)", "R.sin(d)")
        .replace("R.matmul(f, w)", "R.sin(f)")
    )
    assert ToMixedPrecision()(plain) is plain
    with pytest.raises(error.InvalidArgument, match="'float16' or 'float32'"):
        ToMixedPrecision("bfloat16")(MOD)


def test_convolutions():
    mod = written("""
x: (1, 3, 6, 6), w: (4, 3, 3, 3)
a = R.nn.conv2d(x, w, padding=(1, 1))
b = R.nn.max_pool2d(a, pool_size=(2, 2), strides=(2, 2))
""")
    new = ToMixedPrecision("float16")(mod)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, np.float32) for s in ((1, 3, 6, 6), (4, 3, 3, 3))]
    found, wanted = (
        relax.VirtualMachine(weft.compile(m, target="llvm"), weft.cpu())["main"](*args).numpy() for m in (new, mod)
    )
    np.testing.assert_allclose(found, wanted, rtol=3e-2, atol=3e-2)
    assert dtypes(new["main"])["b16"] == ["float16", "float16"]
