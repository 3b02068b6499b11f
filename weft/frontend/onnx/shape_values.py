"""Shape values: operators on small tensors whose elements are known, as numbers or expressions of dimensions.

``evaluate`` computes a node's outputs from the elements of its inputs where it can, and nothing is emitted: ``Shape`` →
``Gather`` → ``Concat`` → ``Reshape`` becomes a reshape to symbolic dimensions. Rules are by operator; each returns
elements (an object array) or None where the operator has to be computed at run time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import find_converter
from weft.frontend.onnx.value import MAX_ELEMENTS, Value, elements_of
from weft.ir import DataType
from weft.registry import Registry
from weft.runtime.host import STORED

Array = Any  # NumPy array of objects
_RULES: Registry[Callable[..., Any]] = Registry()


def evaluate(node: Node) -> list[Value] | None:
    """Return the outputs of a node whose inputs have known elements, or None where it must be converted.

    Parameters
    ----------
    node : Node
        The node.
    """
    if node.proto.domain not in ("", "ai.onnx"):
        return None
    rule = _RULES.get(node.op_type)
    if rule is None or not node.inputs:
        return None
    arrays = []
    for value in node.inputs:
        elements = value.known if value is not None else None
        if elements is None and value is not None:
            return None
        arrays.append(elements)
    result = rule(node, *arrays)
    if result is None:
        return None
    dtype = node.dtype()
    if isinstance(result, tuple):
        result, dtype = result
    results = [_array(r) for r in (result if isinstance(result, list) else [result])]
    if any(r.size > MAX_ELEMENTS or any(e is None for e in r.flat) for r in results):
        return None
    return [Value.of_elements(_rounded(r, dtype), dtype) for r in results]


def _array(result: Any) -> Array:
    """Return NumPy's scalars, which it makes of 0-dimensional results, as arrays again."""
    if isinstance(result, np.ndarray):
        return result
    out = np.empty((), object)
    out[()] = result
    return out


def _rounded(array: Array, dtype: str) -> Array:
    """Round known elements to the data type, which integers wrap in; truth values need none."""
    if dtype == "bool":
        return array
    return _map(lambda e: s.cast_element(e, dtype) if s.is_known(e) else e, array)


def _map(fn: Callable[..., Any], *arrays: Array) -> Array:
    """Apply a function element by element, broadcasting."""
    operands = np.broadcast_arrays(*arrays)
    out = np.empty(operands[0].shape, object)
    flat = out.reshape(-1)
    for i, items in enumerate(zip(*(o.reshape(-1) for o in operands), strict=True)):
        flat[i] = fn(*items)
    return out


def _numbers(array: Array | None) -> list[int] | None:
    """Return the elements as ints where all are known."""
    if array is None or not s.is_known(*array.flat):
        return None
    return [int(e) for e in array.flat]


# --- element-wise -----------------------------------------------------------------------------------------------------


def _of_known(compute: Callable[..., Any]) -> Callable[..., Any]:
    def rule(node: Any, *arrays: Array) -> Any:
        if any(a is None for a in arrays) or len({v.dtype for v in node.inputs}) > 1:
            return None
        return compute(node, *arrays)

    return rule


def _elementwise(fn: Callable[..., Any], dtype: str | None = None) -> Callable[..., Any]:
    return _of_known(lambda node, *arrays: (_map(fn, *arrays), dtype) if dtype else _map(fn, *arrays))


def _folded(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def joined(node: Node, *arrays: Array) -> Any:
        return functools.reduce(lambda a, b: _rounded(_map(fn, a, b), node.dtype()), arrays)

    return _of_known(joined)


_UNARY = {"Neg": s.negate, "Floor": s.floor, "Ceil": s.ceil, "Round": s.round_even, "Sqrt": s.square_root}
for _name, _fn in {"Sub": s.subtract, "Div": s.divide, **_UNARY}.items():
    _RULES[_name] = _elementwise(_fn)
for _name, _fn in (("Add", s.add), ("Sum", s.add), ("Mul", s.multiply), ("Min", s.minimum), ("Max", s.maximum)):
    _RULES[_name] = _folded(_fn)
_RULES["Abs"] = _elementwise(
    lambda e: abs(e) if s.is_known(e) else e if s.non_negative(e) else s.maximum(e, s.negate(e))
)
for _name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
    _RULES[_name] = _elementwise(lambda a, b, _op=_name: s.compare(_op, a, b), "bool")
for _name in ("And", "Or", "Xor"):
    _RULES[_name] = _elementwise(lambda a, b, _op=_name: s.logic(_op, a, b), "bool")
_RULES["Not"] = _elementwise(lambda a: s.logic("Not", a), "bool")
_RULES["Identity"] = lambda node, a: a


@_RULES.on("Mod")
def _mod(node: Any, a: Array, b: Array) -> Any:
    fmod = bool(node.attr("fmod", 0))
    return _map(lambda x, y: s.modulo(x, y, fmod), a, b) if fmod or DataType(node.dtype()).is_integer else None


@_RULES.on("Pow")
def _pow(node: Any, a: Array, b: Array) -> Any:
    if not s.is_known(*a.flat, *b.flat) or not DataType(node.dtype()).is_integer:
        return None
    return _map(lambda x, y: x**y if isinstance(y, int) and 0 <= y < 64 else None, a, b)


@_RULES.on("Where")
def _where(node: Any, condition: Array, a: Array, b: Array) -> Any:
    return _map(s.choose, condition, a, b), node.dtype(1)


@_RULES.on("Clip")
def _clip(node: Any, a: Array, low: Array | None = None, high: Array | None = None) -> Any:
    given = [e for part in (a, low, high) if part is not None for e in part.flat]
    if node.opset < 11 or not (DataType(node.dtype()).is_integer or s.is_known(*given)):
        return None
    out = a if low is None else _map(s.maximum, a, low)
    return out if high is None else _map(s.minimum, out, high)


@_RULES.on("Cast")
def _cast(node: Any, a: Array) -> Any:
    dtype = dtype_name(node.attr("to"), "Cast: attribute 'to'")
    if dtype.startswith("float8") or dtype in STORED or node.logical() in STORED:
        return None
    return _map(lambda e: s.cast_element(e, dtype), a), dtype


# --- arrangement ------------------------------------------------------------------------------------------------------


@_RULES.on("Concat")
def _concat(node: Any, *arrays: Array) -> Any:
    return None if any(a is None or a.ndim == 0 for a in arrays) else np.concatenate(arrays, axis=node.attr("axis", 0))


@_RULES.on("Gather")
def _gather(node: Any, data: Array, indices: Array) -> Any:
    picked = _numbers(indices)
    axis = node.axis(node.attr("axis", 0))
    if picked is None or any(not -data.shape[axis] <= i < data.shape[axis] for i in picked):
        return None
    return np.take(data, np.array(picked, np.int64).reshape(indices.shape), axis=axis)


@_RULES.on("Compress")
def _compress(node: Node, data: Array, kept: Array) -> Any:
    on, axis = _numbers(kept), node.attr("axis")
    return None if on is None else np.compress(np.array(on, bool), data, None if axis is None else node.axis(axis))


@_RULES.on("Split")
def _split(node: Any, data: Array, sizes: Array | None = None) -> Any:
    axis, count = node.axis(node.attr("axis", 0)), len(node.proto.output)
    lengths = node.attr("split") if node.opset < 13 else _numbers(sizes)
    if lengths is None:
        chunk = -(-data.shape[axis] // count)
        lengths = [min(chunk, data.shape[axis] - i * chunk) for i in range(count)]
    if sum(lengths) != data.shape[axis] or min(lengths) < 0:
        return None
    return np.split(data, np.cumsum(lengths)[:-1], axis=axis)


@_RULES.on("Range")
def _range(node: Any, start: Array, limit: Array, delta: Array) -> Any:
    if not DataType(node.dtype()).is_integer:
        return None
    bounds = _numbers(np.array([a.reshape(-1)[0] for a in (start, limit, delta)], object))
    if bounds is None or bounds[2] == 0 or -((bounds[0] - bounds[1]) // bounds[2]) > MAX_ELEMENTS:
        return None
    return elements_of(np.arange(*bounds))


_MOVED = {
    "Expand": (0,),
    "Flatten": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "OneHot": (2,),
    "Pad": (0, 2),
    "Reshape": (0,),
    "ReverseSequence": (0,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "Slice": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Trilu": (0,),
    "Unsqueeze": (0,),
}
"""Operators that only move elements, and the inputs whose elements they move."""


def _move(node: Node, *arrays: Array | None) -> Any:
    """Arrange elements as the operator arranges their places, counted from one: zero is what it fills in."""
    moved, elements = _MOVED[node.op_type], [0]
    inputs = list(node.inputs)
    for i, array in enumerate(arrays):
        if array is not None and i in moved:
            inputs[i] = Value.of_array(np.arange(array.size).reshape(array.shape) + len(elements))
            elements += array.reshape(-1).tolist()
        elif array is not None and not s.is_known(*array.flat):
            return None
    convert = find_converter("", node.op_type)
    if s.is_known(*elements) or node.attr("reduction", "none") not in ("none", b"none") or convert is None:
        return None  # numbers go through the operator itself
    made = convert(type(node)(node.graph, node.proto, inputs, node.opset, node.where))
    places = (made if isinstance(made, Value) else Value.of_expr(made)).known
    return None if places is None else (_map(lambda at: elements[at], places), node.dtype(moved[0]))


for _name in _MOVED:
    _RULES[_name] = _move


# --- reductions -------------------------------------------------------------------------------------------------------

_REDUCED = {"ReduceSum": s.add, "ReduceProd": s.multiply, "ReduceMin": s.minimum, "ReduceMax": s.maximum}
for _name, _fn in _REDUCED.items():

    def _reduce(node: Any, data: Array, axes: Array | None = None, *, fn: Any = _fn) -> Any:
        given = _numbers(axes) if axes is not None else node.attr("axes")
        if (axes is not None and given is None) or not DataType(node.dtype()).is_integer or not data.size:
            return None
        if not given and node.attr("noop_with_empty_axes", 0):
            return data
        over = tuple(sorted({node.axis(a) for a in given})) if given else tuple(range(data.ndim))
        kept = [i for i in range(data.ndim) if i not in over]
        rows = np.transpose(data, [*kept, *over]).reshape([*(data.shape[i] for i in kept), -1])
        out = np.empty(rows.shape[:-1], object)
        for index in np.ndindex(*out.shape):
            out[index] = functools.reduce(fn, rows[index])
        return np.expand_dims(out, over) if node.attr("keepdims", 1) else out

    _RULES[_name] = _reduce
