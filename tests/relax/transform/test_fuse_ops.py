"""FuseOps: what is shared does not make kernels that nobody waits for."""

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import relax
from weft.error import IndexOutOfRange
from weft.ir import Call, find
from weft.relax.core_ops import is_op


def chain(steps, step):
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = x
            for _ in range(steps):
                y = step(bb, y)
            out = bb.emit_output(relax.op.multiply(y, relax.const(1.0, "float32")))
        bb.emit_func_output(out)
    return bb.get()


def doubled(bb, y):
    return bb.emit(relax.op.add(y, y))


def steered(bb, y):
    """Heun's method for y' = -y: both slopes use the value, and the second the first."""
    first = bb.emit(relax.op.negative(y))
    second = bb.emit(relax.op.negative(bb.emit(relax.op.add(y, first))))
    return bb.emit(relax.op.add(y, bb.emit(relax.op.multiply(bb.emit(relax.op.add(first, second)), relax.const(0.5)))))


@pytest.mark.parametrize(("step", "steps", "factor"), [(doubled, 40, 2.0), (steered, 12, 0.5), (doubled, 3, 2.0)])
def test_values_that_are_used_twice_over_and_over(step, steps, factor):
    x = np.arange(1, 5, dtype="float32")
    vm = relax.VirtualMachine(weft.compile(chain(steps, step), "llvm"), weft.cpu())
    np.testing.assert_allclose(vm["main"](x).numpy(), x * factor**steps, rtol=1e-5)


def test_short_chains_are_one_kernel():
    mod = relax.get_pipeline("zero")(chain(8, doubled))
    calls = [b for block in mod["main"].body.blocks for b in block.bindings]
    assert len(calls) == 1


@pytest.mark.parametrize("n", [0, 1, 37])
def test_rows_that_go_to_one_place_are_one_kernel(n):
    """As messages in a graph: the index of a row is repeated for its elements, nowhere stored, and checked once."""
    i = relax.Var("i", relax.TensorType((n,), "int64"))

    def sums(x, i, u):
        rows = relax.op.broadcast_to(relax.op.reshape(i, (n, 1)), (n, 5))
        return relax.op.scatter_elements(x, rows, u, axis=0, reduction="add")

    mod = model(sums, (9, 5), i, (n, 5))
    checked = relax.transform.check_relations()(mod)["main"]
    assert n == 0 or [c.args[0].name_hint for c in find(checked, Call) if is_op(c, "index_bounds")] == ["i"]
    compiled = weft.compile(mod, "llvm")
    assert n == 0 or "broadcast_to_scatter" in compiled.as_text()
    vm, rng = relax.VirtualMachine(compiled, weft.cpu()), np.random.default_rng(n)
    data, places, rows = rng.standard_normal((9, 5), "float32"), rng.integers(-9, 9, n), rng.standard_normal((n, 5))
    exact = data.astype("float64")
    np.add.at(exact, places, rows.astype("float32"))
    np.testing.assert_allclose(vm["main"](data, places, rows.astype("float32")).numpy(), exact, rtol=1e-5, atol=1e-5)
    if n:
        with pytest.raises(IndexOutOfRange):
            vm["main"](data, places + 18, rows.astype("float32"))
