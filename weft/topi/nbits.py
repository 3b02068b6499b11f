"""Products with weights of 2, 4 and 8 bits in groups, and rows quantised in such groups.

A weight is ``(q - half) * scale + offset``: `q` has `bits` bits, ``half = 2 ** (bits - 1)``; scale and offset (zero
where it is left out) belong to `group` neighbouring weights of a column. Columns lie in panels of words of 32 bits::

    word (panel, step, column), byte b, bits j * bits ..    q of row  step * 32 / bits + 4 j + b

so that a mask takes four neighbouring rows of each column out of a vector of words, as dot products of bytes want them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import Broadcast, PrimExpr, Ramp, as_int, cast, const, floordiv, int64
from weft.te import Tensor
from weft.tir import TILE_ROWS
from weft.topi.nbits_products import LANES, LARGEST, MANY_ROWS, Dot, Tiled, Unpacked
from weft.topi.shape import simplify
from weft.topi.typing import Buffers, IRBuilder
from weft.topi.written import in_pairs, written


def dequantize_groups(
    data: Tensor, scale: Tensor, zero_point: Tensor, axis: int = 0, group: int = 32, out_dtype: str = "float32"
) -> Any:
    """``(data - zero_point) * scale`` with parameters for each `group` elements along an axis."""
    along = int(axis) % data.ndim

    def element(*i: Any) -> Any:
        place = [floordiv(v, int64(int(group))) if d == along else v for d, v in enumerate(i)]
        shifted = cast("float32", data(*i)) - cast("float32", zero_point(*place))
        return cast(out_dtype, shifted * cast("float32", scale(*place)))

    return te.compute(data.shape, element, name="T_dequantize")


# --- rows in bytes ----------------------------------------------------------------------------------------------------


def quantize_groups(x: Tensor, group: int) -> list[Any]:
    """Quantise rows (..., k) to int8 in groups along the last axis, the last one filled up with zeros.

    Returns
    -------
    list of Tensor
        (..., groups * group) int8, scales (..., groups) float32, sums of the integers (..., groups) int32.
    """
    k, size = as_int(x.shape[-1]), int(group)
    if k is None or size % LANES:
        raise InvalidArgument(
            "quantize_groups: rows have a constant length and groups whole vectors",
            expected=f"a multiple of {LANES}",
            found=f"rows of {x.shape[-1]}, groups of {group}",
        )
    groups, outer = -(-k // size), x.shape[:-1]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, *made = (ib.buffer_ptr(_matrix(ib, b)) for b in (*ins, *outs))
        _quantize_rows(ib, given, made, size)

    shapes = [(*outer, int64(groups * size)), (*outer, int64(groups)), (*outer, int64(groups))]
    return written(shapes, [x], body, name="quantize_groups", dtype=["int8", "float32", "int32"])


def _quantize_rows(ib: IRBuilder, x: Any, made: Sequence[Any], size: int) -> None:
    """Quantise rows in groups; `made` are integers, scales and sums."""
    rows, k = x.buffer.shape[0], as_int(x.buffer.shape[1]) or 0
    q, scale, total = made
    with ib.for_range(int64(0), rows, name="row", kind="parallel") as row:
        with ib.for_range(int64(0), int64(k // size), name="group") as g:
            _quantize_group(ib, x, q, scale, total, row, g, size, size)
        if k % size:
            _quantize_group(ib, x, q, scale, total, row, int64(k // size), size, k % size)


def _quantize_group(
    ib: IRBuilder, x: Any, q: Any, scale: Any, total: Any, row: PrimExpr, g: PrimExpr, size: int, known: int
) -> None:
    """Quantise the first `known` numbers of a group; the others are zero."""
    begin, lanes = g * int64(size), int64(LANES)
    part = ib.allocate("float32", (size,), name="part", scope="local")
    top = ib.allocate("float32", (LANES,), name="top", scope="local")
    sums = ib.allocate("int32", (LANES,), name="sums", scope="local")
    lane = Ramp(int64(0), int64(1), LANES)
    if known < size:
        with ib.for_range(int64(0), int64(size), name="i") as i:
            inside = tir.if_then_else(i < int64(known), cast("float32", x[row, begin + i]), const(0.0, "float32"))
            part[i] = inside

    def loaded(v: int) -> Any:
        if known < size:
            return part[lane + int64(v * LANES)] if v else part[lane]
        return cast(f"float32x{LANES}", x[row, Ramp(begin + int64(v * LANES), int64(1), LANES)])

    vectors = range(size // LANES)
    top[lane] = in_pairs([tir.fabs(loaded(v)) for v in vectors], tir.max)
    largest = in_pairs([top[int64(i)] for i in range(LANES)], tir.max)
    unit = ib.allocate("float32", (1,), name="unit", scope="local")
    unit[int64(0)] = largest * const(1.0 / LARGEST, "float32")
    scale[row, g] = unit[int64(0)]
    unit[int64(0)] = tir.Select(
        largest > const(0.0, "float32"), const(float(LARGEST), "float32") / largest, const(0.0, "float32")
    )
    for v in vectors:
        whole = cast(f"int32x{LANES}", tir.round(loaded(v) * Broadcast(unit[int64(0)], LANES)))
        sums[lane] = whole if v == 0 else sums[lane] + whole
        q[row, Ramp(begin + int64(v) * lanes, int64(1), LANES)] = cast(f"int8x{LANES}", whole)
    total[row, g] = in_pairs([sums[int64(i)] for i in range(LANES)], operator.add)


def _matrix(ib: IRBuilder, buffer: Any) -> Any:
    """See a buffer as the matrix of its rows."""
    if len(buffer.shape) == 2:
        return buffer
    shape = (reduce(lambda n, d: simplify(n * d), buffer.shape[:-1], int64(1)), buffer.shape[-1])
    view = tir.decl_buffer(shape, buffer.dtype, buffer.name + "_rows", data=buffer.data)
    ib.emit(lambda body: tir.DeclBuffer(view, body))
    return view


# --- products of quantised rows ---------------------------------------------------------------------------------------


def matmul_nbits_dot(
    x: Tensor,
    x_scale: Tensor,
    x_sum: Tensor,
    w: Tensor,
    scale: Tensor,
    offset: Tensor | None = None,
    n: int = 0,
    bits: int = 4,
    group: int = 32,
    dot: int = 0,
    out_dtype: str = "float32",
) -> Any:
    """Multiply quantised rows by weights in panels, in integers for each group.

    `dot` is the number of lanes of the machine's dot products of bytes, 0 where it has none.
    """
    given = [x, x_scale, x_sum, w, scale, *([] if offset is None else [offset])]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        q, unit, total = (_matrix(ib, b) for b in ins[:3])
        common = (*ins[3:5], None if offset is None else ins[5], _matrix(ib, outs[0]), n, bits)
        Dot(ib, q, *common, x_scale=unit, x_sum=total, group=group, dot=dot).run()

    return written((*x.shape[:-1], int64(n)), given, body, name="T_matmul_nbits", dtype=out_dtype)


# --- products of rows -------------------------------------------------------------------------------------------------


def matmul_nbits_packed(
    x: Tensor,
    w: Tensor,
    scale: Tensor,
    offset: Tensor | None = None,
    n: int = 0,
    bits: int = 4,
    group: int = 32,
    rows: str = "float32",
    dot: int = 0,
    tiles: bool = False,
) -> Any:
    """Multiply rows of a constant length by weights in panels.

    With `rows` int8 few rows are rounded to bytes, in the weights' groups, as :func:`matmul_nbits_dot` has them; many
    go to matrix tiles as bfloat16 where there are `tiles`.
    """
    k = as_int(x.shape[-1])
    if k is None:
        raise InvalidArgument("matmul_nbits_packed: rows have a constant length", found=str(x.shape[-1]))
    if tiles and as_int(w.shape[-1]) != 2 * TILE_ROWS:
        raise InvalidArgument("matmul_nbits_packed: tiles take panels of 32 columns", found=str(w.shape[-1]))
    given, groups = [x, w, scale, *([] if offset is None else [offset])], -(-k // group)

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        matrix, out = _matrix(ib, ins[0]), _matrix(ib, outs[0])
        common, m = (*ins[1:3], None if offset is None else ins[3], out, n, bits), out.shape[0]

        def few() -> None:
            types = (("int8", groups * group), ("float32", groups), ("int32", groups))
            parts = [ib.allocate(dtype, (m, int64(size)), name="part") for dtype, size in types]
            _quantize_rows(ib, ib.buffer_ptr(matrix), parts, group)
            q, unit, total = (p.buffer for p in parts)
            Dot(ib, q, *common, x_scale=unit, x_sum=total, group=group, dot=dot).run()

        if rows == "float32":
            Unpacked(ib, matrix, *common, group=group).run()
        elif tiles:
            with ib.if_scope(m >= int64(MANY_ROWS)):
                Tiled(ib, matrix, *common, group=group).run()
            with ib.else_scope():
                few()
        else:
            few()

    return written((*x.shape[:-1], int64(n)), given, body, name="T_matmul_nbits", dtype=x.dtype)
