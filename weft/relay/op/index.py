"""Gathering by index, and masks and orders by length."""

from typing import Any

from weft import error, ir, op
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims, dtype_of, rank, shape_of_dims, vector


def _take(data: ir.Expr, indices: ir.Expr, axis: Any = None, batch_dims: int = 0, mode: str = "clip") -> ir.Expr:
    if mode not in ("clip", "wrap", "fast"):
        raise error.InvalidArgument(f"take: unknown mode '{mode}'", expected="clip, wrap or fast")
    if axis is None:
        flat = shared("reshape", data, shape_of_dims((op.product(dims(data)),))) if rank(data) != 1 else data
        return shared("take", flat, indices, axis=0, mode=mode)
    at = op.normalize_axis("take", axis, rank(data))
    batch = int(batch_dims) % max(rank(indices), 1) if batch_dims < 0 else int(batch_dims)
    return _batched_take(data, indices, at, batch, mode) if batch else shared("take", data, indices, axis=at, mode=mode)


def _batched_take(data: ir.Expr, indices: ir.Expr, axis: int, batch: int, mode: str) -> ir.Expr:
    """Take from one row of a flat axis: the leading axes of data and indices are walked together."""
    shape, wanted = dims(data), dims(indices)
    if batch > axis or batch > len(wanted):
        raise error.InvalidArgument("take: batch_dims is larger than axis or the rank of the indices", found=str(batch))
    depth, count = shape[axis], op.product(shape[:batch])
    to_front = (*range(batch), axis, *(i for i in range(batch, len(shape)) if i != axis))
    rest = tuple(shape[i] for i in to_front[batch + 1 :])
    rows = shared("reshape", shared("permute_dims", data, axes=to_front), shape_of_dims((count * depth, *rest)))
    index = shared("astype", indices, dtype="int64")
    size = shared("full", shape_of_dims(()), ir.prim_value(depth), dtype="int64")
    if mode == "wrap":
        index = shared("floor_mod", index, size)
    else:
        zero, one = ir.constant(0, "int64"), ir.constant(1, "int64")
        index = shared("maximum", shared("minimum", index, shared("subtract", size, one)), zero)
    start = shared("multiply", shared("arange", ir.int64(0), count, ir.int64(1), dtype="int64"), size)
    first = shared("reshape", start, shape_of_dims((*shape[:batch], *[ir.int64(1)] * (len(wanted) - batch))))
    got = shared("take", rows, shared("add", first, index), axis=0, mode="clip")
    inner, lead = len(wanted) - batch, axis - batch
    moved = (
        *range(batch),
        *range(batch + inner, batch + inner + lead),
        *range(batch, batch + inner),
        *range(batch + inner + lead, rank(got)),
    )
    return shared("permute_dims", got, axes=moved) if lead else got


def _gather_nd(data: ir.Expr, indices: ir.Expr, batch_dims: int = 0, index_rank: Any = None) -> ir.Expr:
    """Gather with the coordinates in the first axis of the indices."""
    n = len(op.tensor_arg("gather_nd", "indices", indices, min_ndim=1).shape or ())
    depth = ir.as_int(dims(indices)[0])
    if depth is None:
        raise error.ShapeMismatch("gather_nd: the first dimension of 'indices' must be known", found=str(indices.ty))
    if not 0 <= batch_dims < n or batch_dims + depth > rank(data):
        raise error.ShapeMismatch(
            "gather_nd: the indices have more coordinates than the data has dimensions",
            expected=f"at most {rank(data) - batch_dims}",
            found=str(depth),
            where=indices.span,
        )
    last = shared("permute_dims", indices, axes=(*range(1, n), 0)) if n > 1 else indices
    return shared("gather_nd", data, last, batch_dims=batch_dims)


declare(
    "take",
    "data indices",
    {"axis": None, "batch_dims": 0, "mode": "clip"},
    expand=_take,
    doc="Elements along an axis by index; of the flat tensor where `axis` is None.",
)
declare(
    "gather",
    "data indices",
    {"axis": REQUIRED},
    expand="gather_elements",
    doc="One element for each index along an axis.",
)


@constructs("gather")
def gather(data: ir.Expr, axis: int, indices: ir.Expr) -> ir.Expr:
    """Take one element along an axis for each index."""
    return call("gather", data, indices, axis=axis)


declare(
    "gather_nd",
    "data indices",
    {"batch_dims": 0, "index_rank": None},
    expand=_gather_nd,
    doc="Slices by tuples of indices, which lie along the first axis of `indices`.",
)
declare(
    "reverse_sequence",
    "data seq_lengths",
    expand="reverse_sequence",
    doc="Reverse the beginning of each sequence, up to its length.",
)


def _sequence_mask(data: ir.Expr, valid_length: ir.Expr, mask_value: float = 0.0, axis: int = 0) -> ir.Expr:
    op.tensor_arg("sequence_mask", "data", data, min_ndim=2)
    at = op.normalize_axis("sequence_mask", axis, rank(data))
    if at > 1:
        raise error.InvalidArgument("sequence_mask: 'axis' must be 0 or 1", found=str(axis))
    shape = dims(data)
    vector("sequence_mask", "valid_length", valid_length, shape[1 - at])
    column = [ir.int64(1)] * len(shape)
    steps = shared("arange", ir.int64(0), shape[at], ir.int64(1), dtype="int64")
    along = shared("reshape", steps, shape_of_dims(shape[i] if i == at else d for i, d in enumerate(column)))
    lengths = shared("astype", valid_length, dtype="int64")
    across = shared("reshape", lengths, shape_of_dims(shape[i] if i == 1 - at else d for i, d in enumerate(column)))
    return shared("where", shared("less", along, across), data, ir.constant(mask_value, dtype_of(data)))


declare(
    "sequence_mask",
    "data valid_length",
    {"mask_value": 0.0, "axis": 0},
    expand=_sequence_mask,
    doc="Replace what lies behind each sequence's length by a value.",
)
