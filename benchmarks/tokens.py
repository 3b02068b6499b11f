"""Decoders with 4-bit weights, token by token, beside ONNX Runtime (accuracy level 4) and OpenVINO where it is there.

Rows are a token of one sequence and of eight behind full caches, and a prompt. The last columns are the error of logits
against float32 products with the same weights, ours and the peer's, and the share of the machine's read bandwidth that
weights came with. The error is the root of the mean square over all logits, in standard deviations: the greatest one of
a single feed differs by a fifth from run to run of the same arithmetic, since a rounding that falls the other way
changes all that follows.
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.networks import llama
from benchmarks.peer import THREADS, peer_session, weft_session
from benchmarks.race import race, ratio
from weft.profile.ceilings import read_bandwidth

ROWS = {"token, cache 512": (1, 1, 511), "8 tokens, cache 512": (8, 1, 511), "prompt of 512": (1, 512, 0)}
RUNTIMES = ("weft", "onnxruntime", "openvino")
LIMITS = {"token, cache 512": 1.15, "8 tokens, cache 512": 1.3, "prompt of 512": 1.15}


def openvino_runner(path: Path) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]] | None:
    """OpenVINO on the same file, tuned for latency; None where it is not installed or does not take the model."""
    if importlib.util.find_spec("openvino") is None:
        return None
    import openvino

    core = openvino.Core()
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS}
    try:
        request = core.compile_model(core.read_model(str(path)), "CPU", config).create_infer_request()
    except RuntimeError as e:
        print(f"openvino: {str(e).splitlines()[0]}", file=sys.stderr)
        return None

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        found = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [found[i] for i in range(len(found))]

    return run


def runs(call: Callable[[dict[str, np.ndarray]], Any], feeds: dict[str, np.ndarray]) -> bool:
    """Whether a peer takes these feeds; what it says otherwise goes to standard error."""
    try:
        call(feeds)
    except RuntimeError as e:
        print(f"openvino: {str(e).strip().splitlines()[-1]}", file=sys.stderr)
        return False
    return True


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the root of the mean square difference in standard deviations of what is expected."""
    return float(np.sqrt(np.square(found - expected, dtype=np.float64).mean()) / expected.std())


def measure(folder: Path, size: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Run all rows of a decoder."""
    path, exact = folder / "decoder.onnx", folder / "exact.onnx"
    llama.export(path, size)
    llama.export(exact, size, accuracy=1)
    float_products = peer_session(exact)
    truth: dict[str, Any] = {
        name: float_products.run(["logits"], llama.feeds(size, *dims))[0] for name, dims in ROWS.items()
    }
    del float_products
    start = time.perf_counter()
    ours = weft_session(path)
    ours.wait()
    compiled = time.perf_counter() - start
    theirs: Any = peer_session(path)
    other = openvino_runner(path)
    bandwidth, rows = read_bandwidth(), []
    for name, dims in ROWS.items():
        feeds = llama.feeds(size, *dims)
        lanes: dict[str, Callable[[], Any]] = {
            "weft": lambda f=feeds: ours.run(f),
            "onnxruntime": lambda f=feeds: theirs.run(None, f),
        }
        if other is not None and runs(other, feeds):
            lanes["openvino"] = lambda f=feeds: other(f)
        times = race(lanes, rounds, seconds)
        peer = min((n for n in times if n != "weft"), key=lambda n: times[n].best_ms)
        share = llama.CONFIGS[size].weight_bytes / (times["weft"].best_ms * 1e6) / bandwidth
        rows.append(
            {
                "decoder": size,
                "row": name,
                **{f"{n} ms": times[n].best_ms if n in times else float("nan") for n in RUNTIMES},
                "best peer": peer,
                "times": 1 / ratio(times, "weft", peer),
                "limit": LIMITS[name],
                "difference": distance(ours.run(feeds)[0].numpy(), truth[name]),
                "onnxruntime difference": distance(theirs.run(["logits"], feeds)[0], truth[name]),
                "bandwidth": share,
                "compile s": compiled,
            }
        )
    return rows


def main() -> int:
    """Run as a program."""
    parser = report.arguments(__doc__)
    parser.add_argument("sizes", nargs="*", choices=[*llama.CONFIGS, []], help="by default 500m and 1100m")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a block")
    options = parser.parse_args()
    rows = []
    for size in options.sizes or ("500m", "1100m"):
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(Path(folder), size, options.rounds, options.seconds)
    report.show(f"decoders with 4-bit weights, {THREADS} threads", rows)
    report.save(options.json, "tokens", rows)
    return int(any(r["times"] < r["limit"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
