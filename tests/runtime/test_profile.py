"""A profile has every call, with its shapes and times, and leaves the machine as it was."""

import json

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import relax
from weft.script import relax as R


@pytest.fixture(scope="module")
def machine():
    def square(x, w):
        z = relax.op.nn.softmax(relax.op.matmul(x, w))
        return relax.op.matmul(relax.op.permute_dims(z), z)

    return relax.VirtualMachine(weft.compile(model(square, ("n", 16), (16, 8)), target="llvm"), weft.cpu())


def arguments(n):
    rng = np.random.default_rng(0)
    return rng.random((n, 16), "float32"), rng.random((16, 8), "float32")


def test_report(machine, tmp_path):
    report = machine.profile("main", *arguments(5))
    kernels = [c for c in report.calls if "matmul" in c.name]
    assert len(kernels) >= 2 and "float32[5, 16]" in kernels[0].shapes
    assert all(0 < c.duration_us <= report.total_us for c in report.calls)
    starts = [c.start_us for c in report.calls]
    assert starts == sorted(starts)
    table = str(report)
    assert table.splitlines()[0].split()[:2] == ["Name", "Duration"] and "Total" in table
    read = json.loads(report.json())
    assert len(read["calls"]) == len(report.calls) and read["total_us"] == report.total_us
    assert len(report.csv().splitlines()) == len(report.calls) + 1
    report.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["name"] for e in events} == {c.name for c in report.calls}
    rows = report.rows(aggregate=True)
    assert sum(r["Count"] for r in rows) == len(report.calls)
    assert rows[0]["Duration (us)"] == max(r["Duration (us)"] for r in rows)


def test_nothing_stays_behind(machine):
    expected = machine["main"](*arguments(3)).numpy()
    machine.profile("main", *arguments(3))
    np.testing.assert_array_equal(machine["main"](*arguments(3)).numpy(), expected)
    with pytest.raises(ValueError, match="dimension 0 must be 16"):
        machine.profile("main", arguments(3)[0], np.zeros((4, 8), "float32"))
    np.testing.assert_array_equal(machine["main"](*arguments(3)).numpy(), expected)
    assert machine.profile("main", *arguments(3)).calls


def test_calls_inside_calls():
    @weft.script.ir_module
    class Module:
        @R.function
        def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.add(x, x)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = cls.inner(x)
            return cls.inner(y)

    vm = relax.VirtualMachine(weft.compile(Module, target="llvm"), weft.cpu())
    report = vm.profile("main", np.ones(4, "float32"))
    assert sum(c.name == "inner" for c in report.calls) == 2
    assert {c.depth for c in report.calls} >= {0, 1}
