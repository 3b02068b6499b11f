"""Time to the first answer of a network and until its compiled form runs, each in a fresh process: first with an empty
cache, then with the cache it left; and time of ``weft compile``, which writes a library, with that cache.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import report, zoo

LIMITS = {"first s": 1.0, "cold s": 10.0, "warm s": 1.0}
JUDGED = ("resnet50", "bert_base")
PROGRAM = """
import json, sys, time
start = time.perf_counter()
import weft
imported = time.perf_counter()
session = weft.Session(sys.argv[1])
compiled = time.perf_counter()
import numpy as np
feeds = dict(np.load(sys.argv[2]))
loaded = time.perf_counter()
[o.numpy() for o in session.run(feeds)]
ran = time.perf_counter()
session.wait()
[o.numpy() for o in session.run(feeds)]
full = time.perf_counter()
print(json.dumps({"import": imported - start, "total": compiled - start + ran - loaded,
                  "full": compiled - start + full - loaded}))
"""


def fresh_process(path: str, feeds: str, cache: str) -> dict[str, float]:
    """Seconds of the import, from there to the first result, and to one of the compiled model, in a new process."""
    environment = {**os.environ, "WEFT_CACHE_DIR": cache}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, feeds], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout)


def command(path: str, library: str, cache: str) -> float:
    """Seconds of ``weft compile``."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "weft", "compile", path, "-o", library],
        env={**os.environ, "WEFT_CACHE_DIR": cache},
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - start


def measure(name: str, repeats: int) -> dict:
    path = str(zoo.onnx_path(name))
    with tempfile.TemporaryDirectory() as folder:
        feeds, cache = str(Path(folder) / "feeds.npz"), str(Path(folder) / "cache")
        np.savez(feeds, **zoo.inputs(name, 0))
        cold = fresh_process(path, feeds, cache)
        warm = [fresh_process(path, feeds, cache) for _ in range(repeats)]
        library = command(path, str(Path(folder) / "model.so"), cache)
    return {
        "model": name,
        "first s": cold["total"],
        "cold s": cold["full"],
        "warm s": statistics.median(w["total"] for w in warm),
        "import s": statistics.median(w["import"] for w in warm),
        "weft compile s": library,
    }


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("models", nargs="*", help="names of the zoo; by default ResNet-50 and BERT-base")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = [measure(name, options.repeats) for name in options.models or JUDGED]
    report.show("seconds to the first result", rows)
    report.save(options.json, "compile_time", rows)
    return int(any(r[k] > limit for r in rows if r["model"] in JUDGED for k, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
