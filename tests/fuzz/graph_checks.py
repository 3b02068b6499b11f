"""Random graphs, compiled in every way, against NumPy and ONNX Runtime; a failing graph is cut down by itself.

A subject is a pipeline, an optimisation level and a way to execute, and has graphs of its own; all ways have their turn
alike. Graphs whose seeds are neighbours are variants of one, so that most kernels of each are in the cache, which is
ten times as fast. The subject ``all`` compiles graphs with dimensions of any kind in every way.

How far two oracles are apart, and how far rounding at each node moves one of them, says how much a graph magnifies
rounding, and what Weft is allowed.
"""

import base64
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import weft
from tests.fuzz.driver import Outcome, note, seed_of
from tests.fuzz.graphs import PALETTES, SIZES, Graph, Value, feeds, model_of

TOLERANCE, MAGNIFIED = 1e-4, 20.0
"""Of the largest value of an output: what is allowed where the oracles agree, and how often their difference."""
ROUNDING, ROUNDINGS = 2.0**-22, 3
"""How far values are moved, and how often that is tried."""
STEPS = 8, 40
"""The fewest and most steps of a family's graph, drawn by their logarithm: short ones cost least and find as much."""
VARIANTS = 200
"""Graphs of the same steps."""
TARGETS = ("llvm", *["llvm -opt-level=0"] * 3)
"""Of families: Weft's code is what is looked at, and LLVM's optimiser takes half of the time."""
WAYS = ["/".join(w) for w in itertools.product(("default", "zero"), ("O0", "O2", "O3"), ("bytecode", "compiled"))]
SCRIPT = """import base64, numpy as np, onnx, weft
from tests.fuzz.graph_checks import Drawn, Graphs
drawn = Drawn(onnx.load_from_string(base64.b64decode("{data}")), {{}}, {seed}, "{target}")
print(onnx.printer.to_text(drawn.model))
print(Graphs().open("{way}").check(drawn))"""


class Drawn(NamedTuple):
    """A model, the types of the values in it, and the seed of its inputs."""

    model: onnx.ModelProto
    known: dict[str, Value]
    seed: int
    target: str = "llvm"


class Way:
    """One way to compile and run: ``default/O2/bytecode``."""

    complaints: tuple[Outcome, ...] = ()

    def __init__(self, name: str) -> None:
        self.name, self.ways = name, [name]

    def draw(self, rng: np.random.Generator) -> Drawn:
        seed = int(rng.integers(1 << 40))
        graph, target = family_of(seed_of(rng) // VARIANTS)
        model = graph.variant(np.random.default_rng(seed))
        return drawn_of(graph, model, seed)._replace(target=target)

    def check(self, drawn: Drawn) -> Outcome:
        inputs = [feeds(drawn.model, sizes, drawn.seed) for sizes in SIZES]
        found = {}
        for way in self.ways:
            try:
                run = compiled(drawn.model, way, drawn.target)
                found[way] = [run(given) for given in inputs]
            except Exception as e:  # a valid graph has no reason to be refused
                return Outcome("refused or failed", f"{type(e).__name__}: {e}, {way}")
        note("oracle")
        try:
            oracles = Oracles(drawn, inputs)
        except Exception:  # a graph that an oracle refuses says nothing
            return Outcome("skipped")
        note("")
        for way, at in itertools.product(self.ways, range(len(SIZES))):
            words = oracles.difference(found[way][at], at)
            if words:
                return Outcome("different", f"{words} at {SIZES[at]}, {way}")
        return Outcome("equal")

    def smaller(self, drawn: Drawn) -> Iterator[Drawn]:
        """Fewer outputs, an earlier output, a value given instead of computed, a node left out."""
        model, known = drawn.model, drawn.known
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
                yield drawn._replace(model=other)

    def show(self, drawn: Drawn) -> str:
        data = base64.b64encode(drawn.model.SerializeToString()).decode()
        text = SCRIPT.format(data=data, seed=drawn.seed, way=self.name, target=drawn.target)
        return f"{len(drawn.model.graph.node)} nodes\n{onnx.printer.to_text(drawn.model)}\n# reproduce:\n{text}\n"


class Every(Way):
    """All ways, for one graph whose dimensions are of any kind."""

    def __init__(self) -> None:
        self.name, self.ways = "all", WAYS

    def draw(self, rng: np.random.Generator) -> Drawn:
        seed = int(rng.integers(1 << 40))
        graph = Graph(seed, int(rng.integers(5, 41)))
        return drawn_of(graph, graph.model(), seed)


@functools.lru_cache(1)
def family_of(number: int) -> tuple[Graph, str]:
    """The graph of which others are variants, and what they are compiled for."""
    rng = np.random.default_rng(number)
    palette, target = PALETTES[int(rng.integers(len(PALETTES)))], TARGETS[int(rng.integers(len(TARGETS)))]
    return Graph(int(rng.integers(1 << 40)), round(math.exp(rng.uniform(*map(math.log, STEPS)))), palette), target


def drawn_of(graph: Graph, model: onnx.ModelProto, seed: int) -> Drawn:
    return Drawn(model, {v.name: v for v in [*graph.inputs, graph.flag]} | graph.known, seed)


def compiled(model: onnx.ModelProto, way: str, target: str) -> Any:
    """What runs a model, compiled in one way."""
    pipeline, level, exec_mode = way.split("/")
    mod = weft.relax.frontend.onnx.from_onnx(model)
    with weft.transform.PassContext(opt_level=int(level[1:])):
        built = weft.compile(mod, target, relax_pipeline=pipeline, exec_mode=exec_mode)
    main = weft.relax.VirtualMachine(built, weft.cpu())["main"]

    def run(given: dict[str, np.ndarray]) -> list[np.ndarray]:
        out = main(*given.values())
        return [o.numpy() for o in (out if len(model.graph.output) > 1 else [out])]

    return run


class Oracles:
    """What a model gives for each of several inputs."""

    def __init__(self, drawn: Drawn, inputs: list[dict[str, np.ndarray]]) -> None:
        self.drawn, self.inputs = drawn, inputs
        session, reference = session_of(drawn.model), ReferenceEvaluator(drawn.model)
        with np.errstate(all="ignore"):
            self.outputs = [(session.run(None, given), reference.run(None, given)) for given in inputs]

    def difference(self, ours: list[np.ndarray], at: int) -> str:
        """How our outputs for one of the inputs differ, or nothing."""
        theirs, plain = self.outputs[at]
        for which, (f, t, p) in enumerate(zip(ours, theirs, plain, strict=True)):
            words = difference(np.asarray(f), np.asarray(t), np.asarray(p))
            if words and all(
                difference(np.asarray(f), np.asarray(t), self.rounded(at, draw)[which]) for draw in range(ROUNDINGS)
            ):
                return f"{words} in output {which}"
        return ""

    def rounded(self, at: int, draw: int) -> list[np.ndarray]:
        """What the model gives for one of the inputs if every node rounds in its own way."""
        return session_of(rounding(self.drawn, draw)).run(None, self.inputs[at])


def session_of(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def rounding(drawn: Drawn, draw: int) -> onnx.ModelProto:
    """The model with every float multiplied by almost one, where it is made."""
    rng = np.random.default_rng([drawn.seed, draw])
    model = onnx.shape_inference.infer_shapes(drawn.model)
    types = {v.name: v.type.tensor_type.elem_type for v in [*model.graph.value_info, *model.graph.output]}
    nodes = []
    for node in model.graph.node:
        floats = [o for o in node.output if types.get(o) == onnx.TensorProto.FLOAT]
        node.output[:] = [f"{o}_exact" if o in floats else o for o in node.output]
        nodes.append(node)
        for o in floats:
            factor = np.array(1 + rng.uniform(-ROUNDING, ROUNDING), np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(factor, f"{o}_factor"))
            nodes.append(onnx.helper.make_node("Mul", [f"{o}_exact", f"{o}_factor"], [o]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


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
    """The suite: every pipeline, level and mode, and all of them."""

    check_seconds = 120.0
    own_cache = True
    slice_seconds = 30.0
    """In which most variants of a graph have their turn."""

    def __init__(self) -> None:
        compiled(Graph(0, 3).model(), WAYS[0], TARGETS[0])  # loads what each child would load again

    def subjects(self) -> list[str]:
        return [*WAYS, "all"]

    def open(self, subject: str) -> Way:
        return Every() if subject == "all" else Way(subject)
