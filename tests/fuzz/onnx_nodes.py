"""Models of one ONNX node whose attributes, types, opset and inputs are drawn by the operator's schema.

A subject is an operator, a check a model of its own: a node case of ONNX of which some attributes are others, extreme
ones or left out, tensors are of another type that the schema allows, inputs are constant or absent, dimensions known or
not. What ONNX Runtime refuses, Weft refuses; what it or ONNX's reference answers, Weft answers or refuses.
"""

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.calls import FAMILIES, MOST_ELEMENTS, Leaf, mutate, smaller_leaves, specialize
from tests.fuzz.driver import Outcome, note
from tests.fuzz.onnx_calls import OnnxCall, OnnxCalls, arrays_of, oracles_of
from weft.error import ModelImportError, WeftError, is_defect

POOLS: dict[Any, tuple[Any, ...]] = {
    "INT": (-(2**63), -(2**31), -100, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 16, 33, 2**31, 2**63 - 1),
    "INTS": (-100, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 16),
    **dict.fromkeys(("FLOAT", "FLOATS"), (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1.0, 0.5, 1.0, 3.0, 3e38)),
}
TYPES = tuple(t for t in itertools.chain(*FAMILIES) if t != "bfloat16")
"""Types of tensors that are drawn: of bfloat16 the reference rounds every step."""
MOST_ASKED = 1 << 16
"""Numbers beyond which a result that they ask for is not made by an oracle."""


@dataclass
class Drawn:
    """A node case with what is changed about it."""

    case: str
    leaves: list[Leaf]
    seed: int
    attributes: dict[str, Any] = field(default_factory=dict)
    """Values in place of those of the case; None for what is left out."""
    absent: frozenset[int] = frozenset()
    constant: frozenset[int] = frozenset()
    known: bool = False
    opset: int = 0

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return [leaf.value(rng) for leaf in self.leaves]


def other_value(kind: str, value: Any, rng: np.random.Generator) -> Any:
    """Draw another value for an attribute; None leaves it out."""
    if rng.random() < 0.2 or kind not in POOLS:
        return None if kind in POOLS else value
    one = POOLS[kind][int(rng.integers(len(POOLS[kind])))]
    if kind in ("INT", "FLOAT"):
        return one
    out = list(value or [1, 1])
    at = int(rng.integers(len(out) + 1))
    out[at : at + int(rng.integers(2))] = [one] if rng.random() < 0.7 else []
    return out


def retype(schema: Any, leaves: list[Leaf], rng: np.random.Generator) -> None:
    """Give the tensors of the first of the schema's type variables another type that it allows."""
    allowed = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
    formal = [schema.inputs[min(n, len(schema.inputs) - 1)].type_str for n in range(len(leaves))]
    first = next((f for f in formal if f in allowed), None)
    names = {"tensor(float)": "float32", "tensor(double)": "float64"}
    kinds = [k for t in allowed.get(first, ()) if (k := names.get(t, t[7:-1])) in (*TYPES, "bool")]
    kind = kinds[int(rng.integers(len(kinds)))] if kinds else ""
    for leaf, of in zip(leaves, formal, strict=True):
        leaf.dtype = kind if kind and of == first else leaf.dtype


class OnnxNode(OnnxCall):
    """One operator, of which each check draws a model."""

    judges = ("ONNX Runtime",)

    def __init__(self, op: str, cases: dict[str, Any]) -> None:
        self.op, self.cases, self.complaints = op, cases, []

    def draw(self, rng: np.random.Generator) -> Drawn:
        case = sorted(self.cases)[int(rng.integers(len(self.cases)))]
        data, arrays, *_ = self.cases[case]
        node = onnx.load_from_string(data).graph.node[0]
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
        leaves = [Leaf("tensor", a.shape, a.dtype.name, a) for a in arrays]
        drawn = Drawn(case, leaves, int(rng.integers(1 << 30)), known=rng.random() < 0.4)
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for name, attribute in sorted(schema.attributes.items()):
            if rng.random() < 0.3:
                drawn.attributes[name] = other_value(attribute.type.name, given.get(name), rng)
        if rng.random() < 0.3:
            retype(schema, leaves, rng)
        if rng.random() < 0.3:
            history = onnx.defs.get_all_schemas_with_history()
            drawn.opset = int(rng.choice(sorted({s.since_version for s in history if s.name == self.op})))
        extents = [d for leaf in leaves for d in leaf.shape] or [1]
        for _ in range(int(rng.choice(3, p=(0.4, 0.4, 0.2))) if leaves else 0):
            mutate(leaves[int(rng.integers(len(leaves)))], extents, rng)
        for leaf in leaves:
            specialize(leaf, 0.15, rng)
        drawn.constant = frozenset(n for n in range(len(leaves)) if rng.random() < 0.25)
        drawn.absent = frozenset(n for n in range(1, len(leaves)) if rng.random() < 0.05)
        return drawn

    def smaller(self, drawn: Drawn) -> Iterator[Drawn]:
        for name in drawn.attributes:
            yield replace(drawn, attributes={k: v for k, v in drawn.attributes.items() if k != name})
        if drawn.constant or drawn.opset or not drawn.known:
            yield replace(drawn, constant=frozenset(), opset=0, known=True)
        for leaves, seed in smaller_leaves(drawn.leaves, drawn.seed):
            yield replace(drawn, leaves=leaves, seed=seed)

    def show(self, drawn: Drawn) -> str:
        words = [leaf.words(a) for leaf, a in zip(drawn.leaves, drawn.arrays(), strict=True)]
        return f"{self.op}({', '.join(words)}) {replace(drawn, leaves=[])}"

    def model(self, drawn: Drawn, arrays: list[np.ndarray]) -> onnx.ModelProto:
        model = onnx.load_from_string(self.cases[drawn.case][0])
        graph, node = model.graph, model.graph.node[0]
        infos = list(graph.input)
        del graph.input[:], graph.value_info[:]
        for n, (info, array) in enumerate(zip(infos, arrays, strict=True)):
            if n in drawn.absent:
                node.input[:] = ["" if i == info.name else i for i in node.input]
            elif n in drawn.constant:
                graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), info.name))
            else:
                dims = [d if drawn.known else f"d{n}_{axis}" for axis, d in enumerate(array.shape)]
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                graph.input.append(helper.make_tensor_value_info(info.name, kind, dims))
        kinds = onnx.defs.get_schema(node.op_type, domain=node.domain).attributes
        kept = [a for a in node.attribute if a.name not in drawn.attributes]
        given = [(k, v, int(kinds[k].type.value)) for k, v in drawn.attributes.items() if v is not None]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(k, v, attr_type=kind) for k, v, kind in given)])
        for opset in model.opset_import:
            opset.version = drawn.opset if drawn.opset and opset.domain == node.domain else opset.version
        for info in graph.output:
            info.ClearField("type")
        return model

    def check(self, drawn: Drawn) -> Outcome:
        if sum(int(np.prod(leaf.shape)) for leaf in drawn.leaves) > MOST_ELEMENTS:
            return Outcome("skipped")
        _, _, self.rtol, self.atol = self.cases[drawn.case]
        arrays = drawn.arrays()
        model = self.model(drawn, arrays)
        self.node = model.graph.node[0]
        names = [i.name for i in onnx.load_from_string(self.cases[drawn.case][0]).graph.input]
        self.given = dict(zip(names, arrays, strict=True))
        feeds = {info.name: self.given[info.name] for info in model.graph.input}
        if self.takes_too_long(self.given):
            return Outcome("skipped", "it takes too long")
        found, refusal = None, ""
        try:
            found = list(arrays_of(self.opened(model).run(feeds)))
        except Exception as e:
            refusal = f"{type(e).__name__}: {e}"
            if is_defect(e) or not isinstance(e, (WeftError, MemoryError)):
                return Outcome("foreign error", refusal)
            if isinstance(e, ModelImportError) and "ONNX node 0" not in refusal and "element type" not in refusal:
                return Outcome("foreign error", f"the node is not named: {refusal}")
        asked = [v for v in drawn.attributes.values() if isinstance(v, int)]
        asked += [v for a in arrays if a.dtype.kind in "iu" and a.size < 9 for v in a.ravel().tolist()]
        if any(abs(v) > MOST_ASKED for v in asked):  # no list of attributes has greater ones
            return Outcome("skipped")
        note("oracle")
        with warnings.catch_warnings(action="ignore"):
            oracles = oracles_of(model, feeds.values())
        self.oracles = [o for o in oracles if not drawn.opset or o[0] in self.judges]  # the reference has one opset
        return self.judged(feeds, found, refusal) if self.oracles else Outcome("skipped")

    def excused(self, feeds: dict[str, Any], worst: Outcome) -> Outcome:
        return super().excused(self.given, worst)


class OnnxNodes(OnnxCalls):
    """The suite of all operators that have node cases."""

    check_seconds = 20.0

    @cached_property
    def operators(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, case in self.cases.items():
            graph = onnx.load_from_string(case[0]).graph
            plain = len(graph.node) == 1 and all(i.type.HasField("tensor_type") for i in graph.input)
            if plain and all(a.dtype.name in (*TYPES, "bool") for a in case[1]):
                found[graph.node[0].op_type][name] = case
        return found

    def subjects(self) -> list[str]:
        return sorted(self.operators)

    def open(self, subject: str) -> OnnxNode:
        return OnnxNode(subject, self.operators[subject])
