"""The driver sees each way in which a check can end, says with which seed, and makes the failure small."""

import collections
import os
import signal
import time

import numpy as np
import onnx
import pytest

from tests.fuzz import run
from tests.fuzz.driver import Outcome, rng_of, run_subject, shrink
from tests.fuzz.graph_checks import WAYS, Drawn, Oracles, Way, difference, drawn_of, family_of, rounding
from tests.fuzz.graphs import Graph, Value, model_of
from weft.error import ShapeMismatch


class Numbers:
    """Checks of one kind: what happens from 40 on."""

    check_seconds = 1.0
    complaints = ()

    def __init__(self, kind):
        self.kind = kind

    def subjects(self):
        return [f"{self.kind}:0", f"{self.kind}:1", "other:0"]

    def open(self, name):
        if self.kind == "refused":
            raise Outcome("refused when compiled", "no")
        return self

    def draw(self, rng):
        return 100

    def smaller(self, drawn):
        return (n for n in (20, 40) if n < drawn)

    def show(self, drawn):
        return f"the number {drawn}"

    def check(self, drawn):
        if drawn < 40:
            return Outcome("equal")
        if self.kind == "crash":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.kind == "timeout":
            time.sleep(60)
        if self.kind == "bug":
            raise ShapeMismatch("not caught")
        return Outcome(self.kind, f"with {drawn}")


@pytest.mark.parametrize("kind", ["different", "crash", "bug", "refused"])
def test_failures_are_recorded_and_made_small(kind):
    report = run_subject(Numbers(kind), "x:0", 7, 2, 10.0)
    (found,) = (f for f in report.findings.values())
    assert (found.group, found.subject) == ("x", "x:0")
    expected = {"bug": ("the suite fails", 7, ""), "refused": ("refused when compiled", -1, "")}
    assert (found.kind, found.seed, found.shown) == expected.get(kind, (kind, 7, "the number 40"))
    assert found.count == {"different": 2, "crash": 2, "bug": 2}.get(kind, found.count)


def test_a_hang_is_ended():
    suite = Numbers("timeout")
    began = time.monotonic()
    report = run_subject(suite, "x:0", 0, 1, 10.0)
    assert [f.kind for f in report.findings.values()] == ["timeout"] and time.monotonic() - began < 40


def test_groups_take_turns():
    options = run.parse(["calls", "--seed", "3"])
    assert {n.partition(":")[0] for n in run.chosen(Numbers("x"), options)[:2]} == {"x", "other"}


def test_a_graph_is_cut_down(monkeypatch):
    """A graph that is wrong wherever it has a Softmax is cut down to it."""

    def check(self, drawn):
        wrong = any(n.op_type == "Softmax" for n in drawn.model.graph.node)
        return Outcome("different" if wrong else "equal", "")

    monkeypatch.setattr(Way, "check", check)
    graphs = (Graph(seed, 12) for seed in range(100))
    drawn = next(d for d in (drawn_of(g, g.model(), 0) for g in graphs) if check(None, d).kind == "different")
    way = Way("default/O2/bytecode")
    small, _ = shrink(way, drawn, way.check(drawn), seconds=20, forked=False)
    assert [n.op_type for n in small.model.graph.node] == ["Softmax"]
    assert "default/O2/bytecode" in way.show(small) and "Softmax" in way.show(small)


def test_differences_are_measured_by_the_oracles():
    one = np.ones(3, np.float32)
    assert difference(one, one, one) == "" and "a difference" in difference(one * 1.01, one, one)
    assert difference(one * 1.01, one, one * 1.01) == ""  # the oracles are as far apart
    assert "instead of" in difference(one[:2], one, one)


def test_variants_of_a_graph_differ_and_are_sound():
    models = []
    for seed in range(12):
        drawn = Way(WAYS[seed]).draw(rng_of(WAYS[seed], seed))
        onnx.checker.check_model(drawn.model, full_check=True)
        models.append(drawn.model.SerializeToString())
    assert len(set(models)) > 8 and len({n for m in models for n in names_of(m)}) <= len(family_of(0)[0].nodes) + 4


def names_of(data):
    return {n.name for n in onnx.load_from_string(data).graph.node}


def test_what_rounding_explains_is_no_difference():
    """The oracles agree that x / 3 * 3 - x is nothing; a node that rounds differently says something else."""
    x, three = Value("x", (3,)), np.array(3, np.float32)
    nodes = [
        onnx.helper.make_node("Div", ["x", "w"], ["a"]),
        onnx.helper.make_node("Mul", ["a", "w"], ["b"]),
        onnx.helper.make_node("Sub", ["b", "x"], ["c"]),
    ]
    known = {v.name: v for v in [x, *(Value(n, (3,)) for n in "abc")]}
    model = model_of(nodes, [x], [known["c"]], [onnx.numpy_helper.from_array(three, "w")])
    drawn = Drawn(model, known, 0)
    oracles = Oracles(drawn, [{"x": np.array([1, 2, 4], np.float32)}])
    assert not oracles.outputs[0][0][0].any() and len(rounding(drawn, 0).graph.node) == 6
    assert oracles.difference([np.full(3, 1e-7, np.float32)], 0) == ""
    assert "a difference" in oracles.difference([np.full(3, 1e-3, np.float32)], 0)


def test_reports_say_counts():
    report = run_subject(Numbers("equal"), "x:0", 0, 5, 10.0)
    assert report.counts == collections.Counter(equal=5) and not report.failures()
    assert report.text().startswith("5 checks of 1 subjects")
