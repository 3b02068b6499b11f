"""The cache of keys or values of an attention layer: rows that programs append to and read back.

Programs reach it by the packed functions ``vm.builtin.attention_kv_cache_*``, whose names and arguments are Apache
TVM's; the package registers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.runtime.device import Device
from weft.runtime.tensor import Tensor, constant_view, empty


class AttentionKVCache:
    """Rows of one shape and data type, kept in memory that at least doubles when it is full.

    Parameters
    ----------
    like : Tensor
        Gives data type and device, and the first rows.
    reserve : sequence of int
        The shape to begin with, (rows, ...).
    fill_count : int
        How many rows of `like` to begin with.
    """

    def __init__(self, like: Tensor, reserve: Sequence[int], fill_count: int = 0) -> None:
        if like.device.device_type != Device.kDLCPU:
            raise InvalidArgument("a cache of keys and values lies on the CPU", found=str(like.device))
        if tuple(like.shape[1:]) != tuple(reserve[1:]) or not 0 <= fill_count <= min(like.shape[0], reserve[0]):
            raise ShapeMismatch(
                "the first rows do not fit the cache",
                expected=f"rows of {tuple(reserve[1:])}, at least {fill_count} and at most {reserve[0]}",
                found=str(like.shape),
            )
        self.data = empty(tuple(reserve), str(like.dtype), like.device)
        self.fill_count = self.position = 0
        if fill_count:
            self._write(like.numpy()[:fill_count])

    def _write(self, rows: Any) -> None:
        total = self.fill_count + len(rows)
        if total > self.data.shape[0]:
            grown = empty((max(total, 2 * self.data.shape[0]), *self.data.shape[1:]), str(self.data.dtype))
            grown.numpy()[: self.fill_count] = self.data.numpy()[: self.fill_count]
            self.data = grown
        self.data.numpy()[self.fill_count : total] = rows
        self.fill_count = self.position = total

    def append(self, value: Tensor) -> None:
        """Add rows, (n, ...), or one row.

        Raises
        ------
        ShapeMismatch, DTypeMismatch
            When they are not those of the cache.
        """
        row = tuple(self.data.shape[1:])
        if row not in (tuple(value.shape), tuple(value.shape[1:])):
            raise ShapeMismatch(
                "the rows are not those of the cache",
                expected="(n, " + ", ".join(map(str, self.data.shape[1:])) + ")",
                found=str(value.shape),
            )
        if str(value.dtype) != str(self.data.dtype):
            raise DTypeMismatch(
                "the rows are not those of the cache", expected=str(self.data.dtype), found=str(value.dtype)
            )
        self._write(value.numpy().reshape(-1, *row) if tuple(value.shape) == row else value.numpy())

    def override(self, value: Tensor, window: int, sinks: int = 0) -> None:
        """Write rows, (n, ...), over the oldest of a window's rows; the first `sinks` rows ever stay.

        Raises
        ------
        ShapeMismatch
            When the window is no part of the cache, or the rows are not the cache's.
        """
        row = tuple(self.data.shape[1:])
        part = 0 <= sinks < window <= self.data.shape[0]
        if not part or tuple(value.shape[1:]) != row or value.shape[0] > window - sinks:
            raise ShapeMismatch(
                "the rows do not fit the window",
                expected=f"up to {window - sinks} rows of {row}, in a window of up to {self.data.shape[0]}",
                found=f"{value.shape} in a window of {window}, {sinks} of which stay",
            )
        data, rows = self.data.numpy(), value.numpy()
        for new in rows:
            if self.position >= window:
                self.position = sinks
            data[self.position] = new
            self.position += 1
        self.fill_count = min(self.fill_count + len(rows), window)

    def view(self, shape: Sequence[int]) -> Tensor:
        """Return the first rows, of which `shape` says how many; the memory is the cache's.

        Raises
        ------
        ShapeMismatch
            When the cache has fewer rows, or others.
        """
        if tuple(shape[1:]) != tuple(self.data.shape[1:]) or not 0 <= shape[0] <= self.fill_count:
            raise ShapeMismatch(
                "the cache has no such rows",
                expected=f"at most {(self.fill_count, *self.data.shape[1:])}",
                found=str(tuple(shape)),
            )
        return constant_view(self.data.numpy()[: shape[0]])


def create(like: Tensor, reserve: Sequence[int], fill_count: int) -> AttentionKVCache:
    """Make a cache."""
    return AttentionKVCache(like, tuple(reserve), fill_count)


def append(cache: AttentionKVCache, value: Tensor) -> AttentionKVCache:
    """Append rows and return the cache."""
    _checked(cache).append(value)
    return cache


def window_override(cache: AttentionKVCache, value: Tensor, window: int) -> AttentionKVCache:
    """Write rows over the oldest of the last `window` ones and return the cache."""
    _checked(cache).override(value, window)
    return cache


def window_override_with_sinks(cache: AttentionKVCache, value: Tensor, window: int, sinks: int) -> AttentionKVCache:
    """Do so but for the first `sinks` rows, which stay."""
    _checked(cache).override(value, window, sinks)
    return cache


def view(cache: AttentionKVCache, shape: Sequence[int]) -> Tensor:
    """Return the first rows; see :meth:`AttentionKVCache.view`."""
    return _checked(cache).view(tuple(shape))


def _checked(cache: Any) -> AttentionKVCache:
    if not isinstance(cache, AttentionKVCache):
        raise InvalidArgument(
            "this is no cache of keys and values",
            found=type(cache).__name__,
            help="pass what '_initialize_effect' returned, and afterwards what each call returned",
        )
    return cache
