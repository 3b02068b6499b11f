"""One ONNX node as its converter sees it: inputs, typed attributes, the opset, and the graph to build into."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from weft import arith, ir
from weft.error import ModelImportError, UnsupportedOperator
from weft.frontend.building import Emitter
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.graph import Graph
from weft.frontend.onnx.schema import attribute_value
from weft.frontend.onnx.value import Dim, Dims, Value, as_dim
from weft.ir import const
from weft.relax import call_pure_packed
from weft.runtime.host import HOST_FUNCTION, Kind


class Node(Emitter):
    """A node under conversion.

    Parameters
    ----------
    graph : Graph
        Where to build.
    proto : onnx.NodeProto
        The node.
    inputs : sequence of Value or None
        The values of its inputs; None for an optional one left out.
    opset : int
        The opset version of its domain.
    where : str
        Its name for messages: ``ONNX node 17 "/encoder/MatMul" (MatMul)``.
    """

    __slots__ = ("attrs", "graph", "inputs", "op_type", "opset", "proto", "where")

    def __init__(self, graph: Graph, proto: Any, inputs: Sequence[Value | None], opset: int, where: str) -> None:
        self.graph, self.proto, self.inputs, self.opset, self.where = graph, proto, tuple(inputs), opset, where
        self.op_type: str = proto.op_type
        self.attrs = {a.name: a for a in proto.attribute}

    # --- errors -------------------------------------------------------------------------------------------------------

    def error(self, what: str, **details: Any) -> NoReturn:
        """Raise an error at this node, which begins with its operator."""
        raise ModelImportError(f"{self.op_type}: {what}", where=self.where, **details)

    def unsupported(self, what: str, **details: Any) -> NoReturn:
        """Raise an error about something valid that Weft does not have, which begins with the node's operator."""
        raise UnsupportedOperator(f"{self.op_type}: {what}", where=self.where, **details)

    # --- attributes ---------------------------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value: number, text, list or proto."""
        attribute = self.attrs.get(name)
        return default if attribute is None else attribute_value(attribute)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def has(self, i: int) -> bool:
        """Whether input `i` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """Return the value of input `i`."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            self.error(f"input {i} is missing", expected=f"at least {i + 1} inputs", found=str(len(self.inputs)))
        return value

    def x(self, i: int = 0) -> Any:
        """Return the expression of input `i`."""
        return self.graph.expr(self.value(i))

    def xs(self) -> list[Any]:
        """Return the expressions of all inputs."""
        return [self.x(i) for i in range(len(self.inputs))]

    def shape(self, i: int = 0) -> tuple[Dim, ...]:
        """Return the dimensions of input `i`."""
        return self.value(i).shape

    def ndim(self, i: int = 0) -> int:
        """Return the rank of input `i`."""
        return len(self.value(i).shape)

    def dtype(self, i: int = 0) -> str:
        """Return the element type of input `i`."""
        return self.value(i).dtype

    def logical(self, i: int = 0) -> str:
        """Return the element type of input `i` as ONNX has it, which :meth:`dtype` is stored for."""
        return self.value(i).logical

    def is_float(self, i: int = 0) -> bool:
        """Whether input `i` is floating-point."""
        return ir.DataType(self.dtype(i)).is_float

    def const(self, i: int) -> np.ndarray[Any, Any] | None:
        """Return the data of input `i` where it is given and constant."""
        return self.value(i).constant if self.has(i) else None

    def ints(self, i: int, *, sizes: bool = False) -> list[Dim]:
        """Return the elements of integer input `i`, as run-time variables where they are known only then.

        `sizes` are not negative: checked at run time where they are computed from dimensions.
        """
        values = self.graph.ints(self.value(i), sizes=sizes)
        for v in values if sizes else ():
            if s.is_known(v) and v < 0:
                self.error(f"a size in input {i} is negative", expected="at least 0", found=str(v))
            self.require_between(f"a size in input {i}", v, 0, None)
        return values

    def one(self, i: int, *, sizes: bool = False) -> Dim:
        """Return the only element of integer input `i`."""
        values = self.ints(i, sizes=sizes)
        if len(values) != 1:
            self.error(f"input {i} is not one number", found=f"{len(values)} elements")
        return values[0]

    def axes(self, i: int = 1, name: str = "axes") -> list[Dim] | None:
        """Return axes given by attribute or, in later opsets, by input `i`; None where neither is given.

        They are scalar expressions where they are known only at run time; ``is_static`` tells.
        """
        return self.ints(i) if self.has(i) else self.attr(name)

    @staticmethod
    def is_static(values: Sequence[Dim]) -> bool:
        """Whether all values are known."""
        return s.is_known(*values)

    def axis(self, axis: Any, ndim: int | None = None) -> Any:
        """Bring an axis into 0..ndim-1; one that is data is checked at run time."""
        ndim = self.ndim() if ndim is None else ndim
        if not s.is_known(axis):
            self.require_between("an axis", axis, -ndim, ndim - 1)
            return s.choose(s.compare("Less", axis, 0), s.add(axis, ndim), axis)
        if not -ndim <= axis < max(ndim, 1):
            self.error("an axis is out of range", expected=f"{-ndim}..{ndim - 1}", found=str(axis))
        return axis % ndim if ndim else 0

    def distinct_axes(self, axes: Sequence[Any], ndim: int | None = None) -> list[Any]:
        """Bring axes into 0..ndim-1, none of them twice; those that are data are checked at run time."""
        found = self.graph.named([self.axis(a, ndim) for a in axes], sizes=False)
        known, data = [a for a in found if s.is_known(a)], [a for a in found if not s.is_known(a)]
        repeated: Any = len(set(known)) < len(known)
        for i, a in enumerate(data):
            for b in (*known, *data[:i]):
                repeated = s.logic("Or", repeated, s.compare("Equal", a, b))
        self.require_equal("an axis is repeated", s.choose(repeated, 1, 0), 0, "InvalidArgument")
        return found

    # --- the host ---------------------------------------------------------------------------------------------------

    def host(self, op: str, operands: Sequence[Value | Any], outs: Sequence[Kind], **attrs: Any) -> list[Value]:
        """Call an operator of the host; what it returns has the kinds `outs`, tensors with a rank.

        Two calls are never made one, so that each draws random numbers of its own.
        """
        graph = self.graph
        values = [v if isinstance(v, Value) else Value.of_expr(v) for v in operands]
        graph.host_calls += 1
        made = [k.dtype if k.form == "tensor" else "" for k in outs]
        about = {"op": op, "attrs": attrs, "in": [v.logical for v in values], "out": made, "call": graph.host_calls}
        types = [ir.AnyType() if k.form != "tensor" else ir.TensorType(None, k.storage, k.rank or 0) for k in outs]
        for k in outs:
            if k.form == "tensor" and k.rank is None:
                self.unsupported("the rank of its result is not known before the model runs")
        ty = types[0] if len(types) == 1 else ir.TupleType(tuple(types))
        result = graph.emit(call_pure_packed(HOST_FUNCTION, json.dumps(about), *map(graph.expr, values), ty_args=ty))
        fields = [result] if len(types) == 1 else graph.fields(result)
        return [Value.of_expr(f, None if k.is_plain else k) for f, k in zip(fields, outs, strict=True)]

    # --- building -----------------------------------------------------------------------------------------------------

    def emit(self, expr: ir.Expr) -> Any:
        """Bind an expression."""
        return self.graph.emit(expr)

    def number(self, d: Dim, dtype: str) -> Any:
        """Return a dimension as a tensor without dimensions."""
        if s.is_known(d):
            return self.scalar(d, dtype)
        return self.astype(self.reshape(self.graph.expr(Value.of_elements([d], "int64")), ()), dtype)

    def astype(self, x: Any, dtype: str) -> Any:
        """Convert, unless `x` has the type."""
        return x if x.ty.dtype == dtype else self.op("astype", x, dtype=str(dtype))

    def reshape(self, x: Any, shape: Sequence[Dim]) -> Any:
        """Reshape, unless `x` has the shape."""
        if len(shape) == len(x.ty.shape) and all(
            s.provably_equal(s.simplify(a), b) for a, b in zip(x.ty.shape, shape, strict=True)
        ):
            return x
        if isinstance(x, ir.Constant) and s.is_known(*shape):
            return ir.constant(np.asarray(x.data.numpy()).reshape([int(d) for d in shape]))
        return self.op("reshape", x, ir.shape_expr([s.to_expr(d) for d in shape]))

    def slice(
        self, x: ir.Expr | None, axes: Sequence[int], begin: Dims, end: Dims, strides: Sequence[int] | None = None
    ) -> Any:
        """Take a part; bounds must lie inside of the tensor and strides be positive."""
        steps = list(strides) if strides is not None else [1] * len(axes)
        bounds = {"axes": tuple(axes), "begin": tuple(begin), "end": tuple(end), "strides": tuple(steps)}
        return self.op("strided_slice", x, **bounds, assume_inbound=True)

    def full(self, shape: Sequence[Dim], value: Any, dtype: str) -> Any:
        """Make a tensor of one value."""
        return self.op("full", ir.shape_expr([s.to_expr(d) for d in shape]), self.scalar(value, dtype), dtype=dtype)

    def dims(self, x: Any) -> list[Dim]:
        """Return the dimensions of an expression, numbers as ints."""
        return [as_dim(d) for d in x.ty.shape]

    def with_dims(self, x: Any, dims: Sequence[Dim]) -> Any:
        """Give `x` dimensions that it must have: checked at run time where that cannot be proved.

        Raises
        ------
        ModelImportError
            When a dimension is known to be another one.
        """
        own = self.dims(x)
        if all(s.provably_equal(a, b) for a, b in zip(own, dims, strict=True)):
            return x
        for a, b in zip(own, dims, strict=True):
            if s.is_known(a, b) and a != b:
                self.error(
                    "dimensions that must agree do not",
                    expected=str(b),
                    found=f"{a} in shape ({', '.join(map(str, own))})",
                )
        return self.graph.bb.match_cast(x, ir.tensor_type([s.to_expr(d) for d in dims], x.ty.dtype))

    def broadcasting(self, *operands: Any) -> tuple[Any, ...]:
        """Prepare for broadcasting: ``min(n, 512)`` beside ``n`` has to be ``n``, which is checked at run time."""
        dims = [self.dims(x) for x in operands]
        if all(s.is_known(*d) for d in dims):
            return operands
        return tuple(self._clipped_dims(x, own, dims) for x, own in zip(operands, dims, strict=True))

    def require_equal(self, what: str, found: Dim, expected: Dim, kind: str = "ShapeMismatch") -> None:
        """Require that two integers are equal: checked at run time where that cannot be proved.

        Parameters
        ----------
        what : str
            What is compared, for the message.
        kind : str
            The class of the error at run time.

        Raises
        ------
        ModelImportError
            When they are known to differ.
        """
        if s.is_known(found, expected):
            if found != expected:
                self.error(f"{what}", expected=str(expected), found=str(found))
        elif not s.provably_equal(found, expected):
            self.graph.check_equal(f"{self.op_type}: {what}", s.to_expr(found), s.to_expr(expected), self.where, kind)

    def require_between(self, what: str, found: Dim, low: Dim | None, high: Dim | None) -> None:
        """Require ``low <= found <= high`` of values that the model computes; None is no limit."""
        nearest = found if high is None else s.minimum(found, high)
        nearest = nearest if low is None else s.maximum(nearest, low)
        self.require_equal(what, found, nearest, "InvalidArgument")

    def require_other(self, what: str, found: Dim, wrong: int) -> None:
        """Require that an integer is not a certain one."""
        expected = s.choose(s.compare("Equal", found, wrong), wrong + 1, found)
        self.require_equal(what, found, expected, "InvalidArgument")

    def require_broadcast_to(self, i: int, shape: Sequence[Dim]) -> None:
        """Require that input `i` can be repeated to a shape."""
        found = self.shape(i)
        if len(found) > len(shape):
            self.error(f"input {i} has too many dimensions", expected=str(len(shape)), found=str(len(found)))
        for axis, (f, e) in enumerate(zip(found, shape[len(shape) - len(found) :], strict=True)):
            repeated = s.choose(s.compare("Equal", f, 1), f, e)
            self.require_equal(f"dimension {axis} of input {i}, which is broadcast", f, repeated)

    def require_broadcast(self, dims: Sequence[Dim], others: Sequence[Dim]) -> None:
        """Require that shapes of one rank broadcast: dimensions are equal, or one of the two is 1."""
        for axis, (d, e) in enumerate(zip(dims, others, strict=True)):
            either = s.logic("Or", s.compare("Equal", d, 1), s.compare("Equal", e, 1))
            self.require_equal(f"shapes do not broadcast, dimension {axis}", d, s.choose(either, d, e))

    def require_rank(self, i: int, low: int, high: float = 0) -> None:
        """Require that input `i` has `low` dimensions, or up to `high`."""
        if not low <= self.ndim(i) <= (high or low):
            wanted = f"{low} dimensions" if not high else f"{low} or {high}" if high < math.inf else f"at least {low}"
            self.error(f"input {i} has a wrong rank", expected=wanted, found=str(self.ndim(i)))

    def require_shape(self, i: int, expected: Sequence[Dim]) -> None:
        """Require that input `i` has a shape."""
        self.require_rank(i, len(expected))
        for axis, (f, e) in enumerate(zip(self.shape(i), expected, strict=True)):
            self.require_equal(f"dimension {axis} of input {i}", f, e)

    def require_indices(self, what: str, indices: Any, low: Dim, high: Dim) -> None:
        """Require ``low <= index < high`` of all elements of a tensor of integers; `low` is not above 0."""
        self.graph.check_indices(f"{self.op_type}: {what}", indices, s.to_expr(low), s.to_expr(high), self.where)

    def _clipped_dims(self, x: Any, own: list[Dim], others: Sequence[list[Dim]]) -> Any:
        new = [_agreed(own[i], [o[i] for o in others if len(o) >= -i]) for i in range(-len(own), 0)]
        return x if all(a is b for a, b in zip(new, own, strict=True)) else self.with_dims(x, new)


def _agreed(own: Dim, others: Sequence[Dim]) -> Dim:
    """Return what a dimension has to be beside others.

    ``n`` for ``min(n, 512)``, the simplest of those that are equal for sizes that divide well.

    The latter are the levels of a feature pyramid, such as ``(h + 7) // 8`` and ``(h + 15) // 16 * 2``; they are taken
    to be equal, not 1. A slice of length ``min(1, n)`` is not ``n`` for such sizes, and broadcasts.
    """
    if not isinstance(own, ir.PrimExpr) or isinstance(own, ir.Var):
        return own
    if isinstance(own, ir.Min):
        sides = (as_dim(own.a), as_dim(own.b))
        limit = next((d for d in sides if isinstance(d, int)), 0)
        for other in others:
            if limit > 1 and any(s.same(other, side) for side in sides if not isinstance(side, int)):
                return other
    names = set(ir.find(own, ir.Var))
    alike = [
        d
        for d in others
        if isinstance(d, ir.PrimExpr)
        and not isinstance(d, ir.Var)
        and set(ir.find(d, ir.Var)) == names
        and _equal_when_large(own, d)
    ]
    simplest = min(alike, key=lambda d: sum(1 for _ in ir.walk(d)), default=own)
    return own if s.provably_equal(own, simplest) else simplest


def _equal_when_large(a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
    """Whether two dimensions are equal for large sizes that strides divide, another one for each variable."""
    names = dict.fromkeys(ir.find(a, ir.Var))
    sizes = {v: const(7680 * (i + 1), v.dtype) for i, v in enumerate(names)}
    return arith.Analyzer().can_prove_equal(ir.substitute(a, sizes), ir.substitute(b, sizes))
