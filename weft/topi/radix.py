"""Sorting lines of narrow numbers by their digits: stable, without a branch that depends on a value.

A word holds an element's key, whose order as an unsigned number is that of the elements, above its position. Passes
over digits of eight bits, the lowest first, bring the words from one half of the scratch memory to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import tir
from weft.ir import DataType, PrimExpr, cast, const, int64, select
from weft.tir import bitwise_and, bitwise_not, bitwise_or, reinterpret, shift_left, shift_right

SHORT = 64
"""Shorter lines are not worth clearing the counts of all digits for."""

_DIGIT, _DIGITS = 8, 256


def has_key(dtype: str) -> bool:
    """Whether elements have keys of at most 32 bits."""
    kind = DataType(dtype)
    return kind.lanes == 1 and kind.bits in (8, 16, 32) and not str(dtype).startswith(("float8", "float4", "float6"))


def _key(x: PrimExpr, largest: bool) -> PrimExpr:
    """Return a number in uint32 that grows as elements do, or falls: equal for equal ones, NaN is greatest."""
    kind, bits = DataType(x.dtype), DataType(x.dtype).bits
    unsigned, sign, every = f"uint{bits}", const(1 << (bits - 1), "uint32"), const((1 << bits) - 1, "uint32")
    key = cast("uint32", x if str(x.dtype) in ("bool", unsigned) else reinterpret(unsigned, x))
    if kind.is_float:
        falls = bitwise_and(key, sign) > const(0, "uint32")
        key = select(falls, bitwise_and(bitwise_not(key), every), bitwise_or(key, sign))
        key = select(x.equal(const(0, x.dtype)), sign, select(x != x, every, key))  # both zeros are one
    elif str(x.dtype) not in ("bool", unsigned):
        key = tir.bitwise_xor(key, sign)
    return bitwise_and(bitwise_not(key), every) if largest else key


def radix_line(
    source: tir.Buffer, order: tir.Buffer, extent: PrimExpr, at: Callable[[Any], tuple[Any, ...]], largest: bool
) -> tir.Stmt:
    """Write the statement that puts the positions of a line, of fewer than 2^32 elements, in sorted order."""
    ib, passes = tir.ir_builder.create(), -(-DataType(source.dtype).bits // _DIGIT)
    line, found = ib.buffer_ptr(source), ib.buffer_ptr(order)
    words = ib.allocate("uint64", (int64(2), extent), name="words")
    counts = ib.allocate("int64", (int64(passes), int64(_DIGITS)), name="counts", scope="local")
    side, total, place = (ib.allocate("int64", (1,), name=n, scope="local") for n in ("side", "total", "place"))

    def digit(word: PrimExpr, n: int) -> PrimExpr:
        low = shift_right(word, const(32 + n * _DIGIT, "uint64"))
        return cast("int64", bitwise_and(low, const(_DIGITS - 1, "uint64")))

    with ib.for_range(int64(0), int64(_DIGITS), "d") as d:
        for n in range(passes):
            counts[n, d] = int64(0)
    with ib.for_range(int64(0), extent, "j") as j:
        key = shift_left(cast("uint64", _key(line[at(j)], largest)), const(32, "uint64"))
        words[0, j] = bitwise_or(key, cast("uint64", j))
        for n in range(passes):
            counts[n, digit(words[0, j], n)] += int64(1)
    side[0] = int64(0)
    for n in range(passes):
        with ib.if_scope(counts[n, digit(words[side[0], 0], n)] < extent):  # else all have the same digit
            total[0] = int64(0)
            with ib.for_range(int64(0), int64(_DIGITS), "d") as d:
                place[0] = total[0]
                total[0] += counts[n, d]
                counts[n, d] = place[0]
            with ib.for_range(int64(0), extent, "j") as j:
                place[0] = counts[n, digit(words[side[0], j], n)]
                counts[n, digit(words[side[0], j], n)] = place[0] + int64(1)
                words[int64(1) - side[0], place[0]] = words[side[0], j]
            side[0] = int64(1) - side[0]
    with ib.for_range(int64(0), extent, "j") as j:
        found[at(j)] = cast("int64", bitwise_and(words[side[0], j], const((1 << 32) - 1, "uint64")))
    return ib.get()
