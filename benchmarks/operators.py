"""Every operator family at ordinary sizes beside ONNX Runtime and OpenVINO: where is a cliff?

    python -m benchmarks.operators conv-transpose pool --threads 2 --symbolic --json out.json
    python -m benchmarks.operators --random 7 --count 100 --threads 1

Whole calls of a session on models of one operator (`operator_cases`). Each runtime is a process of its own; they take
turns in short blocks with rests between them; with one thread, times are those of the process on a core. The ratio is
the best peer's time over Weft's: below 0.9 is slow. Peers that are not installed, or do not have an operator, are left
out of its row. `ceiling` is the share of Weft's time that the machine needs at least, for multiply-adds or for bytes:
below `FAR`, a row that is not slow is noted as `far`.
"""

import fnmatch
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import report
from benchmarks.models import Contestant
from benchmarks.operator_cases import CASES, Case
from benchmarks.operator_random import drawn
from benchmarks.operator_rest import REST
from benchmarks.operator_second import SECOND
from benchmarks.operator_third import THIRD
from benchmarks.peer import largest_difference
from weft.profile import fma_peak, read_bandwidth

REST_SECONDS = 0.02
PATIENCE = 60.0
PEERS = ("onnxruntime", "openvino")
CALL_US = 20.0
"""Below it, the call itself is what takes time."""
LIMITS = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-6}
SLOW, FAR = 0.9, 0.1
IN_PROCESS = {"WEFT_MODEL_CACHE": "0", "WEFT_COMPILE_PROCESSES": "1"}
"""A model of one operator is compiled sooner where the compiler is loaded already."""


def measure(
    case: Case, running: dict[str, Contestant], folder: Path, symbolic: bool, rounds: int, seconds: float
) -> dict[str, Any]:
    """Load a case in all runtimes, compare their results, and time them in turns."""
    onnx.save(case.model(symbolic), folder / "model.onnx")
    np.savez(folder / "feeds.npz", **{f"0/{k}": v for k, v in case.feeds().items()})  # type: ignore[arg-type]
    row: dict[str, Any] = {"family": case.family, "case": case.name}
    outputs: dict[str, list[np.ndarray]] = {}
    failed: dict[str, str] = {}
    for name, contestant in running.items():
        answer = contestant.ask(
            PATIENCE,
            do="load",
            model=str(folder / "model.onnx"),
            network="",
            feeds=str(folder / "feeds.npz"),
            outputs=str(folder / f"{name}.npz"),
            fixed=False,
            precision="float32",
        )
        if "error" in answer:
            failed[name] = f"{name}: {answer['error']}"
            continue
        with np.load(folder / f"{name}.npz") as arrays:
            outputs[name] = [arrays[k] for k in arrays.files]
    if "weft" not in outputs or len(outputs) < 2:
        return row | {"note": "; ".join(failed.values())}
    times: dict[str, list[float]] = {name: [] for name in outputs}
    for index in range(rounds):
        for name in list(times) if index % 2 == 0 else reversed(times):
            time.sleep(REST_SECONDS)
            answer = running[name].ask(PATIENCE, do="block", seconds=seconds, max_passes=5000)
            times[name].append(answer.get("best_ms", math.inf))
    weft_us = 1e3 * min(times.pop("weft"))
    best = min(times, key=lambda n: min(times[n]))
    peer_us, judge = 1e3 * min(times[best]), next(n for n in PEERS if n in outputs)
    difference = largest_difference(outputs["weft"], outputs[judge])
    row |= {"weft us": weft_us, "peer": best, "peer us": peer_us, "ratio": peer_us / weft_us, "difference": difference}
    row |= {"MB": case.bytes_moved(outputs["weft"]) / 1e6, "M mul-adds": case.multiply_adds(outputs["weft"]) / 1e6}
    differs = difference > LIMITS[case.dtype]
    return row | {"note": "differs" if differs else "slow" if row["ratio"] < SLOW else ""}


def selected(patterns: Sequence[str]) -> list[Case]:
    """The cases whose family is named, or whose name matches a pattern; all where there is none."""
    return [
        c
        for c in (*CASES, *REST, *SECOND, *THIRD)
        if not patterns or any(p == c.family or fnmatch.fnmatch(c.name, p) for p in patterns)
    ]


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("cases", nargs="*", help="families, or patterns of names (*half*); by default all")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[p for p in PEERS if find_spec(p)])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--symbolic", action="store_true", help="without sizes: Weft compiles once for every size")
    parser.add_argument("--random", type=int, metavar="SEED", help="in place of the listed cases, random ones")
    parser.add_argument("--count", type=int, default=100, help="how many random ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.06, help="length of a block")
    options = parser.parse_args()
    compute, memory = fma_peak(options.threads), read_bandwidth()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        running = {
            n: Contestant(n, folder / f"{n}.log", options.threads, **IN_PROCESS) for n in ("weft", *options.peers)
        }
        try:
            for case in selected(options.cases) if options.random is None else drawn(options.random, options.count):
                rows.append(measure(case, running, folder, options.symbolic, options.rounds, options.seconds))
                print(rows[-1]["case"], f"{rows[-1].get('ratio', math.nan):.2f}", rows[-1]["note"], file=sys.stderr)
        finally:
            for contestant in running.values():
                contestant.close()
    timed = [r for r in rows if "ratio" in r]
    for r in timed:
        least = max(2e3 * r["M mul-adds"] / compute, 1e3 * r["MB"] / memory)
        r["ceiling"] = least / r["weft us"]
        if not r["note"] and r["ceiling"] < FAR and r["weft us"] > CALL_US:
            r["note"] = "far"
    sizes = "symbolic" if options.symbolic else "static"
    report.show(f"operators, {sizes}, {options.threads} threads; {compute:.0f} GFLOP/s, {memory:.0f} GB/s", timed)
    for r in rows:
        if "ratio" not in r:
            print(f"{r['case']}: {r['note']}")
    if timed:
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in timed))
        slow = sum(r["ratio"] < SLOW for r in timed)
        print(f"{len(timed)} cases, {slow} below {SLOW}; geometric mean of the ratios {mean:.2f}")
    report.save(options.json, "operators", rows, compute_gflops=compute, memory_gbs=memory)
    return int(any(r["note"] not in ("", "far") for r in rows))


if __name__ == "__main__":
    sys.exit(main())
