"""ONNX loops of one addition: time of a trip beside ONNX Runtime, memory, and outputs of trips; a process for each."""

import resource
import subprocess
import sys
import time

import numpy as np
from onnx import TensorProto, helper

from benchmarks import report
from benchmarks.peer import peer_session, weft_session

TRIPS = {"weft": 10_000_000, "onnxruntime": 500_000}
TRIPS_WITH_OUTPUTS = 100_000


def model(outputs: bool) -> bytes:
    """Add one to a number, and put the sums out if asked for."""
    value, node = helper.make_tensor_value_info, helper.make_node
    go_on = [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("s", TensorProto.FLOAT, [])]
    given = [value("d", TensorProto.BOOL, []), value("t", TensorProto.FLOAT, []), value("o", TensorProto.FLOAT, [])]
    nodes = [node("Add", ["s", "one"], ["t"]), node("Identity", ["c"], ["d"]), node("Identity", ["t"], ["o"])]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    body = helper.make_graph(nodes[: 2 + outputs], "body", go_on, given[: 2 + outputs], [one])
    ins = [value("k", TensorProto.INT64, []), value("x", TensorProto.FLOAT, [])]
    outs = [value("y", TensorProto.FLOAT, []), value("ys", TensorProto.FLOAT, ["n"])][: 1 + outputs]
    loop = node("Loop", ["k", "", "x"], [v.name for v in outs], body=body)
    graph = helper.make_graph([loop], "counting", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def worker(engine: str, outputs: bool) -> None:
    """Print the seconds of a run and by how many MiB it raised the peak of memory."""
    session = weft_session(model(outputs)) if engine == "weft" else peer_session(model(outputs))
    run = session.run if engine == "weft" else lambda feed: session.run(None, feed)
    x = np.array(0, np.float32)
    run({"k": np.array(1000), "x": x})
    trips = TRIPS_WITH_OUTPUTS if outputs else TRIPS[engine]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = run({"k": np.array(trips), "x": x})
    seconds = time.perf_counter() - start
    assert float(np.asarray(found[0].numpy() if engine == "weft" else found[0])) == trips
    print(seconds / trips * 1e9, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def measured(engine: str, outputs: bool) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.loops", engine, str(int(outputs))]
    return [float(v) for v in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


def main() -> None:
    """Measure and print; ends with 1 when a trip takes longer than ONNX Runtime's, or memory grows."""
    options = report.arguments(__doc__).parse_args()
    rows, good = [], True
    for outputs in (False, True):
        (ours, growth), (theirs, _) = measured("weft", outputs), measured("onnxruntime", outputs)
        good &= ours < theirs and growth < 16
        name = "outputs of trips" if outputs else "state only"
        rows.append({"loop": name, "ns a trip": ours, "onnxruntime ns": theirs, "memory MiB": growth})
    report.show("loops", rows)
    report.save(options.json, "loops", rows)
    sys.exit(not good)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in TRIPS:
        worker(sys.argv[1], sys.argv[2] == "1")
    else:
        main()
