"""Costs of a Relax virtual machine, for Weft and for Apache TVM: the same program in both, each in its own process.

Run as ``python vm_lanes.py weft`` or ``python vm_lanes.py tvm``; prints one JSON object of nanoseconds. Costs of one
call are the difference of a function of 200 calls and one of 100. Every number is the least of many short windows,
since other processes share the machine.
"""

import importlib
import json
import sys
import timeit
from typing import Any

import numpy as np

WINDOWS, CALLS = 400, 100
LENGTHS = (100, 200)


class Lane:
    """One engine: its modules, and how it builds without fusion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tvm = importlib.import_module(name)
        self.relax = importlib.import_module(f"{name}.relax")
        self.tir = importlib.import_module("weft.tir" if name == "weft" else "tvm.tirx")

    def machine(self, mod: Any, exec_mode: str = "bytecode") -> Any:
        """A virtual machine for a module whose operators each become a kernel of their own."""
        relax = self.relax
        mod = relax.transform.LegalizeOps()(mod)
        with self.tvm.transform.PassContext(disabled_pass=["FuseOps"]):
            built = relax.build(mod, "llvm", relax_pipeline="default_build", exec_mode=exec_mode)
        return relax.VirtualMachine(built, self.tvm.cpu())

    def tensor(self, *shape: int) -> Any:
        return self.tvm.runtime.tensor(np.ones(shape, np.float32))

    def struct(self, shape: tuple[Any, ...]) -> Any:
        return self.relax.TensorType(shape, "float32")

    def adds(self, length: int, shape: tuple[Any, ...]) -> Any:
        """``y = x; length times: y = y + x``."""
        bb, x = self.relax.BlockBuilder(), self.relax.Var("x", self.struct(shape))
        with bb.function("main", [x]):
            with bb.dataflow():
                y: Any = x
                for _ in range(length):
                    y = bb.emit(self.relax.op.add(y, x))
                y = bb.emit_output(y)
            bb.emit_func_output(y)
        return bb.get()

    def packed_calls(self, length: int) -> Any:
        """`length` calls of a native function without parameters, which does nothing."""
        bb, x = self.relax.BlockBuilder(), self.relax.Var("x", self.struct((4,)))
        body = self.tir.Evaluate(self.tir.IntImm("int32", 0))
        nothing = self.tir.PrimFunc([], body).with_attr("global_symbol", "nothing")
        with bb.function("main", [x]):
            for _ in range(length):
                bb.emit(self.relax.Call(self.relax.ExternFunc("nothing"), (), ty_args=(self.struct((4,)),)))
            bb.emit_func_output(x)
        bb.add_func(nothing, "nothing")
        return bb.get()

    def function_calls(self, length: int) -> Any:
        """`length` calls of a private Relax function that returns its parameter.

        An addition follows: at the end of a public function a result that is its parameter would be copied.
        """
        bb = self.relax.BlockBuilder()
        p = self.relax.Var("p", self.struct((4,)))
        with bb.function("same", [p], private=True):
            bb.emit_func_output(p)
        same = bb.get().get_global_var("same")
        x = self.relax.Var("x", self.struct((4,)))
        with bb.function("main", [x]):
            y: Any = x
            for _ in range(length):
                y = bb.emit(self.relax.Call(same, (y,)))
            bb.emit_func_output(bb.emit(self.relax.op.add(y, x)))
        return bb.get()


def per_call(lane: Lane, programs: tuple[Any, Any], x: Any, exec_mode: str = "bytecode") -> tuple[float, float]:
    """Nanoseconds of one more call, and of what a function costs besides its calls."""
    least = []
    for mod in programs:
        timer = lane.machine(mod, exec_mode).time_evaluator("main", lane.tvm.cpu(), number=CALLS, repeat=WINDOWS)
        least.append(min(timer(x).results) * 1e9)
    one = (least[1] - least[0]) / (LENGTHS[1] - LENGTHS[0])
    return one, least[0] - LENGTHS[0] * one


def python_call(function: Any, *args: Any) -> float:
    """Nanoseconds of a call from Python."""
    timer = timeit.Timer("f(*args)" if len(args) != 1 else "f(x)", globals={"f": function, "x": args[0], "args": args})
    return min(timer.repeat(WINDOWS, 1000)) / 1000 * 1e9


def instrument(lane: Lane) -> float:
    """Nanoseconds of each callback of an instrument that does nothing, on the chain of adds."""
    machine, x = lane.machine(lane.adds(100, (4,))), lane.tensor(4)
    events = [0]

    def count(*_args: Any) -> int:
        events[0] += 1
        return 0

    def nothing(*_args: Any) -> int:
        return 0

    machine.set_instrument(count)
    machine["main"](x)
    machine.set_instrument(nothing)
    return min(timeit.repeat(lambda: machine["main"](x), number=1, repeat=WINDOWS)) * 1e9 / events[0]


def measure(lane: Lane) -> dict[str, float]:
    """All numbers of an engine."""
    n = lane.tir.Var("n", "int64")

    def both(make: Any, *args: Any) -> tuple[Any, Any]:
        first, second = (make(length, *args) for length in LENGTHS)
        return first, second

    x, matrix = lane.tensor(4), lane.tensor(1, 4)
    compiled, fixed = per_call(lane, both(lane.adds, (4,)), x, "compiled")
    return {
        "add": per_call(lane, both(lane.adds, (4,)), x)[0],
        "add symbolic": per_call(lane, both(lane.adds, (n, 4)), matrix)[0],
        "add compiled": compiled,
        "call compiled": fixed,
        "native call": per_call(lane, both(lane.packed_calls), x)[0],
        "function call": per_call(lane, both(lane.function_calls), x)[0],
        "python call": python_call(lane.machine(lane.adds(1, (3, 4)))["main"], lane.tensor(3, 4)),
        "instrument": instrument(lane),
    }


if __name__ == "__main__":
    print(json.dumps(measure(Lane(sys.argv[1]))))
