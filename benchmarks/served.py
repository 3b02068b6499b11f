"""Decoders that serve sequences from a paged cache, with 4-bit weights, beside llama.cpp: CPU time of one thread.

``--llama PYTHON`` names an interpreter that has llama-cpp-python and gguf. The decoder is that of ``examples.chat``,
whose step draws the next tokens, too; llama.cpp's ends at the logits.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.networks.llama import CONFIGS
from benchmarks.tokens import LIMITS
from examples.chat.generator import Generator, Sampling
from examples.chat.model import Config, Decoder, compile_decoder

PAST, REPEATS = 512, 12


def decoder(config: Config) -> object:
    """Compile a decoder with random weights."""
    rng = np.random.default_rng(0)

    def weight(shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape, np.float32) if len(shape) == 1 else rng.standard_normal(shape, np.float32) / shape[-1]

    shapes = {name: tuple(int(d) for d in p.shape) for name, p in Decoder(config).named_parameters()}
    return compile_decoder(config, {name: weight(shape) for name, shape in shapes.items()})[0]


def times(machine: object, sequences: int, vocabulary: int) -> tuple[float, float]:
    """Return milliseconds of a prompt and of a step of some sequences behind it."""
    rng = np.random.default_rng(1)
    generator = Generator(machine, sequences, sequences * (PAST + 128), chunk=PAST)
    for _ in range(sequences):
        generator.add(rng.integers(0, vocabulary, PAST).tolist(), Sampling(temperature=0.0))

    def run() -> float:
        start = time.process_time()
        generator.step()
        return 1e3 * (time.process_time() - start)

    return run() / sequences, min(run() for _ in range(REPEATS))


def peer(python: Path, sizes: Iterable[str]) -> dict[str, float]:
    """Return llama.cpp's milliseconds by row."""
    command = [str(python), str(Path(__file__).with_name("served_peer.py")), *sizes]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def main() -> int:
    """Run as a program."""
    parser = report.arguments(__doc__)
    parser.add_argument("sizes", nargs="*", choices=[*CONFIGS, []], help="by default 500m and 1100m")
    parser.add_argument("--llama", type=Path, help="an interpreter with llama-cpp-python and gguf")
    options = parser.parse_args()
    rows = []
    for size in options.sizes or ("500m", "1100m"):
        c = CONFIGS[size]
        machine = decoder(Config(c.vocabulary, c.hidden, c.layers, c.heads, c.groups, c.inner))
        (prompt, token), (_, eight) = (times(machine, n, c.vocabulary) for n in (1, 8))
        ours = dict(zip(LIMITS, (token, eight, prompt), strict=True))
        sizes = map(str, (c.hidden, c.layers, c.heads, c.groups, c.inner, c.vocabulary))
        theirs = peer(options.llama, sizes) if options.llama else {}
        for name, limit in LIMITS.items():
            other = theirs.get(name, float("nan"))
            rows.append(
                {
                    "decoder": size,
                    "row": name,
                    "weft ms": ours[name],
                    "llama.cpp ms": other,
                    "times": other / ours[name],
                    "limit": limit,
                }
            )
    report.show("decoders that serve sequences, one thread", rows)
    report.save(options.json, "served", rows)
    return int(any(r["times"] < r["limit"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
