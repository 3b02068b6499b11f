"""Time to compile a network, each in a fresh process: first with an empty cache, then with the cache it left."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks import report, zoo

LIMITS = {"cold": 15.0, "warm": 1.5}
PROGRAM = """
import json, sys, time
start = time.perf_counter()
import weft
imported = time.perf_counter()
session = weft.Session(sys.argv[1])
print(json.dumps({"import": imported - start, "compile": time.perf_counter() - imported}))
"""


def fresh_process(path: str, cache: str) -> dict[str, float]:
    """Seconds of ``import weft`` and of making a session from an ONNX file, in a new process."""
    environment = {**os.environ, "WEFT_CACHE_DIR": cache}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout)


def measure(name: str, repeats: int) -> dict:
    path = str(zoo.onnx_path(name))
    with tempfile.TemporaryDirectory() as cache:
        cold = fresh_process(path, cache)
        warm = [fresh_process(path, cache) for _ in range(repeats)]
    return {
        "model": name,
        "cold s": cold["compile"],
        "warm s": statistics.median(w["compile"] for w in warm),
        "import s": statistics.median(w["import"] for w in warm),
    }


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("models", nargs="*", choices=[*zoo.MODELS, []], help="by default ResNet-50")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = [measure(name, options.repeats) for name in options.models or ["resnet50"]]
    report.show("seconds to compile", rows)
    report.save(options.json, "compile_time", rows)
    judged = [r for r in rows if r["model"] == "resnet50"]
    return int(any(r["cold s"] > LIMITS["cold"] or r["warm s"] > LIMITS["warm"] for r in judged))


if __name__ == "__main__":
    sys.exit(main())
