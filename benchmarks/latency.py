"""Latency of whole networks beside ONNX Runtime: ResNet-50, MobileNetV2, MiniLM at 128 tokens, the text detector."""

import sys

from benchmarks import report, zoo
from benchmarks.peer import largest_difference, peer_session, weft_session
from benchmarks.race import race, ratio

ROWS = ("resnet50", "mobilenet_v2", "minilm", "text_detector", "mobilenet_v3", "text_recogniser", "decoder_step")
JUDGED = frozenset(ROWS[:4])
LIMIT = 2.5


def measure(name: str, rounds: int, seconds: float) -> dict:
    path = zoo.onnx_path(name)
    feeds = zoo.inputs(name, 0)
    ours, theirs = weft_session(path), peer_session(path)
    difference = largest_difference([o.numpy() for o in ours.run(feeds)], theirs.run(None, feeds))
    lanes = race({"weft": lambda: ours.run(feeds), "onnxruntime": lambda: theirs.run(None, feeds)}, rounds, seconds)
    return {
        "model": name,
        "input": zoo.describe(name, 0),
        "weft ms": lanes["weft"].median_ms,
        "onnxruntime ms": lanes["onnxruntime"].median_ms,
        "times": ratio(lanes, "weft", "onnxruntime"),
        "weft best": lanes["weft"].best_ms,
        "onnxruntime best": lanes["onnxruntime"].best_ms,
        "difference": difference,
    }


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("models", nargs="*", choices=[*ROWS, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a block")
    options = parser.parse_args()
    rows = [measure(name, options.rounds, options.seconds) for name in options.models or ROWS]
    report.show("latency, two threads", rows)
    report.save(options.json, "latency", rows)
    return int(any(r["times"] > LIMIT or r["difference"] > 1e-3 for r in rows if r["model"] in JUDGED))


if __name__ == "__main__":
    sys.exit(main())
