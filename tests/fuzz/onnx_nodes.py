"""Models of one ONNX node whose attributes, types, opset and inputs are drawn by the operator's schema.

A subject is an operator, a check a model of its own: a node case of ONNX of which some attributes are others, also
extreme ones or none, tensors are of another type that the schema allows, inputs are left out or constant, dimensions
are known or not. It is compiled and called once; the oracles are those of `onnx_calls`.
"""

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.calls import FAMILIES, MOST_ELEMENTS, Leaf, extremes, mutate, smaller_leaves
from tests.fuzz.driver import Outcome, note
from tests.fuzz.onnx_calls import OnnxCall, OnnxCalls, arrays_of
from weft.error import UnsupportedOperator, WeftError, is_defect

INTS = (-(2**63), -(2**31), -100, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 16, 33, 2**31, 2**63 - 1)
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1.0, 0.5, 1.0, 3.0, 3e38)
MOST_ATTRIBUTE = 1 << 16
"""Extents that attributes ask for and oracles would make: beyond them are gigabytes."""


@dataclass
class Node:
    """A node case with what is changed about it."""

    case: str
    leaves: list[Leaf]
    seed: int
    attributes: dict[str, Any] = field(default_factory=dict)
    """Values that take the place of those of the case, None of what is left out."""
    absent: frozenset[int] = frozenset()
    constant: frozenset[int] = frozenset()
    known: bool = False
    opset: int = 0


def other_attribute(kind: Any, value: Any, rng: np.random.Generator) -> Any:
    """Draw another value for an attribute of a type; None leaves it out."""
    types = onnx.defs.OpSchema.AttrType
    pools: dict[Any, tuple[Any, ...]] = {types.INT: INTS, types.FLOAT: FLOATS}
    if rng.random() < 0.2:
        return None
    if kind in pools:
        near = [] if value is None or not np.isfinite(value) else [value + 1, value - 1, -value]
        return [*pools[kind], *near][int(rng.integers(len(pools[kind]) + len(near)))]
    lists: dict[Any, tuple[Any, ...]] = {types.INTS: INTS[3:-3], types.FLOATS: FLOATS}
    if kind not in lists:
        return value
    out = list(value or [1, 1])
    at, one = int(rng.integers(len(out) + 1)), lists[kind][int(rng.integers(len(lists[kind])))]
    out[at : at + int(rng.integers(2))] = [one] if rng.random() < 0.7 else []
    return out


class OnnxNode(OnnxCall):
    """One operator, of which each check draws a model."""

    def __init__(self, op: str, cases: dict[str, tuple[bytes, list[Any], float, float]]) -> None:
        self.cases, self.op, self.complaints = cases, op, []
        self.names_of = sorted(cases)

    def draw(self, rng: np.random.Generator) -> Node:
        case = self.names_of[int(rng.integers(len(self.names_of)))]
        data, arrays, *_ = self.cases[case]
        node = onnx.load_from_string(data).graph.node[0]
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
        leaves = [Leaf("tensor", a.shape, a.dtype.name, a) for a in arrays]
        drawn = Node(case, leaves, int(rng.integers(1 << 30)), known=rng.random() < 0.4)
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for name in sorted(schema.attributes):
            if rng.random() < 0.3:
                drawn.attributes[name] = other_attribute(schema.attributes[name].type, given.get(name), rng)
        if rng.random() < 0.3:
            self.retype(schema, leaves, rng)
        if rng.random() < 0.3:
            versions = {s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == self.op}
            drawn.opset = int(rng.choice(sorted(versions)))
        extents = [d for leaf in leaves for d in leaf.shape] or [1]
        for _ in range(int(rng.choice(3, p=(0.4, 0.4, 0.2))) if leaves else 0):
            mutate(leaves[int(rng.integers(len(leaves)))], extents, rng)
        for leaf in leaves:
            if rng.random() < 0.15 and leaf.dtype in (
                "float32",
                "float64",
                "float16",
                "int32",
                "int64",
                "uint8",
                "int8",
            ):
                leaf.specials = tuple(rng.choice(np.array(extremes(leaf.dtype), object), int(rng.integers(1, 5))))
        drawn.constant = frozenset(n for n in range(len(leaves)) if rng.random() < 0.25)
        drawn.absent = frozenset(n for n in range(1, len(leaves)) if rng.random() < 0.05)
        return drawn

    def retype(self, schema: Any, leaves: list[Leaf], rng: np.random.Generator) -> None:
        """Give the tensors of one of the schema's types another one that it allows."""
        types = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
        formal = [schema.inputs[min(n, len(schema.inputs) - 1)].type_str for n in range(len(leaves))]
        name = sorted({f for f in formal if f in types} or {""})[0]
        words = {"tensor(float)": "float32", "tensor(double)": "float64"}
        allowed = [words.get(t, t[7:-1]) for t in types.get(name, ())]
        allowed = [t for t in allowed if t in (*itertools.chain(*FAMILIES), "bool")]
        if not allowed:
            return
        dtype = allowed[int(rng.integers(len(allowed)))]
        for leaf, of in zip(leaves, formal, strict=True):
            if of == name:
                leaf.dtype = dtype

    def smaller(self, drawn: Node) -> Iterator[Node]:
        for name in drawn.attributes:
            yield replace(drawn, attributes={k: v for k, v in drawn.attributes.items() if k != name})
        for n in drawn.constant:
            yield replace(drawn, constant=drawn.constant - {n})
        if drawn.opset:
            yield replace(drawn, opset=0)
        if not drawn.known:
            yield replace(drawn, known=True)
        for leaves, seed in smaller_leaves(drawn.leaves, drawn.seed):
            yield replace(drawn, leaves=leaves, seed=seed)

    def feeds(self, drawn: Node) -> dict[int, np.ndarray]:
        rng = np.random.default_rng(drawn.seed)
        return {n: leaf.value(rng) for n, leaf in enumerate(drawn.leaves)}

    def model(self, drawn: Node, arrays: dict[int, np.ndarray]) -> tuple[onnx.ModelProto, list[int]]:
        """The model, and the places of the inputs that are given to it."""
        model = onnx.load_from_string(self.cases[drawn.case][0])
        graph, node = model.graph, model.graph.node[0]
        infos, free = list(graph.input), []
        del graph.input[:], graph.value_info[:]
        for n, info in enumerate(infos):
            if n in drawn.absent:
                node.input[:] = ["" if i == info.name else i for i in node.input]
            elif n in drawn.constant:
                graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(arrays[n]), info.name))
            else:
                free.append(n)
                kind = helper.np_dtype_to_tensor_dtype(arrays[n].dtype)
                dims = [d if drawn.known else f"d{n}_{axis}" for axis, d in enumerate(arrays[n].shape)]
                graph.input.append(helper.make_tensor_value_info(info.name, kind, dims))
        kept = {a.name: a for a in node.attribute}
        for name, value in drawn.attributes.items():
            kept.pop(name, None)
            if value is not None:
                kind = onnx.defs.get_schema(node.op_type, domain=node.domain).attributes[name].type
                kept[name] = helper.make_attribute(name, value, attr_type=int(kind.value))
        del node.attribute[:]
        node.attribute.extend(kept[name] for name in sorted(kept))
        for opset in model.opset_import:
            opset.version = drawn.opset if drawn.opset and opset.domain == node.domain else opset.version
        self.type_outputs(model)
        return model, free

    def type_outputs(self, model: onnx.ModelProto) -> None:
        """Say of the outputs what follows from the inputs, or nothing."""
        outputs = list(model.graph.output)
        for info in outputs:
            info.ClearField("type")
        try:
            model.graph.CopyFrom(onnx.shape_inference.infer_shapes(model).graph)
        except Exception:  # it is wrong, or not known, what the outputs are: whoever reads the model has to say so
            return
        for info in model.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")

    def show(self, drawn: Node) -> str:
        arrays = self.feeds(drawn)
        words = [leaf.words(arrays[n]) for n, leaf in enumerate(drawn.leaves)]
        rest = replace(drawn, leaves=[])
        return f"{self.op}({', '.join(words)}) {rest}"

    def asks_for_much(self, drawn: Node, arrays: dict[int, np.ndarray]) -> bool:
        """Whether numbers ask for results that oracles would make of gigabytes."""
        numbers = [v for v in drawn.attributes.values() if isinstance(v, int)]
        numbers += [v for vs in drawn.attributes.values() if isinstance(vs, list) for v in vs if isinstance(v, int)]
        few = [v for a in arrays.values() if a.dtype.kind in "iu" and a.size < 9 for v in a.ravel().tolist()]
        return any(abs(v) > MOST_ATTRIBUTE for v in numbers + few)

    def check(self, drawn: Node) -> Outcome:
        if sum(int(np.prod(leaf.shape)) for leaf in drawn.leaves) > MOST_ELEMENTS:
            return Outcome("skipped")
        _, _, self.rtol, self.atol = self.cases[drawn.case]
        arrays = self.feeds(drawn)
        try:
            model, free = self.model(drawn, arrays)
        except Exception as e:  # the maker of models refuses a value
            return Outcome("skipped", str(e))
        self.node = model.graph.node[0]
        feeds = {info.name: arrays[n] for info, n in zip(model.graph.input, free, strict=True)}
        found, refusal = None, ""
        try:
            self.session = self.opened(model)
            if self.takes_too_long(feeds):
                return Outcome("skipped", "it takes too long")
            found = list(arrays_of(self.session.run(feeds)))
        except UnsupportedOperator as e:
            refusal = f"{type(e).__name__}: {e}"
        except Outcome as e:
            return e
        except Exception as e:
            refusal = f"{type(e).__name__}: {e}"
            if is_defect(e) or not isinstance(e, (WeftError, MemoryError)):
                return Outcome("foreign error", refusal)
        if self.asks_for_much(drawn, arrays):
            return Outcome("skipped" if found is None else "equal")
        self.oracles = []
        note("oracle")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.add_oracles(model, not drawn.opset)
        if self.oracles:
            return self.judged(feeds, found, refusal)
        return Outcome("refused by both" if found is None else "skipped" if drawn.opset else "ANSWERED", self.refused)

    def add_oracles(self, model, newest):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.refused = ""
        try:
            theirs = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            self.oracles.append(("ONNX Runtime", theirs.run))
        except Exception as e:
            self.refused = str(e)
        try:
            if newest:
                self.oracles.append(("the ONNX reference", ReferenceEvaluator(model).run))
        except Exception as e:
            self.refused += str(e)


class OnnxNodes(OnnxCalls):
    """The suite of all operators that have node cases."""

    check_seconds = 20.0

    def subjects(self) -> list[str]:
        self.of = {}
        for name, (data, arrays, _, _) in self.cases.items():
            graph = onnx.load_from_string(data).graph
            if len(graph.node) == 1 and all(i.type.HasField("tensor_type") for i in graph.input):
                if all(a.dtype.kind not in "OSUV" or a.dtype.name in ("bfloat16",) for a in arrays):
                    self.of.setdefault(graph.node[0].op_type, {})[name] = self.cases[name]
        return sorted(self.of)

    def open(self, subject: str) -> OnnxNode:
        if not hasattr(self, "of"):
            self.subjects()
        return OnnxNode(subject, self.of[subject])
