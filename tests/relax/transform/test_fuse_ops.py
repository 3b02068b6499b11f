"""FuseOps: what is shared does not make kernels that nobody waits for."""

import numpy as np
import pytest

import weft
from weft import relax


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
