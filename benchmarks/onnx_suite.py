"""The cases of ``onnx.backend.test`` for the operators that the importer promises, or all: pass rate and failing names.

A case is counted when its graph has only such operators. The suite repeats cases with an operator's function body in
its place (``..._expanded``); such a repetition is counted where the original is.

Cases run in worker processes, so that one that crashes or hangs costs itself only.
"""

import argparse
import collections
import json
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from benchmarks import report
from benchmarks.node_cases import node_cases
from benchmarks.peer import peer_session, weft_session

OPERATORS = frozenset(
    """Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Clip Compress Concat Constant ConstantOfShape
    Conv ConvTranspose Cos CumProd CumSum DepthToSpace Div Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor Gather
    GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid
    HardSwish Identity If InstanceNormalization LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
    LogSoftmax MatMul Max MaxPool Mean Min Mish Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow
    Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize
    ReverseSequence Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus SpaceToDepth
    Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor""".split()
)
CASE_SECONDS = 60.0
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
"""The suite's parts whose models are in the package."""


def operators_of(graph: onnx.GraphProto) -> Iterator[str]:
    """Operators of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from operators_of(inner)


def cases(everything: bool = False) -> dict[str, Any]:
    """Cases by name: those of the listed operators, or all."""
    found = {t.name: t for t in node_cases()}
    found |= {t.name: t for kind in KINDS[1:] if everything for t in load_model_tests(kind=kind)}
    if everything:
        return dict(sorted(found.items()))
    listed = {name for name, case in found.items() if set(operators_of(case.model.graph)) <= OPERATORS}
    return {
        name: case
        for name, case in sorted(found.items())
        if name in listed and re.sub(r"_expanded(_ver\d+)?$", "", name) in listed
    }


def loaded(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A case's model, and inputs and outputs of its runs: they lie beside the model or in the case."""
    if case.model is not None:
        return case.model, [tuple([_array(v) for v in values] for values in data) for data in case.data_sets]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    return model, [
        tuple(
            [_stored(data / f"{what}_{i}.pb", info) for i, info in enumerate(infos)]
            for what, infos in (("input", inputs), ("output", model.graph.output))
        )
        for data in sorted(folder.glob("test_data_set_*"))
    ]


def _stored(path: Path, info: onnx.ValueInfoProto) -> Any:
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def run_case(case: Any, engine: str) -> None:
    """Run a case; an exception says that it fails."""
    model, data = loaded(case)
    weights = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in weights]
    session = None
    for inputs, expected in data:
        feeds = dict(zip(names, inputs, strict=True))
        if engine == "weft":
            session = session or weft_session(model)
            found = [o.numpy() if hasattr(o, "numpy") else o for o in session.run(feeds)]
        else:
            session = session or peer_session(model.SerializeToString())
            found = session.run(None, feeds)
        _assert_similar(expected, found, case)


def _assert_similar(expected: list[Any], found: list[Any], case: Any) -> None:
    """Compare outputs; those of optional type may be None, and small element types are compared as float64."""
    assert len(expected) == len(found), f"{len(found)} outputs for {len(expected)}"
    for want, got in zip(expected, found, strict=True):
        if isinstance(want, list):
            _assert_similar(want, got, case)
        elif want is None:
            assert got is None
        elif np.asarray(want).dtype.kind in "OUS":
            assert np.asarray(got).tolist() == np.asarray(want).tolist()
        elif want.dtype.kind == "V":
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            wide = [x.astype(np.float64) for x in (got, want)]
            rtol = max(case.rtol, 2**-6) if want.dtype.name == "bfloat16" else case.rtol
            np.testing.assert_allclose(*wide, rtol=rtol, atol=case.atol)
        else:
            Runner.assert_similar_outputs([want], [got], case.rtol, case.atol)


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def worker(engine: str, everything: bool) -> None:
    """Run the cases whose names come in on standard input, a line each; answer with a line of JSON each."""
    known = cases(everything)
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            run_case(known[name], engine)
            error = ""
        except Exception as e:  # every kind of failure is a result here
            error = f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
        print(json.dumps({"case": name, "error": error}), flush=True)


class Worker:
    """One worker process, restarted when a case takes it down."""

    def __init__(self, engine: str, everything: bool) -> None:
        self.command = [sys.executable, "-m", "benchmarks.onnx_suite", "--worker", "--engine", engine]
        self.command += ["--all"] * everything
        self.process: subprocess.Popen[str] | None = None
        self.case: str | None = None
        self.since = 0.0

    def start(self) -> None:
        """Start the process and wait until it has loaded the suite."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        while self.process.stdout.readline().strip() not in ("ready", ""):
            pass

    def give(self, name: str) -> None:
        if self.process is None or self.process.poll() is not None:
            self.start()
        self.case, self.since = name, time.monotonic()
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()

    def answer(self) -> str | None:
        """The error of the case that was given ("" if it passed), or None while it runs."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            readable = selector.select(timeout=0.002)
        if readable:
            line = self.process.stdout.readline()
            while line and not line.startswith("{"):
                line = self.process.stdout.readline()
            if line:
                return json.loads(line)["error"]
            self.process.wait()
            return f"the process ended with {self.process.returncode}"
        if time.monotonic() - self.since > CASE_SECONDS:
            self.process.kill()
            self.process.wait()
            return f"no answer within {CASE_SECONDS:.0f} s"
        return None

    def stop(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def run_all(names: list[str], engine: str, everything: bool, jobs: int) -> dict[str, str]:
    """Error by case, empty where it passed."""
    waiting = collections.deque(names)
    workers = [Worker(engine, everything) for _ in range(max(1, min(jobs, len(names))))]
    results: dict[str, str] = {}
    while len(results) < len(names):
        for w in workers:
            if w.case is None and waiting:
                w.give(waiting.popleft())
            if w.case is not None:
                error = w.answer()
                if error is not None:
                    results[w.case] = error
                    w.case = None
    for w in workers:
        w.stop()
    return results


def parse() -> argparse.Namespace:
    parser = report.arguments(__doc__)
    parser.add_argument("match", nargs="*", help="parts of case names; by default all cases")
    parser.add_argument("--all", action="store_true", help="cases of operators outside the list too")
    parser.add_argument("--engine", choices=["weft", "onnxruntime"], default="weft")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.95, help="pass rate to reach")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.worker:
        worker(options.engine, options.all)
        return 0
    names = [n for n in cases(options.all) if not options.match or any(m in n for m in options.match)]
    results = run_all(names, options.engine, options.all, options.jobs)
    failing = [{"case": n, "error": results[n]} for n in names if results[n]]
    for row in failing:
        print(f"{row['case']}: {row['error']}")
    passed = len(names) - len(failing)
    print(f"{options.engine}: {passed} of {len(names)} cases pass ({100 * passed / max(1, len(names)):.1f}%)")
    report.save(options.json, "onnx_suite", failing, engine=options.engine, cases=len(names), passed=passed)
    return int(passed < options.limit * len(names))


if __name__ == "__main__":
    sys.exit(main())
