"""Operators that make tensors: constants, ranges, one-hot, triangles."""

from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.graph import depends_on_data
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.ir import DataType, numpy_dtype, shape_expr

_FAR = 1 << 61
MAX_FOLDED = 1 << 22
"""Constant fills of up to this many elements become constants, so that the compiler can fold and prepack them."""


@converter("Shape")
def _shape(node: Node) -> Any:
    return Value.of_elements(list(node.shape())[slice(node.attr("start", 0), node.attr("end"))], "int64")


@converter("Size")
def _size(node: Node) -> Any:
    return Value.of_elements(s.product(node.shape()), "int64")


@converter("Constant")
def _constant(node: Node) -> Any:
    given = [a for a in node.attrs if a.startswith("value") or a == "sparse_value"]
    if len(given) != 1 or len(node.attrs) != 1:
        node.error(
            "it needs exactly one value that is a tensor or numbers", found=", ".join(node.attrs) or "no attribute"
        )
    name, value = given[0], node.attr(given[0])
    what = f"Constant: attribute '{name}'"
    if name == "value":
        return node.graph.read(value, what)
    if name in ("value_string", "value_strings"):
        return node.graph.texts_value(value)
    if name == "sparse_value":
        return Value.of_array(node.graph.reader.read_sparse(value, what))
    return Value.of_array(np.array(value, np.float32 if "float" in name else np.int64))


@converter("ConstantOfShape")
def _constant_of_shape(node: Node) -> Any:
    tensor = node.attr("value")
    read = node.graph.read(tensor, "ConstantOfShape: attribute 'value'") if tensor is not None else None
    value = np.zeros(1, np.float32) if read is None else read.array
    logical = "" if read is None else read.logical
    if value.size != 1:
        node.error("attribute 'value' must have one element", found=str(value.size))
    dims, item = node.ints(0, sizes=True), value.reshape(-1)[0]
    if all(isinstance(d, int) for d in dims) and s.product(dims) <= MAX_FOLDED:
        return Value.of_array(np.full([int(d) for d in dims], item, value.dtype)).as_kind(logical)
    return Value.of_expr(node.full(dims, item, value.dtype.name)).as_kind(logical)


@converter("Range")
def _range(node: Node) -> Any:
    dtype = node.dtype()
    bounds = [node.const(i) for i in range(3)]
    if all(b is not None for b in bounds):
        start, limit, delta = (b.reshape(-1)[0] for b in bounds)  # type: ignore[union-attr]
        if delta == 0:
            node.error("its step is 0")
        count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
        if count <= MAX_FOLDED:
            wide = _range_dtype(node, dtype)
            start, delta = (np.asarray(v).astype(wide) for v in (start, delta))
            return Value.of_array((start + np.arange(count).astype(wide) * delta).astype(numpy_dtype(dtype)))
    if DataType(dtype).is_integer:
        start, limit, delta = (node.ints(i)[0] for i in range(3))
        node.require_other("its step is 0", delta, 0)
        for e in (start, limit, delta):
            if not s.is_known(e) and depends_on_data(e):  # so that nothing below overflows
                node.require_between("a bound or step", e, -_FAR, _FAR)
        return _ramp(node, start, _count(start, limit, delta), delta, dtype)
    return _float_range(node, dtype)


def _range_dtype(node: Node, dtype: str) -> str:
    """What a range is computed in, where it is of half precision."""
    whole = DataType(dtype).is_integer or DataType(dtype).bits > 16
    return dtype if whole else "float64" if node.attr("stash_type", 1) == 11 else "float32"


def _count(start: Any, limit: Any, delta: Any) -> Any:
    if isinstance(delta, int):
        span = s.subtract(limit, start) if delta > 0 else s.subtract(start, limit)
        count = s.ceildiv(span, abs(delta))
        return count if not s.is_known(count) and s.non_negative(count) else s.maximum(count, 0)
    up = s.compare("Greater", delta, 0)
    span = s.choose(up, s.subtract(limit, start), s.subtract(start, limit))
    step = s.maximum(s.choose(up, delta, s.negate(delta)), 1)
    return s.divide(s.maximum(s.subtract(s.add(span, step), 1), 0), step)


def _ramp(node: Node, start: Any, count: Any, delta: Any, dtype: str) -> Any:
    """Compute ``start + delta * (0, 1, ... count - 1)``."""
    out = node.arange(count)
    if not (isinstance(delta, int) and delta == 1):
        out = node.op("multiply", out, node.number(delta, "int64"))
    if not (isinstance(start, int) and start == 0):
        out = node.op("add", out, node.number(start, "int64"))
    return node.astype(out, dtype)


def _float_range(node: Node, dtype: str) -> Any:
    """A range of floats: its length is computed as a tensor, then named."""
    wide = _range_dtype(node, dtype)
    start, limit, delta = (node.astype(node.reshape(node.x(i), ()), wide) for i in range(3))
    span = node.op("divide", *(node.astype(x, "float64") for x in (node.op("subtract", limit, start), delta)))
    length = node.op("astype", node.op("maximum", node.op("ceil", span), node.scalar(0, "float64")), dtype="int64")
    wrong = node.op("logical_or", node.op("isnan", span), node.op("equal", delta, node.scalar(0, wide)))
    length = node.op("where", wrong, node.scalar(-1, "int64"), length)  # which is refused as a size
    (count,) = node.graph.ints(Value.of_expr(node.op("reshape", length, shape_expr((1,)))), sizes=True)
    steps = node.astype(node.arange(count), wide)
    return node.astype(node.op("add", node.op("multiply", steps, delta), start), dtype)


@converter("OneHot")
def _one_hot(node: Node) -> Any:
    depth = node.graph.ints(_integral(node, 1), sizes=True)
    if len(depth) != 1:
        node.error("its depth is not one number", found=f"{len(depth)} elements")
    node.require_between("depth", depth[0], 1, None)
    node.require_shape(2, [2])
    rank = node.ndim() + 1
    axis = node.axis(node.attr("axis", -1), rank)
    values, dtype = node.x(2), node.dtype(2)
    indices = node.astype(node.x(0), "int64")
    extent = node.number(depth[0], "int64")
    zero = node.scalar(0, "int64")
    indices = node.op("where", node.op("less", indices, zero), node.op("add", indices, extent), indices)
    own = list(node.shape())
    indices = node.reshape(indices, [*own[:axis], 1, *own[axis:]])
    classes = node.reshape(node.arange(depth[0]), [depth[0] if i == axis else 1 for i in range(rank)])
    off, on = (node.reshape(node.slice(values, [0], [i], [i + 1]), ()) for i in (0, 1))
    constants = node.const(2)
    if constants is not None:
        off, on = (node.scalar(v, dtype) for v in constants.reshape(-1)[:2])
    return node.op("where", node.op("equal", indices, classes), on, off)


def _integral(node: Node, i: int) -> Value:
    """Return an input's value converted to integers."""
    value = node.value(i)
    if DataType(value.dtype).is_integer:
        return value
    data = value.constant
    return Value.of_array(data.astype(np.int64)) if data is not None else Value.of_expr(node.astype(node.x(i), "int64"))


@converter("Trilu")
def _trilu(node: Node) -> Any:
    upper = bool(node.attr("upper", 1))
    k = s.clamp(node.ints(1)[0], -_FAR, _FAR) if node.has(1) else 0
    if isinstance(k, int):
        return node.op("triu" if upper else "tril", node.x(), k=k)
    rows, columns = node.shape()[-2:]
    row = node.reshape(node.arange(rows), [rows, 1])
    column = node.reshape(node.arange(columns), [1, columns])
    bound = node.op("add", row, node.number(k, "int64"))
    kept = node.op("greater_equal" if upper else "less_equal", column, bound)
    return node.op("where", kept, node.x(), node.scalar(0, node.dtype()))


@converter("EyeLike")
def _eye_like(node: Node) -> Any:
    to = node.attr("dtype")
    dtype = dtype_name(to, "EyeLike: attribute 'dtype'") if to is not None else node.dtype()
    return node.op("eye_like", node.x(), k=s.clamp(node.attr("k", 0), -_FAR, _FAR), dtype=dtype)
