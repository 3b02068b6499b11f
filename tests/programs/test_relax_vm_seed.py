"""The programs of the Relax VM's document, sections "Python Interface" to "Inspecting Bytecode", as they stand."""

# run: main(x) == relu(x) * 2 + 1

import sys

import numpy as np
import pytest

import weft

MODULE = """
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class MyModule:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.multiply(a, R.const(2.0, "float32"))
            c = R.add(b, R.const(1.0, "float32"))
            R.output(c)
        return c
"""

INTERFACE = """
import tvm
from tvm import relax
import numpy as np

# Compile
ex = tvm.compile(MyModule, target="llvm")

# Create VM
vm = relax.VirtualMachine(ex, tvm.cpu())

# Direct invocation
inp = tvm.runtime.tensor(np.random.rand(3, 4).astype("float32"))
result = vm["main"](inp)

# Stateful interface (useful for RPC)
vm.set_input("main", inp)
vm.invoke_stateful("main")
output = vm.get_outputs("main")
"""

INSTRUMENT = """
from tvm.relax import VMInstrumentReturnKind

def my_instrument(func, func_symbol, before_run, ret_value, *args):
    if before_run:
        print(f"About to call: {func_symbol}")
    return VMInstrumentReturnKind.NO_OP

vm.set_instrument(my_instrument)
vm["main"](inp)
"""

INSPECT = """
ex = tvm.compile(MyModule, target="llvm")
print(ex.as_text()) # Human-readable instruction listing
print(ex.as_python()) # Equivalent Python program
print(ex.stats()) # Summary statistics
"""


@pytest.fixture
def names(monkeypatch, tmp_path):
    """What the document's programs see: Weft under the name of ``tvm``, and the names that the first program made."""
    for name in ("", ".relax", ".script", ".runtime"):
        monkeypatch.setitem(sys.modules, "tvm" + name, __import__("weft" + name, fromlist=["_"]))
    found: dict = {}
    source = tmp_path / "my_module.py"  # decorators read the source of what they decorate
    source.write_text(MODULE)
    exec(compile(MODULE, source, "exec"), found)
    exec(INTERFACE, found)
    return found


def test_python_interface(names):
    expected = np.maximum(names["inp"].numpy(), 0) * 2 + 1
    np.testing.assert_allclose(names["result"].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(names["output"].numpy(), expected, rtol=1e-6)


def test_instrumentation(names, capsys):
    exec(INSTRUMENT, names)
    called = [line for line in capsys.readouterr().out.splitlines() if line.startswith("About to call: ")]
    kernels = [f for f in called if "vm.builtin." not in f]
    assert len(kernels) == 1, "three element-wise operators are one kernel"


def test_skip_run(names):
    vm, kind = names["vm"], weft.relax.VMInstrumentReturnKind
    seen = []

    def skip(func, func_symbol, before_run, ret_value, *args):
        seen.append((func_symbol, bool(before_run)))
        is_kernel = not func_symbol.startswith("vm.builtin.")
        return kind.SKIP_RUN if before_run and is_kernel else kind.NO_OP

    vm.set_instrument(skip)
    vm["main"](names["inp"])
    kernels = [(symbol, before) for symbol, before in seen if not symbol.startswith("vm.builtin.")]
    assert kernels and all(before for _, before in kernels), "what is skipped is not reported as run"


def test_inspecting_bytecode(names, capsys):
    exec(INSPECT, names)
    printed = capsys.readouterr().out
    assert "@main" in printed and "vm.builtin" in printed
    assert "ib.emit_call(" in printed and "ib.emit_ret(" in printed


def test_save_function_and_time_evaluator(names):
    vm, inp = names["vm"], names["inp"]
    vm.save_function("main", "main_saved", inp)
    np.testing.assert_allclose(vm["main_saved"]().numpy(), names["result"].numpy())
    timed = vm.time_evaluator("main", weft.cpu(), number=3, repeat=2)(inp)
    assert len(timed.results) == 2 and timed.mean > 0
    assert vm.time_evaluator("main_saved", weft.cpu())().mean > 0
