"""Ask this project's documentation three questions, with a trained network that Weft compiles.

MiniLM-L6-v2 is written as an ONNX file with symbolic batch and sequence length and compiled once. It turns each
sentence of the documentation, at its natural length, into a vector; the answer to a question is the sentence whose
vector is nearest. ONNX Runtime does the same beside it. The program fails if an output differs by more than 1e-3
of the largest value, or an answer is not the expected one.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import weft
from examples.minilm.corpus import ROOT, Sentence, sentences
from examples.minilm.network import feeds_of, load_tokenizer, write_onnx

LIMIT = 1e-3
ROUNDS = 3
REST_SECONDS = 0.05  # for the other runtime's threads to go to sleep
BUCKETS = ((1, 8), (9, 12), (13, 16), (17, 24), (25, 32), (33, 48), (49, 96), (97, 256))
QUESTIONS = (
    ("What happens to a damaged entry of the cache?", r"damaged"),
    ("How can I run the test suite?", r"make test"),
    ("How do people who know ONNX Runtime use a model with Weft?", r"Session"),
)
Embed = Callable[[Mapping[str, Any]], np.ndarray]
COMPILE = """
import sys, time
start = time.perf_counter()
import weft
weft.Session(sys.argv[1])
print(time.perf_counter() - start)
"""


def main() -> int:
    """Run the demo; returns the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    path = ROOT / "build" / "demo" / "minilm-l6-v2.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_onnx(path)
    console.print(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size / 1e6:.0f} MB")
    start = time.perf_counter()
    session = weft.Session(path)
    console.print(f"compiled for any batch and length in {time.perf_counter() - start:.2f} s: {_interface(session)}")
    threads = weft.runtime.num_threads()
    embed = {"weft": _weft(session), "onnxruntime": _peer(path, threads)}

    tokenizer = load_tokenizer()
    texts = sentences()
    feeds = [feeds_of(tokenizer.encode(s.text).ids) for s in texts]
    worst = compare(console, embed, feeds, threads)
    vectors = np.stack([embed["weft"](f)[0] for f in feeds])
    wrong = sum(not answer(console, embed["weft"], tokenizer, texts, vectors, *q) for q in QUESTIONS)
    cold, warm = compile_times(path)
    console.print(f"\ncompile time in a fresh process: {cold:.2f} s cold, {warm:.2f} s with a warm cache")
    if worst > LIMIT:
        console.print(f"FAILED: outputs differ by {worst:.1e} of the largest value, more than {LIMIT}")
    if wrong:
        console.print(f"FAILED: {wrong} of {len(QUESTIONS)} answers are not the expected ones")
    return int(worst > LIMIT or wrong > 0)


def compare(console: Console, embed: Mapping[str, Embed], feeds: Sequence[Mapping[str, Any]], threads: int) -> float:
    """Embed all sentences with both, print the table, and return the largest difference."""
    table = Table(title=f"{len(feeds)} sentences, one at a time, {threads} threads", title_justify="left")
    for name in ("tokens", "sentences", "Weft ms", "ONNX Runtime ms", "largest difference"):
        table.add_column(name, justify="right")
    worst = 0.0
    for low, high in BUCKETS:
        group = [f for f in feeds if low <= f["input_ids"].shape[1] <= high]
        if not group:
            continue
        difference = max(_difference(embed["weft"](f), embed["onnxruntime"](f)) for f in group)
        worst = max(worst, difference)
        taken = _race(embed, group)
        lengths = [f["input_ids"].shape[1] for f in group]
        table.add_row(
            f"{min(lengths)}-{max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0]),
            str(len(group)),
            f"{taken['weft']:.2f}",
            f"{taken['onnxruntime']:.2f}",
            f"{difference:.1e}",
        )
    console.print(table)
    return worst


def answer(
    console: Console,
    embed: Embed,
    tokenizer: Any,
    texts: Sequence[Sentence],
    vectors: np.ndarray,
    question: str,
    expected: str,
) -> bool:
    """Print the sentence nearest to a question; whether it matches the regular expression `expected`."""
    vector = embed(feeds_of(tokenizer.encode(question).ids))[0]
    best = int(np.argmax(vectors @ vector))
    found = texts[best]
    right = re.search(expected, found.text, re.IGNORECASE) is not None
    note = "" if right else f"   <- expected something with '{expected}'"
    console.print(
        f"\n{question}\n  {found.text}\n  ({found.source}, similarity {vectors[best] @ vector:.2f}){note}", markup=False
    )
    return right


def compile_times(path: Path) -> tuple[float, float]:
    """Seconds from an ONNX file to a session in fresh processes: with an empty cache, then with the one it left."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "WEFT_CACHE_DIR": cache, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", COMPILE, str(path)]
        runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    cold, warm = (json.loads(run.stdout) for run in runs)
    return cold, warm


def _race(embed: Mapping[str, Embed], group: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median milliseconds a sentence; the runtimes take turns."""
    taken: dict[str, list[float]] = {name: [] for name in embed}
    for _ in range(ROUNDS):
        for name, run in embed.items():
            time.sleep(REST_SECONDS)
            run(group[0])
            for feeds in group:
                start = time.perf_counter()
                run(feeds)
                taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in taken.items()}


def _weft(session: weft.Session) -> Embed:
    return lambda feeds: session.run(["sentence_embedding"], feeds)[0].numpy()


def _peer(path: Path, threads: int) -> Embed:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: np.asarray(session.run(["sentence_embedding"], dict(feeds))[0])


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _interface(session: weft.Session) -> str:
    return ", ".join(f"{i.name} {i.dtype} ({', '.join(map(str, i.shape or ()))})" for i in session.inputs)


if __name__ == "__main__":
    sys.exit(main())
