"""Random 64-bit words, and generators that are split."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.ir import DataType, Expr, TensorType, TupleType, as_int, int64
from weft.op.attributes import integers
from weft.op.infer import tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_same_shape
from weft.topi.threefry import PARITY, ROTATIONS, STATE, threefry_generate, threefry_split

_FULL, _HIGH = np.uint64((1 << 64) - 1), np.uint64(1 << 63)


def encrypted(key: list[Any], counter: list[Any]) -> list[Any]:
    """Return the four words of Threefry 4x64 with 20 rounds, of arrays of keys and counters."""
    schedule = [*key, np.bitwise_xor.reduce(np.stack(key)) ^ np.uint64(PARITY)]
    x = [c + k for c, k in zip(counter, key, strict=True)]
    for n in range(20):
        for a, b, bits in zip((0, 2), (1, 3) if n % 2 == 0 else (3, 1), ROTATIONS[n % 8], strict=True):
            x[a] = x[a] + x[b]
            x[b] = (x[b] << np.uint64(bits) | x[b] >> np.uint64(64 - bits)) ^ x[a]
        if n % 4 == 3:
            x = [x[i] + schedule[(n // 4 + 1 + i) % 5] for i in range(4)]
            x[3] = x[3] + np.uint64(n // 4 + 1)
    return x


def _generator(op: str, gen: Expr) -> TensorType:
    ty = tensor_arg(op, "gen", gen, ndim=1)
    if str(ty.dtype) != "uint64":
        raise InvalidArgument(f"{op}: a generator is uint64", found=str(ty.dtype), where=gen.span)
    demand_same_shape(f"{op}: a generator has {STATE} words", ty.shape, (int64(STATE),), gen.span)
    return TensorType((int64(STATE),), DataType("uint64"), 1)


def _rekeyed(gen: Any, counter: list[Any], mask: Any) -> Any:
    out = np.zeros(STATE, np.uint64)
    out[:4], out[8] = [int(w) for w in encrypted([w.reshape(()) for w in gen[:4]], counter)], mask
    return out


def _next_bit(gen: Any, out: Any) -> Any:
    one = np.uint64(1)
    out[8], out[9] = gen[8] >> one, gen[9] >> one | gen[8] << np.uint64(63)
    return out


def _split_ref(gen: Any) -> Any:
    if not gen[8] and not gen[9]:
        left = _rekeyed(gen, [w.reshape(()) for w in gen[4:8]], np.uint64(1 << 62))
        right = left.copy()
        right[4] = _HIGH
        return left, right
    left, right = _next_bit(gen, gen.copy()), _next_bit(gen, gen.copy())
    right[4:6] |= gen[8:]
    return left, right


def _generate_ref(gen: Any, *, out_shape: Any) -> Any:
    shape = tuple(int(d) for d in out_shape)
    count = int(np.prod(shape, dtype=np.int64))
    if gen[7] < _FULL - np.uint64(count):
        new = gen.copy()
    elif not gen[8] and not gen[9]:
        new = _rekeyed(gen, [gen[4].reshape(()), gen[5].reshape(()), _FULL.reshape(()), _FULL.reshape(())], _HIGH)
    else:
        new = _next_bit(gen, np.concatenate([gen[:4], gen[4:6] | gen[8:], np.zeros(4, np.uint64)]))
    base = np.arange(0, count, 4, dtype=np.uint64)
    spread = [np.broadcast_to(w, base.shape) for w in new[:7]]
    words = np.stack(encrypted(spread[:4], [*spread[4:], new[7] + base]), -1).reshape(-1)[:count]
    new[6], new[7] = 0, new[7] + np.uint64(4 * len(base))
    return new, words.reshape(shape)


def _generate_infer(gen: Expr, *, out_shape: Any) -> TupleType:
    sizes = [as_int(d) for d in out_shape]
    if any(d is None or d < 0 for d in sizes):
        raise InvalidArgument("threefry_generate: how many words must be known", found=str(out_shape), where=gen.span)
    shape = tuple(int64(d) for d in sizes)  # type: ignore[arg-type]
    return TupleType((_generator("threefry_generate", gen), TensorType(shape, DataType("uint64"), len(shape))))


declare(
    "threefry_split",
    "gen",
    {},
    infer=lambda gen: TupleType((_generator("threefry_split", gen),) * 2),
    lower=threefry_split,
    reference=_split_ref,
    doc="Two generators (10,) uint64 of one, which is used up: key, counter and path as topi.threefry says.",
)
declare(
    "threefry_generate",
    "gen",
    {"out_shape": integers()},
    infer=_generate_infer,
    lower=threefry_generate,
    reference=_generate_ref,
    doc="The generator for what is drawn next, and words (uint64) of Threefry 4x64.",
)
