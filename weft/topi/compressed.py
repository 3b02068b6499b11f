"""Weights in 28 of 32 bits, and products with them.

A float32 weight is a sign, 23 bits of mantissa and an exponent. The exponents of a column lie within a window of 16 but
for one weight in ten thousand, so four bits say which of them it is. Eight weights of a column are seven words::

    word j < 7    bit 31  30 .. 27    26 .. 23    22 .. 0
                  sign    nibble j    exponent    mantissa     of weight j
    weight 7      its 28 bits (sign, exponent, mantissa) are the nibbles 6, 5, .. 0

All zeros but the sign is zero. Weights outside of the window are stored as zero, and in a list of their panel: row,
lane, value.
"""

from typing import Any

from weft import error, ir, te, tir
from weft.ir import PrimExpr
from weft.te import Tensor
from weft.topi.index import clamped
from weft.topi.matmul import matmul_packed

GROUP = 8
"""Weights of a column that are stored together."""

WORDS = GROUP - 1
"""32-bit words that hold them."""

_SIGN, _FIELDS = -(1 << 31), (1 << 27) - 1


def _int32(value: int) -> Any:
    return tir.const(value, "int32")


def _last(words: list[Any]) -> Any:
    """Put the last weight of a group together from the spare bits of the others."""
    whole: Any = None
    for j, word in enumerate(words):
        at = 4 * j + 4
        moved = tir.shift_left(word, _int32(at - 27)) if at > 27 else tir.shift_right(word, _int32(27 - at))
        mask = 15 << at
        part = tir.bitwise_and(moved, _int32(mask - (1 << 32) if mask >> 31 else mask))
        whole = part if whole is None else tir.bitwise_or(whole, part)
    return tir.shift_right(whole, _int32(4))


def _weights(w: Any, base: Any) -> Any:
    """Return the weights (panels, rows, panel) of words (panels, rows / 8, 7, panel)."""

    def element(panel: PrimExpr, row: PrimExpr, lane: PrimExpr) -> Any:
        group, place = ir.floordiv(row, ir.int64(GROUP)), ir.floormod(row, ir.int64(GROUP))
        own = w(panel, group, tir.min(place, ir.int64(WORDS - 1)), lane)
        last = _last([w(panel, group, ir.int64(j), lane) for j in range(WORDS)])
        fields = tir.bitwise_and(tir.if_then_else(place < ir.int64(WORDS), own, last), _int32(_SIGN | _FIELDS))
        bits = tir.Var("bits", "int32")
        nonzero = tir.NE(tir.bitwise_and(bits, _int32(_FIELDS)), _int32(0))
        value = tir.Let(bits, fields, tir.Select(nonzero, bits + base(panel, lane), bits))
        return tir.reinterpret("float32", value)

    return te.compute((w.shape[0], w.shape[1] * ir.int64(GROUP), w.shape[3]), element, name="T_weights")


def _rare_products(x: Any, rows: Any, lanes: Any, values: Any, panel: Any, n: int) -> Any:
    """Sum the products of the listed weights of each panel in their columns; entries of lane -1 are none."""
    entry = te.reduce_axis((ir.int64(0), rows.shape[1]), "entry")

    def element(*i: Any) -> Any:
        at = (ir.floordiv(i[-1], panel), entry.var)
        here = tir.EQ(lanes(*at), ir.cast("int32", ir.floormod(i[-1], panel)))
        term = x(*i[:-1], clamped(rows(*at), x.shape[-1])) * values(*at)
        return te.sum(tir.Select(here, term, tir.const(0.0, x.dtype)), axis=entry)

    return te.compute((*x.shape[:-1], ir.int64(n)), element, name="T_rare")


def matmul_compressed(x: Tensor, w: Tensor, base: Tensor, rows: Tensor, lanes: Tensor, values: Tensor, n: int) -> Any:
    """Multiply by a matrix of weights in 28 bits: words, exponents of columns in place, and lists of the others."""
    if ir.as_int(w.shape[3]) is None:
        raise error.InvalidArgument("matmul_compressed: the width of a panel must be constant", found=str(w.shape[3]))
    product = matmul_packed(x, _weights(w, base), n)
    rare = _rare_products(x, rows, lanes, values, w.shape[3], int(n))
    return te.compute(product.shape, lambda *i: product(*i) + rare(*i), name="T_matmul_compressed")
