"""One runtime in a process of its own: ``python -m benchmarks.contestants PEER`` answers requests on standard input.

A process each, because a runtime's worker threads spin for a while after a call and would take the other's cores; and
so that one that fails or hangs takes nothing with it. Requests and answers are lines of JSON; arrays go through files.
"""

import argparse
import importlib.metadata
import json
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]
Runner = Callable[[Feeds], list[np.ndarray]]
Shapes = Mapping[str, tuple[int, ...]] | None
THREADS = 2


def weft(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """Weft's session, on the file as it is or with fixed shapes."""
    os.environ["WEFT_NUM_THREADS"] = str(THREADS)
    import weft

    session = weft.Session(path, shape_dict=shapes, precision=precision)
    return lambda feeds: session.run(feeds)  # type: ignore[return-value]


def onnxruntime(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """ONNX Runtime with all optimisations; fixed shapes override the model's free dimensions.

    It has no bfloat16 on CPUs: it computes in what the file says, whatever the precision of the row.
    """
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.log_severity_level = 3
    if shapes is not None:
        for value in onnx.load(path, load_external_data=False).graph.input:
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
                if dim.dim_param:
                    options.add_free_dimension_override_by_name(dim.dim_param, size)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def openvino(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """OpenVINO, tuned for latency, computing floats in the row's precision."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    if shapes is not None:
        model.reshape({k: list(v) for k, v in shapes.items()})
    hint = "bf16" if precision == "bfloat16" else "f32"
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": hint}
    request = core.compile_model(model, "CPU", config).create_infer_request()

    def run(feeds: Feeds) -> list[np.ndarray]:
        found = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [found[i] for i in range(len(found))]

    return run


def torch_eager(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """PyTorch as it is written."""
    return _torch(network, precision, lambda module: module)


def torch_compile(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """PyTorch's compiler, with dynamic shapes where the row has them."""
    import torch

    return _torch(network, precision, lambda module: torch.compile(module, dynamic=shapes is None))


def _torch(network: str, precision: str, prepare: Callable[[Any], Any]) -> Runner:
    import torch

    from benchmarks import zoo

    torch.set_num_threads(THREADS)
    module = zoo.network(network)
    narrow, mixed = precision == "bfloat16" and network not in _MIXED, precision == "bfloat16" and network in _MIXED
    module = prepare(module.bfloat16() if narrow else module)

    def run(feeds: Feeds) -> list[np.ndarray]:
        given = [torch.from_numpy(v) for v in feeds.values()]
        if narrow:
            given = [v.bfloat16() if v.is_floating_point() else v for v in given]
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            out = module(*given)
        outputs = out if isinstance(out, tuple) else (out,)
        return [(o.float() if o.dtype == torch.bfloat16 else o).numpy() for o in outputs]

    return run


_MIXED = ("bert_base",)  # networks that make float32 tensors of their own, so that only autocast runs them


def iree(path: Path, shapes: Shapes, network: str, precision: str) -> Runner:
    """IREE's compiler for the host's CPU, through its importer of ONNX files."""
    import subprocess
    import tempfile

    import iree.compiler as compiler
    import iree.runtime as runtime
    import onnx

    model = onnx.load(path)
    for value in model.graph.input if shapes is not None else ():
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    with tempfile.TemporaryDirectory() as folder:
        fixed, text = Path(folder) / "model.onnx", Path(folder) / "model.mlir"
        onnx.save(onnx.shape_inference.infer_shapes(model), fixed)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "iree.compiler.tools.import_onnx",
                str(fixed),
                "-o",
                str(text),
                "--opset-version=17",
            ],
            check=True,
            capture_output=True,
        )
        code = compiler.compile_file(
            str(text),
            target_backends=["llvm-cpu"],
            input_type="onnx",
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )
    runtime.flags.parse_flags(f"--task_topology_max_group_count={THREADS}")
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, code), config)
    name = model.graph.name or "main"
    main = getattr(module, name, None) or module["main_graph"]

    def run(feeds: Feeds) -> list[np.ndarray]:
        out = main(*feeds.values())
        return [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]

    return run


CONTESTANTS: dict[str, tuple[Callable[..., Runner], str]] = {  # and the distribution whose version counts
    "weft": (weft, "weft"),
    "onnxruntime": (onnxruntime, "onnxruntime"),
    "openvino": (openvino, "openvino"),
    "torch": (torch_eager, "torch"),
    "torch.compile": (torch_compile, "torch"),
    "iree": (iree, "iree-base-compiler"),
}


def read_feeds(path: Path) -> list[Feeds]:
    """Read the feeds that the coordinator wrote: arrays called ``<number>/<input>``, in order."""
    feeds: dict[int, Feeds] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            number, _, name = key.partition("/")
            feeds.setdefault(int(number), {})[name] = arrays[key]
    return [feeds[i] for i in sorted(feeds)]


def block(run: Runner, feeds: list[Feeds], seconds: float, max_passes: int) -> dict[str, float]:
    """Return median and least time of a pass over all feeds, in milliseconds; the first pass is not counted.

    With one thread it is the time on a core, which what else runs here disturbs less; where that clock stands still
    over a whole block, as it does for some processes on some virtual machines, it is that of the wall.
    """
    taken: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    for f in feeds:
        run(f)
    while not taken or (time.perf_counter() < end and len(taken) < max_passes):
        start, on_core = time.perf_counter(), time.process_time()
        for f in feeds:
            run(f)
        taken.append((1e3 * (time.process_time() - on_core), 1e3 * (time.perf_counter() - start)))
    on_cores, by_wall = zip(*taken, strict=True)
    times = [t for t in on_cores if t > 0] if THREADS == 1 and any(on_cores) else by_wall
    return {"ms": statistics.median(times), "best_ms": min(times)}


def peak_mb() -> float:
    """Return the most memory that this process had resident (``getrusage`` tells what its parent had, too)."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def children_peak_mb() -> float:
    """Return the most memory that one of its ended children had resident: where a compiler is a process of its own."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def serve(name: str) -> None:
    """Answer requests until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    make, distribution = CONTESTANTS[name]
    run: Runner | None = None
    feeds: list[Feeds] = []
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                feeds = read_feeds(Path(request["feeds"]))
                shapes = {k: v.shape for k, v in feeds[0].items()} if request["fixed"] else None
                start = time.perf_counter()
                run = make(Path(request["model"]), shapes, request["network"], request["precision"])
                outputs = [np.array(o) if not hasattr(o, "numpy") else o.numpy() for f in feeds for o in run(f)]
                compiled = time.perf_counter() - start
                np.savez(request["outputs"], *outputs)
                answer = {"seconds": compiled, "version": importlib.metadata.version(distribution)}
            else:
                assert run is not None
                answer: dict[str, Any] = block(run, feeds, request["seconds"], request["max_passes"])
            answer["peak_mb"], answer["children_peak_mb"] = peak_mb(), children_peak_mb()
        except Exception as e:  # one that cannot is a row without it
            answer = {"error": f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:200]}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=sorted(CONTESTANTS))
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    THREADS = given.threads
    serve(given.contestant)
