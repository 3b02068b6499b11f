"""Elements that data choose: as many as there happen to be, counted at run time."""

from typing import Any

import numpy as np

from weft import ir
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim, Value
from weft.ir import Tuple, TupleGetItem, constant
from weft.relax import Var
from weft.topi.elementwise import BINARY, UNARY

_MOVES = {"full": 1, **dict.fromkeys(("broadcast_to", "expand_dims", "permute_dims", "reshape", "squeeze"), 0)}
"""Operators whose elements are all elements of one operand, by its place."""
_ELEMENTWISE = {"astype", *UNARY, *BINARY}


@converter("NonZero")
def _nonzero(node: Node) -> Any:
    x = node.x(0)
    mask = x if node.dtype() == "bool" else node.op("not_equal", x, node.scalar(0, node.dtype()))
    if node.ndim() == 0:
        mask = node.reshape(mask, [1])
    dims = node.dims(mask)
    flat = flat_places(node, node.reshape(mask, [s.product(dims)]))
    rows, below = [], 1
    for d in reversed(dims):
        rest = _by(node, "floor_divide", flat, below)
        rows.append(rest if len(rows) == len(dims) - 1 else _by(node, "floor_mod", rest, d))
        below = s.multiply(below, d)
    return node.op("stack", Tuple(tuple(rows[::-1])), axis=0)


@converter("Compress")
def _compress(node: Node) -> Any:
    axis = node.attr("axis")
    x = node.reshape(node.x(0), [s.product(node.shape())]) if axis is None else node.x(0)
    over, mask = 0 if axis is None else node.axis(axis), node.x(1)
    size, given = node.dims(x)[over], node.dims(mask)[0]
    if not (s.is_known(size, given) and given <= size):  # what lies beyond the data chooses nothing
        mask = node.slice(mask, [0], [0], [s.minimum(size, given)])
    return node.op("take", x, flat_places(node, mask), axis=over, mode="clip")


def flat_places(node: Node, mask: ir.Expr) -> Any:
    """Return the positions of what is true in a vector of truth values, in order: ``(count,)`` int64.

    Exporters write ``arange(n)`` as the positions of `n` ones: what is known of the mask is known of their number.
    """
    if isinstance(mask, ir.Constant):
        return constant(np.flatnonzero(mask.data.numpy()))
    filling = _filling(node, mask)
    if filling is not None:
        return node.arange(node.dims(mask)[0]) if filling.data.numpy() else constant(np.zeros(0, np.int64))
    found = node.op("places", mask)
    places, count = (node.emit(TupleGetItem(found, i)) for i in (0, 1))
    return node.slice(places, [0], [0], [counted(node, count)])


def _filling(node: Node, x: ir.Expr, steps: int = 12) -> ir.Constant | None:
    """Return the number that all elements are known to be, without dimensions, through so many operators at most."""
    value = node.graph.bb.lookup_binding(x) if isinstance(x, Var) else x
    if isinstance(value, ir.Constant):
        numbers = value.data.numpy().reshape(-1)
        return constant(numbers[0]) if numbers.size and (numbers == numbers[0]).all() else None
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op) or not steps:
        return None
    name = value.op.name.removeprefix("relax.")
    if name in _MOVES:
        return _filling(node, value.args[_MOVES[name]], steps - 1)
    operands = [_filling(node, a, steps - 1) for a in value.args] if name in _ELEMENTWISE else [None]
    if any(o is None for o in operands):
        return None
    made = node.op(name, *operands, **dict(value.attrs.items))
    return made if isinstance(made, ir.Constant) else None


def counted(node: Node, count: ir.Expr) -> Dim:
    """Return a tensor of one integer as a dimension."""
    return node.graph.ints(Value.of_expr(count), "count", sizes=True)[0]


def _by(node: Node, op: str, x: Any, y: Dim) -> Any:
    return (
        x if s.same(y, 1) and op == "floor_divide" else node.op(op, x, node.graph.expr(Value.of_elements([y], "int64")))
    )


def _require_share(node: Node, i: int, name: str) -> None:
    """Require that an optional input's number lies in 0 to 1."""
    if not node.has(i):
        return
    if (known := node.const(i)) is not None:
        if not ((known >= 0) & (known <= 1)).all():
            node.error(f"{name} is no share", expected="0 to 1", found=str(known.ravel()))
        return
    zero, one = node.scalar(0, node.dtype(i)), node.scalar(1, node.dtype(i))
    lies = node.op("logical_and", node.op("greater_equal", node.x(i), zero), node.op("less_equal", node.x(i), one))
    outside = node.astype(node.op("logical_not", lies), "int64")
    node.require_indices(f"values of {name} outside of 0 to 1", outside, 0, 1)


@converter("NonMaxSuppression")
def _non_max_suppression(node: Node) -> Any:
    boxes, scores = node.x(0), node.x(1)
    batch, classes, n = node.dims(scores)

    for i in (2, 3, 4):
        if node.has(i):
            node.require_equal(f"input {i} is not one number", s.product(node.shape(i)), 1)

    def number(i: int, default: Any, dtype: str) -> Any:
        return node.reshape(node.astype(node.x(i), dtype), [1]) if node.has(i) else constant(np.array([default], dtype))

    _require_share(node, 3, "iou_threshold")
    given = [number(2, 0, "int64"), number(3, 0.0, node.dtype(0)), number(4, -np.inf, node.dtype(1))]
    order = node.op("argsort", scores, axis=-1, descending=True, dtype="int64")
    kept = node.op("vision.suppressed", boxes, scores, order, *given, center=bool(node.attr("center_point_box", 0)))
    flat = node.reshape(kept, [s.product([batch, classes, n])])
    places = flat_places(node, node.op("greater_equal", flat, node.scalar(0, "int64")))
    line = _by(node, "floor_divide", places, n)
    columns = [
        _by(node, "floor_divide", line, classes),
        _by(node, "floor_mod", line, classes),
        node.op("take", flat, places, axis=0, mode="clip"),
    ]
    return node.op("stack", Tuple(tuple(columns)), axis=1)
