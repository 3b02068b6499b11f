"""Random graphs with symbolic shapes give what ONNX Runtime gives, at several sizes of one compilation."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest

import weft
from benchmarks.peer import largest_difference, peer_session
from tests.fuzz import budget, graphs


def difference(model: onnx.ModelProto, seed: int) -> float | None:
    """The largest difference at any size; None where ONNX Runtime refuses the graph."""
    try:
        theirs = peer_session(model.SerializeToString())
        inputs = [graphs.feeds(model, sizes, seed) for sizes in graphs.SIZES]
        expected = [theirs.run(None, f) for f in inputs]
    except onnxruntime.capi.onnxruntime_pybind11_state.OnnxRuntimeException:
        return None
    ours = weft.Session(model)
    found = [[o.numpy() for o in ours.run(f)] for f in inputs]
    return max(largest_difference(f, e) for f, e in zip(found, expected, strict=True))


def problem(model: onnx.ModelProto, seed: int) -> str | None:
    """What is wrong with a graph, or None."""
    try:
        worst = difference(model, seed)
    except Exception as e:  # whatever is raised is a finding
        return f"{type(e).__name__}: {e}"
    return f"outputs differ by {worst:.1e}" if worst is not None and worst > 1e-3 else None


def test_random_graphs():
    for seed in budget.seeds(start=1000):
        steps = 2 + seed % 9
        graph = graphs.Graph(seed, steps)
        found = problem(graph.model(), seed)
        if found is None:
            continue
        for fewer in range(1, steps):  # the shortest beginning that fails
            shorter = problem(graph.model(fewer), seed)
            if shorter is not None:
                steps, found = fewer, shorter
                break
        pytest.fail(f"seed {seed}, {steps} steps: {found}\n{onnx.printer.to_text(graph.model(steps))}")


REGRESSIONS: tuple[tuple[int, int], ...] = ((1000, 2),)
"""Seeds and steps that once failed."""


@pytest.mark.parametrize(("seed", "steps"), REGRESSIONS)
def test_what_once_failed(seed, steps):
    assert problem(graphs.Graph(seed, 2 + seed % 9).model(steps), seed) is None
