"""Cases of ONNX's conformance suite as plain C: ``make plain-c SECONDS=200 SEED=5`` prints wrong answers and a count.

Each case is answered rightly or refused with a reason.
"""

import argparse
import collections
import random
import tempfile
import time
import warnings
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from tests.relay.build.test_plain_c import compiled
from weft import error, relay
from weft.frontend.onnx import from_onnx


def outcome(case: Any, folder: Path) -> str:
    """``right``, ``wrong: ...``, or why the case is refused."""
    if not all(isinstance(a, (np.ndarray, np.generic)) for arrays in case.data_sets[0] for a in arrays):
        return "refused: no tensors"
    inputs, wanted = ([np.ascontiguousarray(a) for a in arrays] for arrays in case.data_sets[0])
    if any(a.dtype.kind in "OSUc" for a in (*inputs, *wanted)):
        return "refused: no numbers"
    try:
        model = relay.plain_c(from_onnx(case.model), "net")
    except error.WeftError:
        try:  # as exporters write it, with the sizes and axes that shapes depend on in the file
            inputs, written = with_constants(case.model, inputs)
            model = relay.plain_c(from_onnx(written), "net")
        except error.WeftError as e:
            return f"refused: {str(e).splitlines()[0]}"
    outputs = [np.zeros(a.shape, a.dtype) for a in wanted]
    arguments = [c_void_p(a.ctypes.data) for a in (*inputs, *outputs)]
    prototype = model.header.split("int net(")[1].split(";")[0]
    if prototype.count(",") != len(arguments):
        return "refused: the suite gives constants as inputs"
    if compiled(model, folder, "net")(None, *arguments) != 0:
        return "wrong: the function failed"
    for found, expected in zip(outputs, wanted, strict=True):
        if not np.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"wrong: {found} instead of {expected}"
    return "right"


def with_constants(model: onnx.ModelProto, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], onnx.ModelProto]:
    """A model whose integer inputs of at most one dimension are constants, and the inputs that are left."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.input[:]
    left = []
    for info, value in zip([i for i in model.graph.input if i.name], inputs, strict=True):
        if value.dtype == np.int64 and value.ndim <= 1:
            out.graph.initializer.append(onnx.numpy_helper.from_array(value, info.name))
        else:
            out.graph.input.append(info)
            left.append(value)
    return left, out


def main() -> None:
    """Run cases in a random order until time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [c for c in load_model_tests(kind="node") if c.data_sets]
    random.Random(given.seed).shuffle(cases)
    counts: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + given.seconds
    for case in cases:
        if time.monotonic() > end:
            break
        with tempfile.TemporaryDirectory(prefix="weft-c-") as folder:
            found = outcome(case, Path(folder))
        if found.startswith("wrong"):
            print(f"{case.name}: {found}")
        counts[found.partition(" at ")[0][:90] if not found.startswith("wrong") else "wrong"] += 1
    for what, n in counts.most_common():
        print(f"{n:5d} {what}")


if __name__ == "__main__":
    main()
