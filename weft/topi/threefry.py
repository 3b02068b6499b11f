"""Random numbers that are a function of a counter and a key: Threefry 4x64 with 20 rounds.

A generator is ten 64-bit words: four of key, four of counter, two of mask. The first two words of the counter are a
path, one bit for each split since the key was made, and the mask is the bit of the path that the next split decides; a
mask of zero says that the path is full, and a new key is made of key and path. The last word of the counter counts the
numbers that were drawn.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011; K.
Claessen and M. H. Palka, Splittable Pseudorandom Number Generators using Cryptographic Hashing, 2013.
"""

from __future__ import annotations

import math
from typing import Any

from weft import error, ir, te, tir
from weft.topi.manipulate import view
from weft.topi.shape import product
from weft.topi.typing import Buffers, IRBuilder, Shape
from weft.topi.written import written

STATE = 10
"""The words of a generator."""

_WORDS, _ROUNDS = 4, 20
PARITY = 0x1BD11BDAA9FC1A22
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_U64 = "uint64"


def _word(value: int) -> Any:
    return ir.const(value, _U64)


def encrypted(ib: tir.ir_builder.IRBuilder, key: list[Any], counter: list[Any]) -> Any:
    """Write the rounds; the result is a local buffer of four words."""
    schedule = ib.allocate(_U64, (_WORDS + 1,), name="schedule", scope="local")
    x = ib.allocate(_U64, (_WORDS,), name="words", scope="local")
    schedule[_WORDS] = _word(PARITY)
    for i in range(_WORDS):
        schedule[i] = key[i]
        schedule[_WORDS] = tir.bitwise_xor(schedule[_WORDS], schedule[i])
    for i in range(_WORDS):
        x[i] = counter[i] + schedule[i]
    for n in range(_ROUNDS):
        left = (0, 2)
        right = (1, 3) if n % 2 == 0 else (3, 1)
        for a, b, bits in zip(left, right, ROTATIONS[n % len(ROTATIONS)], strict=True):
            x[a] = x[a] + x[b]
            rotated = tir.bitwise_or(tir.shift_left(x[b], _word(bits)), tir.shift_right(x[b], _word(64 - bits)))
            x[b] = tir.bitwise_xor(rotated, x[a])
        if n % 4 == 3:
            step = n // 4 + 1
            for i in range(_WORDS):
                x[i] = x[i] + schedule[(step + i) % (_WORDS + 1)]
            x[_WORDS - 1] = x[_WORDS - 1] + _word(step)
    return x


def _shift_mask(ib: IRBuilder, high: Any, low: Any, out: Any) -> None:
    """Move the mask, one bit of two words, to the next bit of the path."""
    out[8] = tir.shift_right(high, _word(1))
    out[9] = tir.bitwise_or(tir.shift_right(low, _word(1)), tir.shift_left(high, _word(63)))


def _rekeyed(ib: IRBuilder, key: list[Any], counter: list[Any], out: Any, mask: int) -> None:
    """Write a generator with a new key, and nothing of its path decided but what is left out of `mask`."""
    fresh = encrypted(ib, key, counter)
    for i in range(_WORDS):
        out[i], out[_WORDS + i] = fresh[i], _word(0)
    out[8], out[9] = _word(mask), _word(0)


def _full(gen: Any) -> Any:
    return tir.all(gen[8].equal(_word(0)), gen[9].equal(_word(0)))


def threefry_split(gen: te.Tensor) -> Any:
    """Make two generators of one, which is used up by that; their numbers have nothing to do with each other's.

    Returns
    -------
    list of Tensor
        Two generators, (10,) uint64 each.
    """

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        old, left, right = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.if_scope(_full(old)):
            _rekeyed(ib, [old[i] for i in range(4)], [old[4 + i] for i in range(4)], left, 1 << 62)
            for i in range(STATE):
                right[i] = left[i] if i != 4 else _word(1 << 63)
        with ib.else_scope():
            for i in range(8):
                left[i] = old[i]
                right[i] = tir.bitwise_or(old[i], old[i + 4]) if i in (4, 5) else old[i]
            _shift_mask(ib, old[8], old[9], left)
            _shift_mask(ib, old[8], old[9], right)

    return written([(STATE,), (STATE,)], [gen], body, name="threefry_split", dtype=[_U64, _U64])


def threefry_generate(gen: te.Tensor, out_shape: Shape) -> Any:
    """Draw 64-bit words.

    Returns
    -------
    list of Tensor
        The generator for what is drawn next, (10,) uint64, and the words, uint64.
    """
    shape = tuple(ir.as_expr(d) for d in out_shape)
    count = ir.as_int(product(shape))
    if count is None:
        raise error.InvalidArgument("threefry_generate: how many numbers must be known", found=str(out_shape))
    blocks = math.ceil(count / _WORDS)

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        old, new, words = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.if_scope(old[7] < _word((1 << 64) - 1 - count)):
            for i in range(STATE):
                new[i] = old[i]
        with ib.else_scope():
            _next_path(ib, old, new)
        with ib.for_range(ir.int64(0), ir.int64(blocks), name="block", kind="parallel") as block:
            base = ir.cast(_U64, block) * _word(_WORDS)
            drawn = encrypted(ib, [new[i] for i in range(4)], [new[4], new[5], new[6], new[7] + base])
            for i in range(_WORDS):
                with ib.if_scope(block * ir.int64(_WORDS) + ir.int64(i) < ir.int64(count)):
                    words[block * ir.int64(_WORDS) + ir.int64(i)] = drawn[i]
        new[6], new[7] = _word(0), new[7] + _word(blocks * _WORDS)

    found = written([(STATE,), (count,)], [gen], body, name="threefry_generate", dtype=[_U64, _U64])
    return [found[0], view(found[1], shape)]


def _next_path(ib: IRBuilder, old: Any, new: Any) -> None:
    """The generator that goes on when the counter is exhausted: another path, or another key where the path is full."""
    with ib.if_scope(_full(old)):
        ones = _word((1 << 64) - 1)
        _rekeyed(ib, [old[i] for i in range(4)], [old[4], old[5], ones, ones], new, 1 << 63)
    with ib.else_scope():
        for i in range(_WORDS):
            new[i] = old[i]
        new[4], new[5] = tir.bitwise_or(old[4], old[8]), tir.bitwise_or(old[5], old[9])
        new[6], new[7] = _word(0), _word(0)
        _shift_mask(ib, old[8], old[9], new)
