"""Whole networks beside the fastest peers: ONNX Runtime, OpenVINO, PyTorch (eager and compiled) and IREE.

Each contestant is a process of its own (`benchmarks.contestants`); they take turns in short blocks with a rest between
them. A row's ratio is the median over rounds of the best peer's time divided by Weft's. Outputs are compared with ONNX
Runtime's before anything is timed.
"""

import contextlib
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report, zoo
from benchmarks.contestants import CONTESTANTS, THREADS, Feeds
from benchmarks.networks import bert_base, gpt2_small, lstm
from benchmarks.peer import largest_difference, logits, softmax_outputs

REST_SECONDS = 0.05
LIMIT_DIFFERENCE = 1e-3
JUDGE = "onnxruntime"
PEERS = tuple(CONTESTANTS)


@dataclass(frozen=True)
class Workload:
    """A row: a network, what it is fed with in a pass, and the ratio that it must reach.

    ``fixed`` says that shapes are known when the model is compiled; ``units`` is by how many the time of a pass is
    divided (tokens), ``without`` names peers that cannot run it here, with the reason in a comment where it stands.
    ``limit`` is how far results may be from the judge's, relative to the largest: networks of random weights magnify
    the rounding of narrow numbers, other runtimes' as much.
    """

    name: str
    network: str
    feeds: Callable[[np.random.Generator], list[Feeds]]
    must: float
    fixed: bool = True
    units: int = 1
    without: tuple[str, ...] = ()
    precision: str = "float32"
    limit: float = LIMIT_DIFFERENCE


def _size(network: str, *sizes: int) -> Callable[[np.random.Generator], list[Feeds]]:
    return lambda rng: [zoo.inputs(network, s) for s in sizes]


def _first(name: str, network: str, must: float, **more: Any) -> Workload:
    """A network with inputs of the first of its sizes."""
    return Workload(name, network, _size(network, 0), must, **more)


BERT_LENGTHS = (8, 128, 23, 64, 101, 37, 120, 16, 77, 50)
LSTM_LENGTHS = (5, 100, 32, 64, 17, 81, 48, 9)
NO_TORCH = ("torch", "torch.compile")  # files without a PyTorch source
NO_BFLOAT16 = ("onnxruntime", "iree")  # they compute in the file's precision

WORKLOADS = (
    _first("ResNet-50", "resnet50", 1.1),
    _first("MobileNetV2", "mobilenet_v2", 1.1),
    _first("MobileNetV3", "mobilenet_v3", 1.1),
    _first("EfficientNet-B0", "efficientnet_b0", 1.1),
    _first("DenseNet-121", "light_densenet121", 1.1, without=NO_TORCH),
    _first("SqueezeNet", "light_squeezenet", 1.1, without=NO_TORCH),
    _first("Inception v1", "light_inception_v1", 1.1, without=NO_TORCH),
    _first("Inception v2", "light_inception_v2", 1.1, without=NO_TORCH),
    _first("ShuffleNet", "light_shufflenet", 1.0, without=NO_TORCH),
    _first("DCGAN's generator", "dcgan", 1.0),
    _first("U-Net for volumes", "unet3d", 1.0),
    _first("ResNeXt-50", "resnext50", 1.0),
    _first("ConvNeXt-T", "convnext", 1.0),
    _first("SegFormer-B0", "segformer", 1.0),
    _first("conformer, 400 frames", "conformer", 1.0),
    _first("WaveNet, 4000 samples", "wavenet", 1.0),
    _first("HiFi-GAN, 32 frames", "hifigan", 1.0),
    _first("mixture of experts, 64 tokens", "mixture_of_experts", 1.0),
    *(
        _first(name, network, 1.0, without=NO_TORCH)
        for name, network in (
            ("XCiT-nano", "xcit"),
            ("EfficientNetV2-B0", "efficientnet_v2"),
            ("MobileViT-S", "mobilevit"),
            ("MobileNetV4-S", "mobilenet_v4"),
            ("YOLO with suppression", "yolo"),
            ("DETR, 3 layers", "detr"),
            ("Whisper, 24 tokens", "whisper"),
            ("Mamba 2, 256 tokens", "mamba2"),
            ("diffusion U-Net", "diffusion_unet"),
            ("graph attention, 10,000 edges", "graph_attention"),
            ("Gaussian process", "gaussian_process"),
        )
    ),
    _first("ViT-B/16", "vit_b16", 1.1),
    _first("BERT-base, 128 tokens", "bert_base", 1.1),
    Workload(
        "BERT-base, 8 to 128 tokens",
        "bert_base",
        lambda rng: [bert_base.feeds(rng, 1, n) for n in BERT_LENGTHS],
        1.2,
        False,
        len(BERT_LENGTHS),
    ),
    _first("GPT-2-small, prefill 128", "gpt2_small", 1.1, fixed=False),
    Workload(
        "GPT-2-small, a token, cache to 256",
        "gpt2_small",
        lambda rng: [gpt2_small.feeds(rng, 1, n) for n in range(128, 256, 9)],
        1.2,
        False,
        15,
    ),
    Workload("text detector, five sizes", "text_detector", _size("text_detector", *range(5)), 1.2, False, 5),
    Workload("text recogniser, five widths", "text_recogniser", _size("text_recogniser", *range(5)), 1.2, False, 5),
    Workload("LSTM, a token", "lstm", lambda rng: _sequences(rng), 1.2, False, sum(LSTM_LENGTHS)),
    Workload("LSTM of 2 layers, a token", "lstm2", lambda rng: _sequences(rng), 1.2, False, sum(LSTM_LENGTHS)),
    _first("MLP 3x256", "mlp", 2.0),
    _first("ResNet-50, bf16", "resnet50", 1.0, without=NO_BFLOAT16, precision="bfloat16", limit=0.15),
    _first("BERT-base, 128 tokens, bf16", "bert_base", 1.0, without=NO_BFLOAT16, precision="bfloat16", limit=0.03),
    _first("ResNet-50, int8", "resnet50_int8", 1.0, without=(*NO_TORCH, "iree"), precision="int8", limit=0.2),
)


def _sequences(rng: np.random.Generator) -> list[Feeds]:
    return [{"tokens": rng.standard_normal((n, 1, lstm.INPUT), np.float32)} for n in LSTM_LENGTHS]


class Contestant:
    """The process of one contestant."""

    def __init__(self, name: str, log: Path, threads: int = THREADS, **variables: str) -> None:
        self.name = name
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contestants", name, f"--threads={threads}"],
            cwd=zoo.ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **variables},
        )

    def ask(self, timeout: float, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer; one that does not come in time is an error."""
        self.send(**request)
        return self.answer(timeout)

    def send(self, **request: Any) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer says it
            print(json.dumps(request), file=self._process.stdin, flush=True)

    def answer(self, timeout: float) -> dict[str, Any]:
        """Wait for the answer to what was sent."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            return {"error": f"no answer in {timeout:.0f} s" if not ready else "the process ended"}
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def measure(
    work: Workload, peers: Sequence[str], rounds: int, seconds: float, patience: float, threads: int = THREADS
) -> dict[str, Any]:
    """Run all contestants of a row in turns."""
    names = ["weft", *(p for p in peers if p not in work.without)]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        np.savez(
            folder / "feeds.npz",
            **{  # type: ignore[arg-type]
                f"{i}/{k}": v for i, f in enumerate(work.feeds(np.random.default_rng(0))) for k, v in f.items()
            },
        )
        judged = [*names, *([JUDGE] if JUDGE in peers and JUDGE not in names else [])]
        running: dict[str, Contestant] = {}
        try:
            loaded = _load(running, judged, work, folder, patience, threads)
            answered = [n for n in judged if "error" not in loaded[n]]
            differences = _differences(folder, answered, softmax_outputs(zoo.onnx_path(work.network)))
            racing = [n for n in names if differences.get(n, math.inf) <= work.limit]
            times: dict[str, list[float]] = {n: [] for n in racing}
            for index in range(rounds):
                for n in racing if index % 2 == 0 else racing[::-1]:
                    time.sleep(REST_SECONDS)
                    answer = running[n].ask(60 + 10 * seconds, do="block", seconds=seconds, max_passes=200)
                    times[n].append(answer.get("ms", math.inf))
                    loaded[n] |= answer
        finally:
            for c in running.values():
                c.close()
    return _row(work, names, loaded, differences, times)


def _load(
    running: dict[str, Contestant], names: Sequence[str], work: Workload, folder: Path, patience: float, threads: int
) -> dict[str, dict[str, Any]]:
    """Let all contestants load the model: Weft alone, since its time is a figure of the row, then the peers at once.

    Their processes begin after that, too: what they import would take its cores. Those that run go to `running`.
    """
    model, start = str(zoo.onnx_path(work.network)), time.monotonic()
    loaded: dict[str, dict[str, Any]] = {}
    for n in names:
        running[n] = c = Contestant(n, folder / f"{n}.log", threads)
        c.send(
            do="load",
            model=model,
            network=work.network,
            feeds=str(folder / "feeds.npz"),
            outputs=str(folder / f"{n}.npz"),
            fixed=work.fixed,
            precision="bfloat16" if work.precision == "bfloat16" else "float32",
        )
        if n == "weft":
            loaded[n], start = c.answer(patience), time.monotonic()
    for n in running.keys() - loaded.keys():
        loaded[n] = running[n].answer(max(start + patience - time.monotonic(), 0.1))
    return loaded


def _differences(folder: Path, names: Sequence[str], softmax: Sequence[bool]) -> dict[str, float]:
    """How far each contestant's outputs are from the judge's.

    Those of a softmax are compared by their logarithms, which are the values before it but for a constant: one that is
    near 1 where all others are near 0 says nothing of the network.
    """
    outputs = {
        n: [logits(a) if softmax[i % len(softmax)] else a for i, a in sorted(_arrays(folder / f"{n}.npz").items())]
        for n in names
    }
    if JUDGE not in outputs:
        return dict.fromkeys(names, 0.0)
    return {n: largest_difference(o, outputs[JUDGE]) for n, o in outputs.items()}


def _arrays(path: Path) -> dict[int, np.ndarray]:
    with np.load(path) as arrays:
        return {int(k.removeprefix("arr_")): arrays[k] for k in arrays.files}


def _row(
    work: Workload,
    names: Sequence[str],
    loaded: dict[str, Any],
    differences: dict[str, float],
    times: dict[str, list[float]],
) -> dict[str, Any]:
    medians = {n: statistics.median(t) / work.units for n, t in times.items()}
    peers = {n: m for n, m in medians.items() if n != "weft"}
    best = min(peers, key=lambda n: peers[n]) if peers else None
    ratio = math.nan
    if best is not None and "weft" in times:
        ratio = statistics.median(p / w for p, w in zip(times[best], times["weft"], strict=True))
    notes = [f"{n}: {loaded[n]['error']}" for n in names if "error" in loaded[n]]
    notes += [f"{n}: differs by {differences[n]:.1e}" for n in names if differences.get(n, 0.0) > work.limit]
    return {
        "workload": work.name,
        "precision": work.precision,
        **{f"{n} ms": medians.get(n, math.nan) for n in PEERS},
        "best peer": best or "none",
        "ratio": ratio,
        "must": work.must,
        "reached": ratio >= work.must,
        "MB": loaded["weft"].get("peak_mb", math.nan),
        "compiler's": loaded["weft"].get("children_peak_mb", math.nan),  # a process of its own, cold only
        "best peer's": loaded[best]["peak_mb"] if best is not None else math.nan,
        "least": min((loaded[n]["peak_mb"] for n in peers), default=math.nan),
        "compiled in s": loaded["weft"].get("seconds", math.nan),
        "difference": differences.get("weft", math.nan),
        "notes": notes,
        "times": times,
        "versions": {n: loaded[n]["version"] for n in names if "version" in loaded[n]},
    }


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("rows", nargs="*", help="parts of names of rows; by default all")
    parser.add_argument("--peers", default=",".join(p for p in PEERS if p != "weft"), help="with commas between them")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a block")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that a row's peers have to compile")
    options = parser.parse_args()
    peers = [p for p in options.peers.split(",") if p]
    wanted = [w for w in WORKLOADS if not options.rows or any(r.lower() in w.name.lower() for r in options.rows)]
    rows = []
    for work in wanted:
        rows.append(measure(work, peers, options.rounds, options.seconds, options.patience, options.threads))
        row = rows[-1]
        print(f"{work.name}: {row['ratio']:.2f} of {row['best peer']}; {'; '.join(row['notes'])}", file=sys.stderr)
    hidden = ("notes", "times", "versions", "precision")
    report.show(
        f"models, {options.threads} threads, ms", [{k: v for k, v in r.items() if k not in hidden} for r in rows]
    )
    ratios = [r["ratio"] for r in rows if r["precision"] == "float32" and not math.isnan(r["ratio"])]
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
    print(f"geometric mean of the ratios in float32: {mean:.3f}")
    report.save(options.json, "models", rows, geometric_mean=mean)
    return int(not all(r["reached"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
