"""Products with sparse matrices in compressed rows (CSR), or compressed rows of blocks (BSR)."""

from typing import Any

from weft import te
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import PrimExpr, cast, const, floordiv, floormod
from weft.te import Tensor
from weft.topi.index import clamped
from weft.topi.shape import simplify
from weft.topi.typing import Buffers, Extent, IRBuilder
from weft.topi.written import written


def _count(indptr: Any) -> Any:
    return simplify(indptr.shape[0] - 1)


def _row(starts: Any, row: Any, elements: Extent) -> tuple[Any, Any]:
    """Where a row begins and ends, made safe."""
    return clamped(starts[row], elements + 1), clamped(starts[row + 1], elements + 1)


def rows_times(data: Tensor, indices: Tensor, indptr: Tensor, dense: Tensor, name: str, turned: bool = False) -> Any:
    """Multiply a sparse matrix by a dense one, or, `turned`, by the transpose of it.

    Parameters
    ----------
    data : Tensor
        (elements,), (blocks, block rows) or (blocks, block rows, block columns).
    indices : Tensor
        (elements,): the column of each, counted in blocks.
    indptr : Tensor
        (rows + 1,): where each row, counted in blocks, begins.
    """
    height = data.shape[1] if data.ndim > 1 else 1
    width = data.shape[2] if data.ndim > 2 else 1
    if dense.ndim != 2 or data.dtype != dense.dtype:
        raise ShapeMismatch(
            f"{name}: the dense factor is a matrix of the same data type",
            found=f"{data.dtype}, {dense.dtype} of {dense.ndim} dimensions",
        )
    shape = (simplify(_count(indptr) * height), dense.shape[0 if turned else 1])

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        values, places, starts, factor, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, shape[0], name="row", kind="parallel") as row, ib.for_range(0, shape[1], name="n") as n:
            block_row, inner = floordiv(row, height), floormod(row, height)
            out[row, n] = const(0, data.dtype)
            with ib.for_range(*_row(starts, block_row, data.shape[0]), name="at") as at:
                first = clamped(places[at], floordiv(dense.shape[1 if turned else 0], width)) * width
                with ib.for_range(0, width, name="w") as w:
                    column = first + w
                    value = values[(at, inner, w)[: data.ndim]] if data.ndim > 1 else values[at]
                    out[row, n] = out[row, n] + value * factor[(n, column) if turned else (column, n)]

    return written(shape, [data, indices, indptr, dense], body, name=name, dtype=data.dtype)


def sparse_dense_sp_lhs(data_data: Tensor, data_indices: Tensor, data_indptr: Tensor, weight: Tensor) -> Any:
    """``data @ weight.T`` with sparse data."""
    return rows_times(data_data, data_indices, data_indptr, weight, "sparse_dense_sp_lhs", turned=True)


def sparse_dense_sp_rhs(data: Tensor, weight_data: Tensor, weight_indices: Tensor, weight_indptr: Tensor) -> Any:
    """``data @ weight.T`` with sparse weights."""
    found = rows_times(weight_data, weight_indices, weight_indptr, data, "sparse_dense_sp_rhs", turned=True)
    return te.compute((found.shape[1], found.shape[0]), lambda i, j: found(j, i), name="T_transpose")


def sparse_dense(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor, sparse_lhs: bool = False
) -> Any:
    """``dense @ sparse.T``, or, where the sparse factor is the left one, ``sparse @ dense.T``."""
    if sparse_lhs:
        return sparse_dense_sp_lhs(sparse_data, sparse_indices, sparse_indptr, dense_data)
    return sparse_dense_sp_rhs(dense_data, sparse_data, sparse_indices, sparse_indptr)


def sparse_conv2d(
    dense_data: Tensor,
    sparse_data: Tensor,
    sparse_indices: Tensor,
    sparse_indptr: Tensor,
    layout: str = "NHWC",
    kernel_size: int = 1,
) -> Any:
    """Convolve 1x1 with sparse weights (out, in)."""
    if kernel_size != 1 or layout not in ("NHWC", "NCHW"):
        raise InvalidArgument("sparse_conv2d: kernels of one pixel, NHWC or NCHW", found=f"{kernel_size}, {layout}")
    last = layout == "NHWC"
    n, *sizes = dense_data.shape
    channels = sizes.pop(-1 if last else 0)
    h, w = sizes
    pixels = simplify(n * h * w)

    def pixel(p: Any, c: PrimExpr) -> Any:
        at = (floordiv(p, h * w), floordiv(floormod(p, h * w), w), floormod(p, w))
        return dense_data(*at, c) if last else dense_data(at[0], c, *at[1:])

    rows = te.compute((pixels, channels), pixel, name="pixels")
    found = rows_times(sparse_data, sparse_indices, sparse_indptr, rows, "sparse_conv2d", turned=True)
    outputs = found.shape[0]
    if last:
        return te.compute((n, h, w, outputs), lambda b, y, x, o: found(o, (b * h + y) * w + x), name="T_sparse_conv2d")
    return te.compute((n, outputs, h, w), lambda b, o, y, x: found(o, (b * h + y) * w + x), name="T_sparse_conv2d")


def sparse_add(dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor) -> Any:
    """Add a sparse matrix to a dense one."""
    rows, columns = dense_data.shape

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        dense, values, places, starts, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, rows, name="row", kind="parallel") as row:
            with ib.for_range(0, columns, name="column") as column:
                out[row, column] = dense[row, column]
            with ib.for_range(*_row(starts, row, sparse_data.shape[0]), name="at") as at:
                column = clamped(places[at], columns)
                out[row, column] = out[row, column] + values[at]

    inputs = [dense_data, sparse_data, sparse_indices, sparse_indptr]
    return written(dense_data.shape, inputs, body, name="sparse_add", dtype=dense_data.dtype)


def sparse_transpose(sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor) -> Any:
    """Transpose a square matrix in compressed rows.

    Returns
    -------
    list of Tensor
        Elements, columns and beginnings of rows of the result.
    """
    n, elements = _count(sparse_indptr), sparse_data.shape[0]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        values, places, starts, out, out_places, out_starts = (ib.buffer_ptr(b) for b in (*ins, *outs))
        kept = ib.allocate(out_starts.dtype, (1,), name="kept", scope="local")
        with ib.for_range(0, n + 1) as i:
            out_starts[i] = 0
        with ib.for_range(0, elements) as i:
            after = clamped(places[i], n) + 1
            out_starts[after] = out_starts[after] + 1
        with ib.for_range(0, n) as i:
            out_starts[i + 1] = out_starts[i + 1] + out_starts[i]
        with ib.for_range(0, n) as row, ib.for_range(*_row(starts, row, elements)) as at:
            column = clamped(places[at], n)
            to = clamped(out_starts[column], elements)
            out_places[to], out[to] = cast(out_places.dtype, row), values[at]
            out_starts[column] = cast(out_starts.dtype, to + 1)
        with ib.for_range(0, n) as i:  # each has moved to the beginning of the next
            kept[0] = out_starts[n - 1 - i]
            out_starts[n - i] = kept[0]
        out_starts[0] = 0

    shapes = [sparse_data.shape, sparse_indices.shape, sparse_indptr.shape]
    dtypes = [sparse_data.dtype, sparse_indices.dtype, sparse_indptr.dtype]
    inputs = [sparse_data, sparse_indices, sparse_indptr]
    return written(shapes, inputs, body, name="sparse_transpose", dtype=dtypes)
