"""Operators that write over an operand: which ones may, that values stay, and that nothing else is written."""

import numpy as np
import pytest

from weft import ir, relax, runtime
from weft.relax.testing import transform as inside
from weft.relax.transform import DataflowUseInplaceCalls
from weft.script import ir as I
from weft.script import relax as R


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((1, 3), "float32")):
        with R.dataflow():
            a = R.add(x, y)  # x is the caller's
            b = R.multiply(a, y)  # over a
            c = b
            d = R.subtract(b, y)  # b lives on as c
            e = R.nn.relu(c)  # over c, which is b
            v = R.expand_dims(e, 0)
            f = R.add(d, e)  # over d alone: v is e's memory
            R.output(f, v)
        return (f, v)


def _places(mod: ir.IRModule) -> dict[str, tuple[int, ...]]:
    bindings = mod["main"].body.blocks[0].bindings
    return {
        b.var.name_hint: b.value.attrs["inplace_indices"]
        for b in bindings
        if isinstance(b.value, ir.Call) and b.value.op.name == "relax.call_tir_inplace"
    }


@pytest.mark.parametrize("n", [0, 1, 5])
def test_values_stay_and_arguments_are_not_written(n):
    new = DataflowUseInplaceCalls()(Chain)
    assert _places(new) == {"b": (0,), "e": (0,), "f": (0,)}
    x = np.random.default_rng(n).standard_normal((n, 3)).astype("float32")
    y = np.linspace(-1, 1, 3, dtype="float32").reshape(1, 3)
    given = [runtime.tensor(x), runtime.tensor(y)]
    f, v = relax.VirtualMachine(relax.build(new, "llvm"), runtime.cpu())["main"](*given)
    wide = (x.astype("float64") + y) * y
    np.testing.assert_allclose(f.numpy(), wide - y + np.maximum(wide, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v.numpy(), np.maximum(wide, 0)[None], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given[0].numpy(), x)


def test_what_calls_of_others_return_may_be_what_they_got():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.call_pure_packed("same", x, ty_args=R.Tensor((2,), "float32"))
            t = (x, R.exp(x))
            b = t[1]
            c = R.add(a, b)
            R.output(c)
        return c

    block = main.body.blocks[0]
    sets, parts = inside.dataflow_alias_analysis(block, main.params)
    named = {v.name_hint: s for v, s in sets.items()}
    assert named["x"] < named["a"]
    assert not named["b"] & named["x"]
    assert list(parts) == list(named["t"])
    live = {v.name_hint: r for v, r in inside.dataflow_liveness_analysis(block).items()}
    assert live["x"] == (-1, len(block.bindings))
    (place,) = inside.dataflow_inplace_analysis(block, main.params)[1]
    assert place[1] == {1}  # nothing needs the tuple that holds b, but a may be x


@I.ir_module
class Lasting:
    @R.function(private=True)
    def table() -> R.Tensor((3,), "float32"):
        return R.const([5.0, 6.0, 7.0], "float32")

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Lasting
        with R.dataflow():
            a = R.const([1.0, 2.0, 3.0], "float32")
            b = R.add(a, x)
            c = cls.table()
            d = R.multiply(c, b)  # over b alone
            R.output(d)
        return d


def test_constants_are_not_written():
    new = DataflowUseInplaceCalls()(Lasting)
    assert _places(new) == {"d": (1,)}
    main = relax.VirtualMachine(relax.build(new, "llvm"), runtime.cpu())["main"]
    for _ in range(2):
        np.testing.assert_array_equal(main(np.ones(3, "float32")).numpy(), [10, 18, 28])
