"""What surrounds the kernels: a Python call of a function with one operator, import time, the library's size."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from benchmarks import report
from benchmarks.peer import peer_session, weft
from weft.ffi import find_library

SHAPE = (3, 4)
LIMITS = {"call us": 1.0, "import s": 0.3, "library KB": 600.0}


def one_operator() -> bytes:
    """A model that adds its input to itself."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "one", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def nanoseconds(call, *args, repeats: int = 15, number: int = 20000) -> float:
    """Best mean time of a call."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(number):
            call(*args)
        best = min(best, (time.perf_counter_ns() - start) / number)
    return best


def call_row() -> dict:
    model = one_operator()
    executable = weft.compile(weft.relax.frontend.onnx.from_onnx(model), target="llvm")
    main = weft.relax.VirtualMachine(executable, weft.cpu())["main"]
    array = np.ones(SHAPE, np.float32)
    tensor = weft.runtime.tensor(array)
    session, peer = weft.Session(model), peer_session(model)
    return {
        "call us": nanoseconds(main, tensor) / 1e3,
        "call with array us": nanoseconds(main, array) / 1e3,
        "session us": nanoseconds(session.run, {"x": array}) / 1e3,
        "onnxruntime us": nanoseconds(peer.run, None, {"x": array}, number=2000) / 1e3,
    }


def import_row(repeats: int = 7) -> dict:
    program = (
        "import time; t = time.perf_counter(); import weft, json; a = time.perf_counter() - t; "
        "weft.Session; print(json.dumps([a, time.perf_counter() - t]))"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(repeats)
    ]
    return {
        "import s": statistics.median(r[0] for r in runs),
        "import with compiler s": statistics.median(r[1] for r in runs),
    }


def size_row() -> dict:
    library = find_library()
    strip = shutil.which("strip")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / library.name
        shutil.copy(library, copy)
        if strip is not None:
            subprocess.run([strip, "--strip-unneeded", str(copy)], check=True)
        return {"library KB": copy.stat().st_size / 1000, "stripped": strip is not None}


def main() -> int:
    options = report.arguments(__doc__).parse_args()
    row = {**call_row(), **import_row(), **size_row()}
    report.show("overhead", [{"what": k, "value": v, "limit": LIMITS.get(k, "")} for k, v in row.items()])
    report.save(options.json, "overhead", [row])
    return int(any(row[k] > limit for k, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
