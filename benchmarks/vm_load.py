"""Loading executables, and calling them from several threads: Weft alone."""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from weft import relax, runtime

MEGABYTES, INSTRUCTIONS = 100, 40_000


def least(call: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def large_executable(path: Path) -> None:
    """Write a library with `MEGABYTES` of constants in ten tensors."""
    builder = relax.ExecBuilder()
    with builder.function("main", 0):
        for i in range(10):
            weights = np.full(MEGABYTES * 100_000, i, np.uint8)
            builder.emit_call("vm.builtin.copy", [builder.convert_constant(runtime.tensor(weights))], builder.r(0))
        builder.emit_ret(builder.r(0))
    builder.get().export_library(path)


def load_row() -> tuple[float, float]:
    """Seconds to open the library and make a machine for it, and to read the same file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.so"
        large_executable(path)
        read = least(path.read_bytes, 7)
        return least(lambda: relax.VirtualMachine(runtime.load_module(path)), 7), read


def verify_row() -> float:
    """Seconds to read and verify `INSTRUCTIONS` instructions."""
    builder = relax.ExecBuilder()
    with builder.function("main", 2):
        for _ in range(INSTRUCTIONS - 1):
            builder.emit_call("vm.builtin.copy", [builder.r(0)], builder.r(1))
        builder.emit_ret(builder.r(1))
    data = builder.get().bytes
    return least(lambda: runtime.VMExecutable.from_bytes(data), 15)


def heavy_machine() -> tuple[relax.VirtualMachine, runtime.Tensor]:
    """A function of some milliseconds, and its argument."""
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((256, 256), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.matmul(x, x))
            for _ in range(3):
                y = bb.emit(relax.op.matmul(y, x))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return relax.VirtualMachine(relax.build(bb.get(), "llvm")), runtime.tensor(np.eye(256, dtype=np.float32))


def threads_row(seconds: float = 0.4, rounds: int = 7) -> float:
    """How many times the calls of one thread two threads reach, each call on one core."""
    before = runtime.num_threads()
    runtime.set_num_threads(1)
    machine, x = heavy_machine()
    function = machine["main"]

    def rate(workers: int) -> float:
        counts, end = [0] * workers, time.perf_counter() + seconds

        def work(index: int) -> None:
            while time.perf_counter() < end:
                function(x)
                counts[index] += 1

        pool = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        return sum(counts) / seconds

    try:
        one, two = 0.0, 0.0
        for _ in range(rounds):
            one, two = max(one, rate(1)), max(two, rate(2))
        return two / one
    finally:
        runtime.set_num_threads(before)


if __name__ == "__main__":
    print(load_row(), verify_row(), threads_row(), file=sys.stderr)
