"""Choices that depend on data: the different elements, and where elements are not zero."""

from typing import Any

from weft import ir, op
from weft.relay.expr import TupleWrapper, const
from weft.relay.op.construct import call, constructs
from weft.relay.op.elementwise import scalar
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import dims
from weft.relay.typing import Value

_LAST = 2**31 - 1


def _scattered(onto: ir.Expr, at: ir.Expr, values: ir.Expr, reduction: str = "update") -> ir.Expr:
    return shared("scatter_elements", onto, at, values, axis=0, reduction=reduction)


def _unique(data: ir.Expr, sorted: bool = True, return_counts: bool = False) -> ir.Expr:
    """Sort, number the runs of equal elements, and scatter what belongs to each run to its number."""
    op.tensor_arg("unique", "data", data, ndim=1)
    order = shared("argsort", data, axis=0, descending=False, dtype="int32")
    rows = shared("take", data, order, axis=0, mode="clip")
    place = shared("arange", ir.int64(0), dims(data)[0], ir.int64(1), dtype="int32")
    before = shared("maximum", shared("subtract", place, scalar(1, "int32")), scalar(0, "int32"))
    other = shared("not_equal", rows, shared("take", rows, before, axis=0, mode="clip"))
    new = shared("astype", shared("logical_or", other, shared("equal", place, scalar(0, "int32"))), dtype="int32")
    run = shared("subtract", shared("cumsum", new, axis=0), scalar(1, "int32"))
    zeros = shared("zeros_like", place)
    first = _scattered(shared("full_like", place, scalar(_LAST, "int32")), run, order, "min")
    inverse = _scattered(zeros, order, run)
    values = _scattered(shared("zeros_like", data), run, rows)
    counts = _scattered(zeros, run, shared("ones_like", place), "add")
    if not sorted:  # in the order of their first elements; runs that do not exist come last
        rank = shared("argsort", first, axis=0, descending=False, dtype="int32")
        inverse = shared("take", _scattered(zeros, rank, place), inverse, axis=0, mode="clip")
        values, first, counts = (shared("take", v, rank, axis=0, mode="clip") for v in (values, first, counts))
    found = (values, first, inverse, shared("sum", new, axis=None, keepdims=True))
    return _tuple((*found, counts) if return_counts else found)


def _tuple(fields: tuple[Any, ...]) -> ir.Tuple:
    return ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))


declare(
    "unique",
    "data",
    {"sorted": True, "return_counts": False},
    expand=_unique,
    outputs=lambda made: 5 if made.attrs["return_counts"] else 4,
    doc="The different elements of a vector, padded to its length; where each stands first; for each element which "
    "it is; how many there are; and how often each stands there.",
)


@constructs("unique")
def unique(data: Value, is_sorted: bool = True, return_counts: bool = False) -> TupleWrapper:
    """Find the different elements of a vector.

    Parameters
    ----------
    data : Expr
        The vector.
    is_sorted : bool
        Whether they come sorted, or in the order of their first places.
    return_counts : bool
        Whether how often each stands there is wanted, too.

    Returns
    -------
    TupleWrapper
        The elements, padded to the length of `data`; the first place of each; for each element of `data` which one it
        is; how many there are, as a vector of one; and the counts.
    """
    return call("unique", data, sorted=bool(is_sorted), return_counts=bool(return_counts))


@constructs("argwhere")
def argwhere(condition: Value) -> ir.Expr:
    """Find the coordinates of the elements that are not zero, in row-major order: (count, rank) int32.

    The elements' places are scattered to how many stand before them; as many as there are, are kept.
    """
    mask = call("reshape", call("cast", call("cast", condition, dtype="bool"), dtype="int64"), newshape=(-1,))
    before = call("subtract", call("cumsum", mask, axis=0), const(1, "int64"))
    size = call("ndarray_size", mask, dtype="int64")
    places = call("arange", const(0, "int64"), size, const(1, "int64"), dtype="int64")
    to = call("where", mask, before, size)  # what is zero goes to one more place, which is cut off
    room = call("arange", const(0, "int64"), call("add", size, const(1, "int64")), const(1, "int64"), dtype="int64")
    order = call("scatter_elements", room, to, places, axis=0)
    count = call("sum", mask, keepdims=True)
    ty = getattr(condition, "ty", None)
    if isinstance(ty, ir.TensorType) and ty.ndim == 0:
        shape = call("concatenate", (count, const([0], "int64")))
        return call("dyn.zeros", shape, dtype="int32")
    found = call("dyn.strided_slice", order, const([0], "int64"), count, const([1], "int64"))
    rows = call("unravel_index", found, call("shape_of", condition, dtype="int64"))
    return call("cast", call("transpose", rows), dtype="int32")
