"""CompressWeights: weights that one row is multiplied with are stored in 28 of 32 bits, and exactly.

Such a product takes as long as memory needs to bring its weights. ``weft.topi.compressed`` draws the format.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any, NamedTuple

import numpy as np

from weft import arith, ir, machine
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.runtime import aligned
from weft.topi.compressed import GROUP, WORDS

_PACKED = "relax.nn.matmul_packed"

_RARE, _FEW = 32, 16
"""Weights outside of the window of exponents that a panel may have: its rows divided by the first, or the second."""

_MANTISSA, _WINDOW = 23, 15
_SIGN, _FIELDS = np.int32(-(1 << 31)), np.int32((1 << 27) - 1)


class Compressed(NamedTuple):
    """A matrix: words of eight weights, exponents of columns in place, and lists of the others."""

    words: np.ndarray
    base: np.ndarray
    rows: np.ndarray
    lanes: np.ndarray
    values: np.ndarray


@ir.function_pass(kind=ir.Function, opt_level=2)
def compress_weights(
    func: ir.Function,
    mod: ir.IRModule,
    *,
    cached_bytes: int = machine.UNKNOWN.memory_bound_bytes,
    matrix_bytes: int = machine.UNKNOWN.lost_weight_bytes,
) -> ir.Function:
    """Store the weights of products with one row in 28 bits each, where the model's weights come from memory.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; the same weights, bit for bit. What also meets more rows stays as it is.
    With ``cached_bytes=0`` and ``matrix_bytes=0``, before::

        @R.function
        def main(x: R.Tensor((1, 8), "float32")):
            with R.dataflow():
                y = R.nn.matmul_packed(
                    x, R.const([[[1.0], [1.0], [1.0], [1.0], [1.0], [1.0], [1.0], [2.0]]], "float32"), n=1
                )
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((1, 8), "float32")):
            with R.dataflow():
                y = R.nn.matmul_compressed(
                    x, R.const([[[[117440512]] * 5 + [[1191182336], [1056964608]]]], "int32"),
                    R.const([[947912704]], "int32"), R.const([[0] * 8], "int32"), R.const([[-1] * 8], "int32"),
                    R.const([[0.0] * 8], "float32"), n=1,
                )
                R.output(y)
            return y

    Options:
        ``cached_bytes``: size of the weights of such products together up to which they are left as they are.
        ``matrix_bytes``: the smallest matrix that is worth it.
    Cost: Some passes over the weights, on all cores.
    Source: None.
    """
    products = [b.value for b in all_bindings(func) if _is_packed(b.value, matrix_bytes)]
    tried: dict[int, Compressed | None] = {id(c.args[1].data): None for c in products if not _has_one_row(c)}
    mine = {id(c.args[1].data): prod(c.args[1].data.shape) * 4 for c in products if id(c.args[1].data) not in tried}
    if sum(mine.values()) <= cached_bytes:
        return func

    def rule(binding: Any, value: Any, bb: Any) -> ir.Expr | None:
        if not _is_packed(value, matrix_bytes):
            return None
        data = value.args[1].data
        if id(data) not in tried:
            tried[id(data)] = compress(data.numpy())
        found = tried[id(data)]
        if found is None:
            return None
        args = (value.args[0], *(ir.constant(a) for a in found))
        return ir.Call(ir.Op.get("relax.nn.matmul_compressed"), args, ir.Attrs.of(n=value.attrs["n"]), span=value.span)

    return rewrite_bindings(func, mod, rule)


def _is_packed(value: ir.Expr, matrix_bytes: int) -> bool:
    """Whether a value is a product with a large constant matrix of float32 in panels."""
    return (
        isinstance(value, ir.Call)
        and isinstance(value.op, ir.Op)
        and value.op.name == _PACKED
        and isinstance(value.args[1], ir.Constant)
        and str(value.args[1].data.dtype) == "float32"
        and value.attrs.get("group", 1) == 1
        and prod(value.args[1].data.shape) * 4 >= matrix_bytes
    )


def _has_one_row(call: ir.Call) -> bool:
    """Whether a product has one row, or at most one."""
    ty, analyzer = call.args[0].ty, arith.Analyzer()
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return False
    return all(
        ir.as_int(d) == 1 or (ir.as_int(d) is None and analyzer.can_prove(d <= ir.int64(1))) for d in ty.shape[:-1]
    )


def compress(weights: np.ndarray) -> Compressed | None:
    """Compress weights in panels (panels, rows, panel); None where that does not pay or cannot be exact.

    That is with infinities, a number of rows that eight does not divide, or too many small weights.
    """
    panels, rows, panel = weights.shape
    if rows % GROUP or weights.dtype != np.float32:
        return None
    bits = weights.view(np.int32)
    words = aligned(np.empty((panels, rows // GROUP, WORDS, panel), np.int32))
    base = aligned(np.empty((panels, panel), np.int32))

    def one(p: int) -> tuple[np.ndarray, np.ndarray] | None:
        return _compress_panel(bits[p], words[p], base[p])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for rare in pool.map(one, range(panels), chunksize=8):
            if rare is None or len(rare[0]) > max(_FEW, rows // _RARE):
                pool.shutdown(cancel_futures=True)
                return None
            found.append(rare)
    return Compressed(words, base, *_listed(weights, found))


def _listed(weights: np.ndarray, found: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Return rows, lanes and values of listed weights, as many for each panel: layers of equal sizes share kernels."""
    longest = max((len(row) for row, _ in found), default=0)
    shape = (len(found), 1 << max(3, (longest - 1).bit_length()))
    rows, lanes, values = (aligned(np.full(shape, v, t)) for v, t in ((0, np.int32), (-1, np.int32), (0, np.float32)))
    for p, (row, lane) in enumerate(found):
        rows[p, : len(row)], lanes[p, : len(row)], values[p, : len(row)] = row, lane, weights[p, row, lane]
    return rows, lanes, values


def _compress_panel(bits: np.ndarray, words: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Fill the words and the bases of a panel; return rows and lanes of the weights that are listed, if all fit."""
    absolute = bits & np.int32(0x7FFFFFFF)
    top = absolute.max(axis=0) >> _MANTISSA
    if top.max(initial=0) == 255:
        return None
    lowest = np.maximum(top - _WINDOW, 0).astype(np.int32) << _MANTISSA
    base[...] = lowest
    inside = absolute > lowest  # the lowest value itself is what zero is stored as
    rare = (~inside & (absolute != 0)).nonzero()
    absolute -= lowest
    absolute *= inside
    absolute |= bits & _SIGN
    absolute[rare] = 0
    grouped = absolute.reshape(-1, GROUP, bits.shape[-1])
    np.copyto(words, grouped[:, :WORDS])
    last = grouped[:, WORDS]
    whole = (last & _FIELDS) | ((last >> 4) & np.int32(1 << 27))
    for j in range(WORDS):
        words[:, j] |= ((whole >> np.int32(4 * j)) & np.int32(15)) << np.int32(27)
    return rare
