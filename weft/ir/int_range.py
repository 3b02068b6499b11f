"""Which integers a type holds: constants of others wrap, and sizes of tensors are refused."""

from __future__ import annotations

import threading

from weft.error import InvalidArgument
from weft.ir.dtype import DataType

HALVES: dict[str, int] = {DataType("int32"): 1 << 31, DataType("int64"): 1 << 63}  # of nearly all constants
_sizes = threading.local()


class exact_sizes:
    """Inside, int64 constants that come out of range are refused: sizes of tensors are not counted modulo ``2**64``."""

    def __enter__(self) -> None:
        self.before, _sizes.exact = getattr(_sizes, "exact", False), True

    def __exit__(self, _kind: object, _e: BaseException | None, _trace: object) -> None:
        _sizes.exact = self.before


def wrap(value: int, dt: DataType) -> int:
    """Return what is left of a number in an integer type."""
    if dt.code == "uint":
        return value & ((1 << dt.bits) - 1)
    half = 1 << (dt.bits - 1)
    if -half <= value < half:
        return value
    exact = dt == "int64" and getattr(_sizes, "exact", False)
    return in_range(value) if exact else (value + half) % (2 * half) - half


def in_range(value: int) -> int:
    """Return a number of 64 bits; an InvalidArgument for one of more."""
    if -HALVES["int64"] <= value < HALVES["int64"]:
        return value
    raise InvalidArgument("a size or number has more than 64 bits", expected="at most 2**63 - 1", found=str(value))
