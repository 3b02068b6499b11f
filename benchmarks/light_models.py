"""The nine networks that the ``onnx`` package carries, against the outputs beside them, at the suite's tolerances.

Their weights are constants of one value and the input counts from 0 to 1, as the suite's own runner makes it.
"""

import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from benchmarks import report
from benchmarks.peer import weft_session

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"


def names() -> list[str]:
    """Names of the networks."""
    return sorted(p.name.removeprefix("light_").removesuffix(".onnx") for p in FOLDER.glob("light_*.onnx"))


def load(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """The model, its input and the expected outputs."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    weights = {t.name for t in model.graph.initializer}
    feeds = {i.name: Runner.generate_dummy_data(i, name=name) for i in model.graph.input if i.name not in weights}
    expected = []
    for index in range(len(model.graph.output)):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((FOLDER / f"light_{name}_output_{index}.pb").read_bytes())
        expected.append(numpy_helper.to_array(tensor))
    return model, feeds, expected


def tolerances() -> dict[str, tuple[float, float]]:
    """Relative and absolute tolerance by network."""
    return {t.model_name.removeprefix("light_"): (t.rtol, t.atol) for t in load_model_tests(kind="real")}


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("networks", nargs="*", help="by default all")
    options = parser.parse_args()
    rows = []
    for name in options.networks or names():
        model, feeds, expected = load(name)
        rtol, atol = tolerances()[name]
        row = {"network": name, "passes": False, "compile s": 0.0, "note": ""}
        try:
            start = time.perf_counter()
            session = weft_session(model)
            row["compile s"] = time.perf_counter() - start
            found = [o.numpy() for o in session.run(feeds)]
            Runner.assert_similar_outputs(expected, found, rtol, atol)
            row["passes"] = True
        except Exception as e:  # one network that fails must not hide the others
            row["note"] = f"{type(e).__name__}: {e}".strip().split("\n")[0][:80]
        rows.append(row)
    report.show("the onnx package's networks", rows)
    report.save(options.json, "light_models", rows)
    return int(not all(r["passes"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
