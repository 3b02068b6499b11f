"""Sorting lines of narrow numbers by their digits: stable, without a branch that depends on a value.

A word holds an element's key, whose order as an unsigned number is that of the elements, above its position. Passes
over digits of eight bits, the lowest first, bring the words from one half of the scratch memory to the other.
"""

from collections.abc import Callable
from typing import Any

from weft import ir, tir

SHORT = 64
"""Shorter lines are not worth clearing the counts of all digits for."""

_DIGIT, _DIGITS = 8, 256


def has_key(dtype: str) -> bool:
    """Whether elements have keys of at most 32 bits."""
    kind = ir.DataType(dtype)
    return kind.lanes == 1 and kind.bits in (8, 16, 32) and not str(dtype).startswith(("float8", "float4", "float6"))


def _key(x: ir.PrimExpr, largest: bool) -> ir.PrimExpr:
    """Return a number in uint32 that grows as elements do, or falls: equal for equal ones, NaN is greatest."""
    kind, bits = ir.DataType(x.dtype), ir.DataType(x.dtype).bits
    unsigned, sign, every = f"uint{bits}", ir.const(1 << (bits - 1), "uint32"), ir.const((1 << bits) - 1, "uint32")
    key = ir.cast("uint32", x if str(x.dtype) in ("bool", unsigned) else tir.reinterpret(unsigned, x))
    if kind.is_float:
        falls = tir.bitwise_and(key, sign) > ir.const(0, "uint32")
        key = ir.select(falls, tir.bitwise_and(tir.bitwise_not(key), every), tir.bitwise_or(key, sign))
        key = ir.select(x.equal(ir.const(0, x.dtype)), sign, ir.select(x != x, every, key))  # both zeros are one
    elif str(x.dtype) not in ("bool", unsigned):
        key = tir.bitwise_xor(key, sign)
    return tir.bitwise_and(tir.bitwise_not(key), every) if largest else key


def radix_line(
    source: tir.Buffer, order: tir.Buffer, extent: ir.PrimExpr, at: Callable[[Any], tuple[Any, ...]], largest: bool
) -> tir.Stmt:
    """Write the statement that puts the positions of a line, of fewer than 2^32 elements, in sorted order."""
    ib, passes = tir.ir_builder.create(), -(-ir.DataType(source.dtype).bits // _DIGIT)
    line, found = ib.buffer_ptr(source), ib.buffer_ptr(order)
    words = ib.allocate("uint64", (ir.int64(2), extent), name="words")
    counts = ib.allocate("int64", (ir.int64(passes), ir.int64(_DIGITS)), name="counts", scope="local")
    side, total, place = (ib.allocate("int64", (1,), name=n, scope="local") for n in ("side", "total", "place"))

    def digit(word: ir.PrimExpr, n: int) -> ir.PrimExpr:
        low = tir.shift_right(word, ir.const(32 + n * _DIGIT, "uint64"))
        return ir.cast("int64", tir.bitwise_and(low, ir.const(_DIGITS - 1, "uint64")))

    with ib.for_range(ir.int64(0), ir.int64(_DIGITS), "d") as d:
        for n in range(passes):
            counts[n, d] = ir.int64(0)
    with ib.for_range(ir.int64(0), extent, "j") as j:
        key = tir.shift_left(ir.cast("uint64", _key(line[at(j)], largest)), ir.const(32, "uint64"))
        words[0, j] = tir.bitwise_or(key, ir.cast("uint64", j))
        for n in range(passes):
            counts[n, digit(words[0, j], n)] += ir.int64(1)
    side[0] = ir.int64(0)
    for n in range(passes):
        with ib.if_scope(counts[n, digit(words[side[0], 0], n)] < extent):  # else all have the same digit
            total[0] = ir.int64(0)
            with ib.for_range(ir.int64(0), ir.int64(_DIGITS), "d") as d:
                place[0] = total[0]
                total[0] += counts[n, d]
                counts[n, d] = place[0]
            with ib.for_range(ir.int64(0), extent, "j") as j:
                place[0] = counts[n, digit(words[side[0], j], n)]
                counts[n, digit(words[side[0], j], n)] = place[0] + ir.int64(1)
                words[ir.int64(1) - side[0], place[0]] = words[side[0], j]
            side[0] = ir.int64(1) - side[0]
    with ib.for_range(ir.int64(0), extent, "j") as j:
        found[at(j)] = ir.cast("int64", tir.bitwise_and(words[side[0], j], ir.const((1 << 32) - 1, "uint64")))
    return ib.get()
