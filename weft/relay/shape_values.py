"""What the elements of small integer tensors are, in terms of dimensions: ``shape_of(x)[0] * 2`` is ``n * 2``.

Shapes that programs compute this way need no tensors and no run-time check: an operator that takes such a tensor for a
shape gets the expressions themselves. Movement of elements is what the operators' references do to arrays of
expressions.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft import error, ir, op

_MOST = 64  # elements of a tensor that is followed
_MOVES = frozenset(
    (
        "broadcast_to concat expand_dims flatten flip permute_dims reshape split squeeze stack strided_slice take tile"
    ).split()
)
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": ir.floordiv,
    "floor_mod": ir.floormod,
    "mod": ir.floormod,
    "maximum": lambda a, b: ir.select(a > b, a, b),  # Max is what broadcasting makes, which run time checks
    "minimum": ir.min_,
    "negative": lambda a: ir.const(0, "int64") - a,
}


class ShapeValues:
    """The elements that are known, by the tensor's expression."""

    def __init__(self) -> None:
        self._known: dict[ir.Expr, np.ndarray] = {}

    def define(self, tensor: ir.Expr, elements: Any) -> None:
        """Say what the elements of a tensor are."""
        array = np.empty(len(elements), object)
        array[:] = list(elements)
        shape = tuple(ir.as_int(d) for d in tensor.ty.shape)
        self._known[tensor] = array.reshape(shape)  # type: ignore[arg-type]

    def of(self, tensor: ir.Expr) -> tuple[ir.PrimExpr, ...] | None:
        """Return the elements of a tensor, or None where they are not known."""
        array = self._array(tensor)
        return None if array is None else tuple(array.reshape(-1))

    def infer(self, expr: ir.Expr, bound: ir.Expr) -> None:
        """Follow an expression of shared operators, which is bound to an atom or tuple of atoms."""
        types = [f for f in (bound.fields if isinstance(bound, ir.Tuple) else (bound,))]
        if not all(map(_is_small, types)) or any(t in self._known for t in types):
            return
        try:
            found = self._evaluate(expr)
        except (error.WeftError, TypeError, ValueError, IndexError, AttributeError):
            return  # an operator that does not take expressions for numbers
        arrays = list(found) if isinstance(found, (tuple, list)) else [found]
        for t, array in zip(types, arrays, strict=len(types) == len(arrays)):
            if array is not None and all(isinstance(e, ir.PrimExpr) for e in array.reshape(-1)):
                self._known[t] = array

    def _array(self, tensor: ir.Expr) -> np.ndarray | None:
        if isinstance(tensor, ir.Constant):
            if not _is_small(tensor):
                return None
            numbers = tensor.data.numpy()
            array = np.empty(numbers.shape, object)
            array.reshape(-1)[:] = [ir.const(int(v), "int64") for v in numbers.reshape(-1)]
            return array
        return self._known.get(tensor)

    def _evaluate(self, expr: ir.Expr) -> Any:
        if isinstance(expr, ir.Tuple):
            fields = [self._evaluate(f) for f in expr.fields]
            return None if any(f is None for f in fields) else tuple(fields)
        if isinstance(expr, ir.TupleGetItem):
            value = self._evaluate(expr.tuple_value)
            return None if value is None else value[expr.index]
        if isinstance(expr, ir.ShapeExpr):
            return tuple(ir.as_int(d) for d in expr.values)
        if not isinstance(expr, ir.Call) or not isinstance(expr.op, ir.Op):
            return self._array(expr)
        args = [self._evaluate(a) for a in expr.args]
        if any(a is None for a in args):
            return None
        name = expr.op.name.removeprefix("relax.")
        if name in _ARITHMETIC:
            return _object(np.frompyfunc(_ARITHMETIC[name], len(args), 1)(*args))
        if name == "astype":
            return args[0] if str(expr.attrs["dtype"]) in ("int32", "int64") else None
        if name == "prod" and args[0].ndim == 1:
            total: Any = prod(args[0].reshape(-1), start=ir.const(1, "int64"))  # type: ignore[type-var]
            return _object(total).reshape((1,) if expr.attrs["keepdims"] else ())
        if name in _MOVES:
            if name == "take":
                args[1] = np.vectorize(ir.as_int, otypes=[np.int64])(args[1])
            reference = op.get_op_def(expr.op).reference
            assert reference is not None
            found = reference(*args, **dict(expr.attrs.items))
            return [_object(f) for f in found] if isinstance(found, (tuple, list)) else _object(found)
        return None


def _object(value: Any) -> np.ndarray:
    """An array of one element where NumPy gave the element itself."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), object)
    array[()] = value
    return array


def _is_small(tensor: ir.Expr) -> bool:
    ty = getattr(tensor, "ty", None)
    if not isinstance(ty, ir.TensorType) or ty.dtype not in ("int32", "int64") or ty.shape is None:
        return False
    dims = [ir.as_int(d) for d in ty.shape]
    return None not in dims and prod(dims) <= _MOST  # type: ignore[arg-type]
