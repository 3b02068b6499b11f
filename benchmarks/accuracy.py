"""Outputs beside ONNX Runtime's: the zoo at five sizes each, from one compilation that is given no shapes."""

import sys

from benchmarks import report, zoo
from benchmarks.peer import largest_difference, peer_session, weft_session

LIMIT = 1e-3


def compare(name: str) -> list[dict]:
    """One row a size."""
    path = zoo.onnx_path(name)
    ours, theirs = weft_session(path), peer_session(path)
    rows = []
    for size in range(zoo.N_SIZES):
        feeds = zoo.inputs(name, size)
        difference = largest_difference([o.numpy() for o in ours.run(feeds)], theirs.run(None, feeds))
        rows.append(
            {"model": name, "input": zoo.describe(name, size), "difference": difference, "within": difference <= LIMIT}
        )
    return rows


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("models", nargs="*", choices=[*zoo.MODELS, []], help="by default all")
    options = parser.parse_args()
    rows = []
    for name in options.models or zoo.MODELS:
        try:
            rows += compare(name)
        except Exception as e:  # one model that fails must not hide the others
            print(f"{name}: {type(e).__name__}: {e}", file=sys.stderr)
            rows.append({"model": name, "input": "-", "difference": float("inf"), "within": False})
    report.show("largest difference from ONNX Runtime, relative to the largest output", rows)
    report.save(options.json, "accuracy", rows)
    return int(not all(r["within"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
