"""Random graphs, compiled in every way, against NumPy and ONNX Runtime; a failing graph is cut down by itself.

A subject is a pipeline, an optimisation level and a way to execute. How far two oracles are apart says how much a
graph magnifies rounding, and what Weft is allowed.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import weft
from tests.fuzz.driver import Outcome, note
from tests.fuzz.graphs import SIZES, Graph, Value, feeds, model_of

TOLERANCE, MAGNIFIED = 1e-4, 20.0
"""Of the largest value of an output: what is allowed where the oracles agree, and how often their difference."""
SCRIPT = """import base64, numpy as np, onnx, weft
from tests.fuzz.graph_checks import Way, Drawn
drawn = Drawn(onnx.load_from_string(base64.b64decode("{data}")), {{}}, {seed})
print(onnx.printer.to_text(drawn.model))
print(Way("{way}").check(drawn))"""


class Drawn(NamedTuple):
    """A model, the types of the values in it, and the seed of its inputs."""

    model: onnx.ModelProto
    known: dict[str, Value]
    seed: int


class Way:
    """One way to compile and run: ``default/O2/bytecode``."""

    complaints: tuple[Outcome, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.pipeline, level, self.exec_mode = name.split("/")
        self.opt_level = int(level[1:])

    def draw(self, rng: np.random.Generator) -> Drawn:
        seed = int(rng.integers(1 << 40))
        graph = Graph(seed, int(rng.integers(5, 41)))
        model = graph.model()
        known = {v.name: v for v in [*graph.inputs, graph.flag]} | graph.known
        return Drawn(model, known, seed)

    def check(self, drawn: Drawn) -> Outcome:
        inputs = [feeds(drawn.model, sizes, drawn.seed) for sizes in SIZES]
        try:
            run = self.compiled(drawn.model)
            found = [run(given) for given in inputs]
        except Exception as e:  # a valid graph has no reason to be refused
            return Outcome("refused or failed", f"{type(e).__name__}: {e}")
        note("oracle")
        try:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.log_severity_level = 1, 4
            session = onnxruntime.InferenceSession(drawn.model.SerializeToString(), options, ["CPUExecutionProvider"])
            reference = ReferenceEvaluator(drawn.model)
            with np.errstate(all="ignore"):
                oracles = [(session.run(None, given), reference.run(None, given)) for given in inputs]
        except Exception:  # a graph that an oracle refuses says nothing
            return Outcome("skipped")
        note("")
        for sizes, ours, (theirs, plain) in zip(SIZES, found, oracles, strict=True):
            for at, (f, t, p) in enumerate(zip(ours, theirs, plain, strict=True)):
                words = difference(np.asarray(f), np.asarray(t), np.asarray(p))
                if words:
                    return Outcome("different", f"{words} in output {at} at {sizes}")
        return Outcome("equal")

    def compiled(self, model: onnx.ModelProto) -> Any:
        mod = weft.relax.frontend.onnx.from_onnx(model)
        with weft.transform.PassContext(opt_level=self.opt_level):
            built = weft.compile(mod, "llvm", relax_pipeline=self.pipeline, exec_mode=self.exec_mode)
        main = weft.relax.VirtualMachine(built, weft.cpu())["main"]

        def run(given: dict[str, np.ndarray]) -> list[np.ndarray]:
            out = main(*given.values())
            return [o.numpy() for o in (out if len(model.graph.output) > 1 else [out])]

        return run

    def smaller(self, drawn: Drawn) -> Iterator[Drawn]:
        """Fewer outputs, an earlier output, a value given instead of computed, a node left out."""
        model, known, seed = drawn
        size = len(model.graph.node)
        values = known
        made = [values[o] for node in model.graph.node for o in node.output if o in values]
        sound = [v for v in made if "?" not in v.shape]
        outputs = [values[o.name] for o in model.graph.output]
        inputs = [values[i.name] for i in model.graph.input]
        weights, nodes = list(model.graph.initializer), list(model.graph.node)
        tried = itertools.chain(
            (model_of(nodes, inputs, [o], weights) for o in outputs if len(outputs) > 1),
            (model_of(nodes, inputs, [v], weights) for v in sound if v not in outputs),
            (
                model_of([n for n in nodes if v.name not in n.output], [*inputs, v], outputs, weights)
                for v in reversed(sound)
                if v not in outputs
            ),
            (bypassed(nodes, n, name, inputs, outputs, weights) for n, name in same_typed(nodes, values)),
        )
        for other in tried:
            if len(other.graph.node) < size or len(other.graph.output) < len(outputs):
                yield Drawn(other, known, seed)

    def show(self, drawn: Drawn) -> str:
        data = base64.b64encode(drawn.model.SerializeToString()).decode()
        text = SCRIPT.format(data=data, seed=drawn.seed, way=self.name)
        return f"{len(drawn.model.graph.node)} nodes\n{onnx.printer.to_text(drawn.model)}\n# reproduce:\n{text}\n"


def same_typed(nodes: list[onnx.NodeProto], values: dict[str, Value]) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Nodes of which an input has the type of the output."""
    for node in nodes:
        for name in node.input:
            out = values.get(node.output[0])
            if len(node.output) == 1 and name in values and out is not None and values[name][1:] == out[1:]:
                yield node, name


def bypassed(
    nodes: Any, left_out: onnx.NodeProto, name: str, inputs: Any, outputs: Any, weights: Any
) -> onnx.ModelProto:
    """The graph in which a node hands its input on."""
    kept = [onnx.helper.make_node("Identity", [name], left_out.output) if n is left_out else n for n in nodes]
    if left_out.op_type == "Identity":
        old, kept = left_out.output[0], []
        for node in nodes:
            if node is not left_out and not any(a.HasField("g") for a in node.attribute):
                copy = onnx.NodeProto.FromString(node.SerializeToString())
                copy.input[:] = [name if i == old else i for i in node.input]
                node = copy
            kept += [node] if node is not left_out or old in {o.name for o in outputs} else []
    return model_of(kept, inputs, outputs, weights)


def difference(found: np.ndarray, theirs: np.ndarray, plain: np.ndarray) -> str:
    """How an output differs from what both oracles say, or nothing."""
    if found.shape != theirs.shape or found.dtype != theirs.dtype:
        return f"{found.dtype}{found.shape} instead of {theirs.dtype}{theirs.shape}"
    if not found.size or plain.shape != theirs.shape:
        return ""
    a, b, c = (x.astype(np.float64) for x in (found, theirs, plain))
    if not np.isfinite(b).all() or not np.isfinite(c).all():
        return ""  # what follows an overflow is anybody's
    scale = max(float(np.abs(b).max()), 1e-30)
    allowed = TOLERANCE * scale + MAGNIFIED * float(np.abs(b - c).max())
    worst = float(np.abs(a - b).max()) if np.isfinite(a).all() else np.inf
    return f"a difference of {worst:.1e} where values reach {scale:.1e}" if worst > allowed else ""


class Graphs:
    """The suite: every pipeline, level and mode."""

    check_seconds = 120.0

    def subjects(self) -> list[str]:
        return [
            "/".join(w) for w in itertools.product(("default", "zero"), ("O0", "O2", "O3"), ("bytecode", "compiled"))
        ]

    def open(self, subject: str) -> Way:
        return Way(subject)
