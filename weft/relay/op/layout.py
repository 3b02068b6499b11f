"""Other layouts: blocks of space as channels or batches, named layouts, grids, and indices taken apart."""

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_int, floordiv, int64
from weft.op import fields_of, product, simplify, tensor_arg
from weft.relay.op.construct import call, constructs
from weft.relay.op.elementwise import scalar
from weft.relay.op.reduce import number
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dims, dtype_of, rank, shape_of_dims
from weft.relay.typing import Value

declare(
    "layout_transform",
    "data",
    {"src_layout": REQUIRED, "dst_layout": REQUIRED},
    expand="layout_transform",
    doc="Bring a tensor from one named layout into another: ``NCHW`` to ``NCHW16c``.",
)


def _channels_first(op: str, data: ir.Expr, layout: str, compute: Any) -> ir.Expr:
    tensor_arg(op, "data", data, ndim=4)
    if layout == "NCHW":
        return compute(data)
    if layout != "NHWC":
        raise InvalidArgument(f"{op}: unknown layout '{layout}'", expected="NCHW or NHWC")
    return shared("permute_dims", compute(shared("permute_dims", data, axes=(0, 3, 1, 2))), axes=(0, 2, 3, 1))


declare(
    "nn.depth_to_space",
    "data",
    {"block_size": REQUIRED, "layout": "NCHW", "mode": "DCR"},
    expand=lambda data, block_size, layout, mode: _channels_first(
        "nn.depth_to_space",
        data,
        layout,
        lambda x: shared("depth_to_space", x, block_size=block_size, mode="CRD" if mode == "CDR" else mode),
    ),
    doc="Move channels into blocks of the two spatial axes. Mode ``CRD`` is ``CDR``, too, as TVM calls it.",
)
declare(
    "nn.space_to_depth",
    "data",
    {"block_size": REQUIRED, "layout": "NCHW"},
    expand=lambda data, block_size, layout: _channels_first(
        "nn.space_to_depth", data, layout, lambda x: shared("space_to_depth", x, block_size=block_size)
    ),
    doc="Move blocks of the two spatial axes into channels.",
)
declare(
    "vision.yolo_reorg",
    "data",
    {"stride": 1},
    expand=lambda data, stride: _channels_first(
        "vision.yolo_reorg", data, "NCHW", lambda x: _reorganized(x, int(stride))
    ),
    doc="Move blocks of space into channels in the order of YOLO's reorg layer.",
)


def _reorganized(data: ir.Expr, stride: int) -> ir.Expr:
    """Take the output's memory for one of (n, c / s^2, h, s, w, s) and bring the blocks to the front."""
    n, c, h, w = dims(data)
    s = int64(stride)
    inner = simplify(floordiv(c, s * s))
    blocks = shared("reshape", data, shape_of_dims((n, inner, h, s, w, s)))
    moved = shared("permute_dims", blocks, axes=(0, 3, 5, 1, 2, 4))
    flat = (n, simplify(c * s * s), simplify(floordiv(h, s)), simplify(floordiv(w, s)))
    return shared("reshape", moved, shape_of_dims(flat))


# --- batches ----------------------------------------------------------------------------------------------------------


def _space_to_batch(data: ir.Expr, block_shape: Any, paddings: Any, pad_value: float = 0.0) -> ir.Expr:
    m = _spatial("nn.space_to_batch_nd", data, block_shape, paddings)
    widths = ((0, 0), *paddings, *[(0, 0)] * (rank(data) - 1 - m))
    x = shared("nn.pad", data, pad_width=tuple(v for p in widths for v in p), pad_value=pad_value)
    shape = dims(x)
    for d, b in zip(shape[1:], block_shape, strict=False):
        if as_int(d) is not None and as_int(d) % int(b):  # type: ignore[operator]
            raise ShapeMismatch(
                "nn.space_to_batch_nd: a padded dimension is not a multiple of its block",
                expected=f"a multiple of {b}",
                found=str(d),
                where=data.span,
            )
    parts = [simplify(floordiv(d, int64(int(b)))) for d, b in zip(shape[1:], block_shape, strict=False)]
    apart = [v for d, b in zip(parts, block_shape, strict=True) for v in (d, int64(int(b)))]
    x = shared("reshape", x, shape_of_dims((shape[0], *apart, *shape[1 + m :])))
    order = (*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, rank(x)))
    batch = simplify(shape[0] * product([int64(int(b)) for b in block_shape]))
    return shared("reshape", shared("permute_dims", x, axes=order), shape_of_dims((batch, *parts, *shape[1 + m :])))


def _batch_to_space(data: ir.Expr, block_shape: Any, crops: Any) -> ir.Expr:
    m, shape = _spatial("nn.batch_to_space_nd", data, block_shape, crops), dims(data)
    blocks = [int64(int(b)) for b in block_shape]
    batch = simplify(floordiv(shape[0], product(blocks)))
    x = shared("reshape", data, shape_of_dims((*blocks, batch, *shape[1:])))
    pairs = [v for i in range(m) for v in (m + 1 + i, i)]
    x = shared("permute_dims", x, axes=(m, *pairs, *range(2 * m + 1, rank(x))))
    wide = [simplify(d * b) for d, b in zip(shape[1:], blocks, strict=False)]
    x = shared("reshape", x, shape_of_dims((batch, *wide, *shape[1 + m :])))
    begin = tuple(int(before) for before, _ in crops)
    end = tuple(simplify(d - int64(int(after))) for d, (_, after) in zip(wide, crops, strict=True))
    return shared("strided_slice", x, axes=tuple(range(1, m + 1)), begin=begin, end=end)


def _spatial(op: str, data: ir.Expr, block_shape: Any, pairs: Any) -> int:
    m = len(block_shape)
    tensor_arg(op, "data", data, min_ndim=m + 1)
    if len(pairs) != m:
        raise ShapeMismatch(f"{op}: a pair for each block", expected=str(m), found=str(len(pairs)))
    return m


declare(
    "nn.space_to_batch_nd",
    "data",
    {"block_shape": REQUIRED, "paddings": REQUIRED, "pad_value": 0.0},
    expand=_space_to_batch,
    doc="Move blocks of the axes after the first into the batch.",
)
declare(
    "nn.batch_to_space_nd",
    "data",
    {"block_shape": REQUIRED, "crops": REQUIRED},
    expand=_batch_to_space,
    doc="Move the batch into blocks of the axes after the first, and cut off borders.",
)


def _dilate(data: ir.Expr, strides: Any, dilation_value: float = 0.0) -> ir.Expr:
    """Pad each element in an axis of its own, merge, and cut what follows the last element."""
    shape = dims(data)
    if len(strides) != len(shape):
        raise ShapeMismatch(
            "nn.dilate: a stride for each dimension", expected=str(len(shape)), found=str(len(strides)), where=data.span
        )
    apart = shared("reshape", data, shape_of_dims([v for d in shape for v in (d, int64(1))]))
    widths = tuple(v for s in strides for v in (0, 0, 0, int(s) - 1))
    wide = shared("nn.pad", apart, pad_width=widths, pad_value=dilation_value)
    full = [simplify(d * int64(int(s))) for d, s in zip(shape, strides, strict=True)]
    out = shared("reshape", wide, shape_of_dims(full))
    end = tuple(simplify(d - int64(int(s) - 1)) for d, s in zip(full, strides, strict=True))
    return shared("strided_slice", out, axes=tuple(range(len(shape))), begin=(0,) * len(shape), end=end)


declare(
    "nn.dilate",
    "data",
    {"strides": REQUIRED, "dilation_value": 0.0},
    expand=_dilate,
    doc="Put ``stride - 1`` values between neighbours along each axis.",
)

# --- grids and indices ------------------------------------------------------------------------------------------------

declare(
    "meshgrid",
    "data:tensors",
    {"indexing": "ij"},
    expand=lambda data, indexing: _meshgrid(data, indexing),
    outputs=lambda made: len(fields_of("meshgrid", "data", made.args[0])),
    doc="Vectors (or scalars) repeated over the grid that they span.",
)


def _meshgrid(data: ir.Expr, indexing: str) -> ir.Expr:
    fields = fields_of("meshgrid", "data", data)
    return shared(
        "meshgrid",
        tuple(shared("reshape", f, shape_of_dims((1,))) if rank(f) == 0 else f for f in fields),
        indexing=indexing,
    )


def _unravel_index(indices: ir.Expr, shape: ir.Expr) -> ir.Expr:
    """Divide from the last dimension on, in 64 bits: a narrow type of indices may not hold a dimension."""
    dtype = tensor_arg("unravel_index", "indices", indices, kind="integer").dtype
    tensor_arg("unravel_index", "shape", shape, ndim=1, kind="integer")
    n = as_int(dims(shape)[0])
    if not n:
        raise ShapeMismatch(
            "unravel_index: the shape must have a known number of dimensions, at least one",
            found=str(shape.ty),
            where=shape.span,
        )
    sizes, rest = (shared("astype", e, dtype="int64") for e in (shape, indices))
    out: list[ir.Expr] = []
    for i in reversed(range(n)):
        size = shared("strided_slice", sizes, axes=(0,), begin=(i,), end=(i + 1,))
        size = shared("squeeze", size, axis=(0,))
        out.append(shared("floor_mod", rest, size) if i else rest)
        rest = shared("floor_divide", rest, size)
    return shared("astype", shared("stack", tuple(reversed(out)), axis=0), dtype=dtype)


declare(
    "unravel_index", "indices shape", expand=_unravel_index, doc="The coordinates of flat indices, one row a dimension."
)
declare(
    "adv_index",
    "inputs:tensors",
    expand=lambda inputs: _adv_index(inputs),
    doc="Elements of the first tensor by tensors of indices that broadcast together.",
)


def _adv_index(inputs: ir.Expr) -> ir.Expr:
    fields = fields_of("adv_index", "inputs", inputs)
    if len(fields) < 2:
        raise InvalidArgument(
            "adv_index: the data and at least one tensor of indices",
            expected="2 tensors or more",
            found=str(len(fields)),
            where=inputs.span,
        )
    return shared("index_tensor", fields[0], tuple(fields[1:]))


def _trilu(data: ir.Expr, k: ir.Expr, upper: bool = True) -> ir.Expr:
    """Compare coordinates, so that the diagonal may be computed."""
    tensor_arg("trilu", "k", k, ndim=0, kind="integer")
    n = len(tensor_arg("trilu", "data", data, min_ndim=2).shape or ())
    rows, columns = dims(data)[n - 2], dims(data)[n - 1]
    row = shared("expand_dims", shared("arange", int64(0), rows, int64(1), dtype="int64"), axis=(1,))
    column = shared("arange", int64(0), columns, int64(1), dtype="int64")
    edge = shared("add", row, shared("astype", k, dtype="int64"))
    mask = shared("greater_equal" if upper else "less_equal", column, edge)
    return shared("where", mask, data, scalar(0, dtype_of(data)))


declare(
    "trilu",
    "data k",
    {"upper": True},
    expand=_trilu,
    doc="The upper or lower triangle of each matrix, from the k-th diagonal.",
)


_ALIGNMENTS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


def _matrix_set_diag(data: ir.Expr, diagonal: ir.Expr, k1: int, k2: int, align: tuple[bool, bool]) -> ir.Expr:
    """Read for each element the place that it has in the diagonals, and choose it where it lies on one of them."""
    n = len(tensor_arg("matrix_set_diag", "data", data, min_ndim=2).shape or ())
    several = k1 != k2
    if k1 > k2 or rank(diagonal) != n - 1 + several:
        raise ShapeMismatch(
            "matrix_set_diag: the diagonals do not fit",
            expected=f"{n - 1 + several} dimensions",
            found=f"{rank(diagonal)}, for diagonals {k1} to {k2}",
            where=diagonal.span,
        )
    lead, rows, columns = dims(data)[: n - 2], dims(data)[n - 2], dims(data)[n - 1]
    longest = dims(diagonal)[-1]
    row = shared("expand_dims", shared("arange", int64(0), rows, int64(1), dtype="int64"), axis=(1,))
    column = shared("arange", int64(0), columns, int64(1), dtype="int64")
    which = shared("subtract", column, row)
    zero = scalar(0, "int64")
    along = shared("minimum", row, column)  # the place from the diagonal's beginning
    if several:
        below = shared("minimum", which, zero)
        above = shared("maximum", which, zero)
        length = shared(
            "minimum", shared("add", number(rows, "int64"), below), shared("subtract", number(columns, "int64"), above)
        )
        spare = shared("subtract", number(longest, "int64"), length)
        super_right, sub_right = align
        upper = spare if super_right else shared("zeros_like", spare)
        lower = spare if sub_right else shared("zeros_like", spare)
        along = shared("add", along, shared("where", shared("greater_equal", which, zero), upper, lower))
    inside = shared(
        "logical_and",
        shared("greater_equal", which, scalar(k1, "int64")),
        shared("less_equal", which, scalar(k2, "int64")),
    )
    flat_dims = (*lead, simplify(dims(diagonal)[-2] * longest)) if several else dims(diagonal)
    flat = shared("reshape", diagonal, shape_of_dims(flat_dims))
    if several:
        band = shared("subtract", scalar(k2, "int64"), which)
        along = shared("add", shared("multiply", band, number(longest, "int64")), along)
    picked = shared("take", flat, along, axis=n - 2, mode="clip")
    return shared("where", inside, picked, data)


declare(
    "matrix_set_diag",
    "data diagonal",
    {"k1": 0, "k2": 0, "super_diag_right_align": True, "sub_diag_right_align": False},
    expand=lambda data, diagonal, k1, k2, super_diag_right_align, sub_diag_right_align: _matrix_set_diag(
        data, diagonal, k1, k2, (super_diag_right_align, sub_diag_right_align)
    ),
    doc="Matrices with diagonals k1 to k2 replaced; short ones are aligned left or right in their rows.",
)


@constructs("matrix_set_diag")
def matrix_set_diag(data: Value, diagonal: Value, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> ir.Expr:
    """Replace one diagonal, or those from the first to the second of a pair.

    Parameters
    ----------
    data : Expr
        Matrices.
    diagonal : Expr
        The new elements: a row for each diagonal, the uppermost first, where there are several.
    k : int or (int, int)
        The diagonals, counted from the main one upwards.
    align : str
        Where diagonals above and below the main one lie in longer rows, such as ``RIGHT_LEFT``.
    """
    if align not in _ALIGNMENTS:
        raise InvalidArgument(f"matrix_set_diag: unknown alignment '{align}'", expected=", ".join(_ALIGNMENTS))
    k1, k2 = (k if len(k) == 2 else (k[0], k[0])) if isinstance(k, Sequence) else (k, k)
    above, below = align.split("_")
    return call(
        "matrix_set_diag",
        data,
        diagonal,
        k1=int(k1),
        k2=int(k2),
        super_diag_right_align=above == "RIGHT",
        sub_diag_right_align=below == "RIGHT",
    )
