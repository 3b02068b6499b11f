"""A model as a list of steps, each a NumPy operator, that is run as it was read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from weft.baseline import control, microsoft, recurrent, reductions, resample, selecting  # noqa: F401 - operators
from weft.baseline.onnx_file import ELEMENT_TYPES, read_onnx, tensor_values
from weft.baseline.opsets import NEUTRAL, OPSETS, modern_node, operator_of
from weft.baseline.refusal import NotInBaseline
from weft.baseline.threads import few_threads

_MIXED = ("Cast", "Resize")
"""Operators whose operands or results may be of several types of floats."""
_EMPTY = ("Cast", "Concat", "ConstantOfShape", "Identity", "Shape", "Slice", "Transpose")
"""Operators that do with no elements what they do with some, as a decoder's empty cache needs."""
_REFUSALS = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What a file that is no sound model ends in, when it is read or run."""
_signature = cache(inspect.signature)
_ATTRIBUTE_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints"}


class BaselineInput(NamedTuple):
    """An input: a number or a name for each dimension."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class _Step(NamedTuple):
    compute: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    bodies: dict[str, _Graph]
    last: tuple[str, ...]
    """Values that nobody reads behind it."""
    takes_empty: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that it needs, its bodies included."""
        return (*self.inputs, *(n for body in self.bodies.values() for n in body.reads))


class BaselineProgram:
    """The program of an ONNX file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    NotInBaseline
        When anything in it is not known here.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._read(path)
        except _REFUSALS as e:
            raise NotInBaseline(f"a file that is no sound model: {type(e).__name__}: {e}") from e

    def _read(self, path: Path) -> None:
        model, data = read_onnx(path)
        graph = model.get("graph", {"node": (), "input": (), "output": (), "initializer": ()})
        opsets = {o.get("domain", ""): o.get("version", 0) for o in model["opset_import"]}
        if opsets.get("") not in OPSETS:
            raise NotInBaseline(f"opset {opsets.get('')}")

        def read(tensor: dict[str, Any]) -> np.ndarray:
            try:
                return tensor_values(tensor, data, path.parent)
            except (OSError, ValueError, OverflowError) as e:
                raise NotInBaseline(f"a tensor that cannot be read: {e}") from e

        self._graph = _Graph(graph, opsets[""], read, frozenset())
        self.inputs = [_input(i) for i in graph["input"] if i.get("name") not in self._graph.weights]
        self.output_names = self._graph.output_names

    def try_run(self, values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """Return the outputs; None where the compiled program had better give them, or say what is wrong."""
        try:
            with few_threads():
                return self.run(values)
        except (NotInBaseline, *_REFUSALS):
            return None

    def run(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for values of the inputs, in their order.

        Raises
        ------
        Exception
            Any, when an operator does not take what it gets.
        """
        with np.errstate(all="ignore"):
            return self._graph.run(values)


_Read = Callable[[dict[str, Any]], np.ndarray]


class _Graph:
    """The steps of a graph, and what it reads of those around it."""

    def __init__(self, graph: Mapping[str, Any], opset: int, read: _Read, around: Set[str]) -> None:
        self.weights = {t.get("name", ""): read(t) for t in graph["initializer"]}
        self.inputs = [i.get("name", "") for i in graph["input"] if i.get("name") not in self.weights]
        self.output_names = [o.get("name", "") for o in graph["output"]]
        self._opset, self._read, self._around = opset, read, around
        known = {*around, *self.weights, *self.inputs}
        self._steps = [self._step(n, known) for n in graph["node"]]
        if not self.output_names or not known.issuperset(self.output_names):
            raise NotInBaseline("outputs that nobody makes")
        self.reads = sorted({*self.output_names, *(n for step in self._steps for n in step.reads)} & around)
        self._forget_early()

    def _step(self, node: Mapping[str, Any], known: set[str]) -> _Step:
        """Look an operator up, and bind its inputs and attributes to the parameters of its function."""
        name, inputs, outputs = node.get("op_type", ""), tuple(node["input"]), tuple(node["output"])
        if not known.issuperset(n for n in inputs if n):
            raise NotInBaseline("nodes out of order")
        attributes = {a["name"]: self._attribute(a, known) for a in node["attribute"]}
        attributes = {a: v for a, v in attributes.items() if a not in NEUTRAL or v != NEUTRAL[a]}
        if node.get("domain") == "com.microsoft":
            name = f"{node['domain']}.{name}"
        else:
            name, inputs, attributes = modern_node(name, inputs, attributes, self._opset, self._constant)
        compute = operator_of(name, self._opset)
        if compute is None:
            raise NotInBaseline(f"the operator {name}")
        self._check(name, _signature(compute), inputs, attributes)
        if not outputs or known.intersection(n for n in outputs if n):
            raise NotInBaseline("a value that is made twice")
        known.update(outputs)
        if name == "Split" and "num_outputs" not in attributes and not any(inputs[1:]):
            attributes["num_outputs"] = len(outputs)
        bodies = {a: attributes.pop(a) for a in [*attributes] if isinstance(attributes[a], _Graph)}
        compute = compute if name in _MIXED or bodies else partial(_in_float32, compute)
        return _Step(compute, inputs, outputs, attributes, bodies, (), name in _EMPTY or bool(bodies))

    @staticmethod
    def _check(name: str, signature: inspect.Signature, inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        """Refuse a node that its function does not take: what has no default must be there."""
        parameters = signature.parameters
        if any(a in parameters and parameters[a].kind is not inspect.Parameter.KEYWORD_ONLY for a in attributes):
            raise NotInBaseline(f"{name}: an attribute for what is an input")
        try:
            given = signature.bind(*inputs, **attributes).arguments
        except TypeError as e:
            raise NotInBaseline(f"{name}: {e}") from e
        needed = {p for p, parameter in parameters.items() if parameter.default is inspect.Parameter.empty}
        if any(isinstance(given[p], str) and not given[p] for p in needed & given.keys()):
            raise NotInBaseline(f"{name}: an input is left out")

    def _constant(self, value: np.ndarray) -> str:
        """Keep a value that is no tensor of the file, and return its name, which none in a file can have."""
        name = f"\0{len(self.weights)}"
        self.weights[name] = value
        return name

    def _forget_early(self) -> None:
        """Let each value be forgotten behind the last step that reads it."""
        used = {*self.output_names, *self.weights}
        for at in range(len(self._steps) - 1, -1, -1):
            step = self._steps[at]
            last = tuple({n for n in (*step.reads, *step.outputs) if n and n not in used})
            used.update(last)
            self._steps[at] = step._replace(last=last)

    def run(
        self, values: Sequence[np.ndarray], around: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> list[np.ndarray]:
        """Return the outputs for values of the inputs, in their order, and of names in the graphs around."""
        known = {**around, **self.weights, **dict(zip(self.inputs, values, strict=True))}
        full = not self._around and all(v.size for v in values)
        for step in self._steps:
            given = [known[n] if n else None for n in step.inputs]
            if not (full or step.takes_empty or all(v is None or v.size for v in given)):
                raise NotInBaseline("an operator on nothing, which may be an error or have a value of its own")
            bodies = {name: partial(body.run, around=known) for name, body in step.bodies.items()}
            made = step.compute(*given, **step.attributes, **bodies)
            results = made if isinstance(made, tuple) else (made,)
            if len(results) < len(step.outputs) or any(n and r is None for r, n in zip(results, step.outputs)):  # noqa: B905
                raise NotInBaseline("outputs that are not computed")
            known.update(zip(step.outputs, map(np.asarray, results), strict=False))
            for name in step.last:
                known.pop(name, None)
        return [known[n] for n in self.output_names]

    def _attribute(self, attribute: Mapping[str, Any], known: set[str]) -> Any:
        field = _ATTRIBUTE_FIELDS.get(attribute.get("type", 0))
        if field is None:
            raise NotInBaseline(f"an attribute of type {attribute.get('type')}")
        value = attribute.get(field, 0)
        if field == "g":
            return _Graph(value, self._opset, self._read, frozenset(known))
        return self._read(value) if field == "t" else value


def _input(value: Mapping[str, Any]) -> BaselineInput:
    tensor = value.get("type", {}).get("tensor", {})
    dtype = ELEMENT_TYPES.get(tensor.get("elem_type", 0))
    dims: list[int | str] = [d.get("dim_value", d.get("dim_param", "")) for d in tensor.get("shape", {}).get("dim", ())]
    if dtype is None or "shape" not in tensor or any(d == "" if isinstance(d, str) else d < 0 for d in dims):
        raise NotInBaseline("an input whose type is not told")
    return BaselineInput(value["name"], dtype.name, tuple(dims))


def _in_float32(compute: Callable[..., Any], *values: Any, **attributes: Any) -> Any:
    """Compute in float32 what half-precision inputs ask for, and round the results to their type."""
    half = [v is not None and v.dtype == np.float16 for v in values]
    if not any(half):
        return compute(*values, **attributes)
    if any(v is not None and v.dtype == np.float32 for v in values):
        raise NotInBaseline("operands of several types")
    made = compute(*(v.astype(np.float32) if h else v for v, h in zip(values, half, strict=True)), **attributes)
    results = [np.asarray(r) for r in (made if isinstance(made, tuple) else (made,))]
    return tuple(r.astype(np.float16) if r.dtype == np.float32 else r for r in results)
