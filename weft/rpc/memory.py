"""Memory that a client holds: bytes on a device, seen as the tensors that the client says."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.rpc.codec import WireDevice, WireTensor, element_bytes
from weft.runtime import Device, Tensor, empty, from_dlpack

_view = tvm_ffi.get_global_func("weft.tensor_view")
_copy = tvm_ffi.get_global_func("weft.tensor_copy")


class Stream(NamedTuple):
    """A stream that a client made, and the driver's word for it."""

    device: WireDevice
    raw: int

    def of(self, device: WireDevice) -> int:
        """The driver's word for a stream of `device`."""
        if self.device != device:
            raise InvalidArgument("this stream is another device's", expected=str(device), found=str(self.device))
        return self.raw


class Memory:
    """Bytes, or the elements of a tensor that a function returned.

    Parameters
    ----------
    whole : tvm_ffi.Tensor
        All of it.
    counted : int
        Bytes that count against what the session may allocate.
    """

    __slots__ = ("_bytes", "_seen", "counted", "device", "size", "whole")

    def __init__(self, whole: Any, counted: int = 0) -> None:
        self.whole, self.counted = whole, counted
        self.device = tuple(whole.__dlpack_device__())
        self.size = element_bytes(str(whole.dtype), math.prod(whole.shape))
        self._bytes: memoryview | None = None
        self._seen: tuple[Any, Any] = (None, None)

    @staticmethod
    def allocate(size: int, device: Device) -> Memory:
        """Memory of `size` bytes."""
        return Memory(empty((size,), "uint8", device).handle, size)

    @staticmethod
    def of(tensor: Any) -> Memory:
        """The memory of a tensor; elements that do not lie side by side are copied."""
        if not tensor.is_contiguous():
            tensor = from_dlpack(np.ascontiguousarray(Tensor(tensor).numpy())).handle
        return Memory(tensor)

    @staticmethod
    def copy(source: Any, target: Any) -> None:
        """Copy elements between tensors of this machine."""
        _copy(source, target)

    def view(self, wire: WireTensor) -> Any:
        """The tensor that a client says lies here.

        Raises
        ------
        InvalidArgument
            When it does not fit.
        """
        shape, dtype, offset = wire.shape, wire.dtype, wire.byte_offset
        key = (shape, dtype, offset)
        if self._seen[0] != key:
            if wire.device != self.device:
                raise InvalidArgument(
                    "a tensor lies on another device",
                    expected=str(Device(*self.device)),
                    found=str(Device(*wire.device)),
                )
            size = element_bytes(dtype, math.prod(shape))
            base = self.whole if offset == 0 and size == self.size else self._part(offset, size)
            self._seen = (key, _view(base, shape, dtype, 0))
        return self._seen[1]

    def _part(self, offset: int, size: int) -> Any:
        self._check(offset, size)
        if self.device[0] != Device.kDLCPU:
            raise InvalidArgument("a part of memory on this device is no tensor", found=str(Device(*self.device)))
        return tvm_ffi.from_dlpack(np.frombuffer(self._all(), np.uint8)[offset : offset + size])

    def _check(self, offset: int, size: int) -> None:
        if not 0 <= offset <= offset + size <= self.size:
            raise InvalidArgument(
                "a tensor reaches beyond its memory", expected=f"{self.size} bytes", found=f"{size} at {offset}"
            )

    def _all(self) -> memoryview:
        """The bytes, of memory on the CPU."""
        if self._bytes is None:
            flat = _view(self.whole, (self.size,), "uint8", 0)
            self._bytes = np.from_dlpack(flat).data.cast("B") if self.size else memoryview(bytearray())
        return self._bytes

    def readable(self, wire: WireTensor, size: int) -> memoryview:
        """The first `size` bytes of a tensor."""
        self._check(wire.byte_offset, size)
        if self.device[0] == Device.kDLCPU:
            return self._all()[wire.byte_offset : wire.byte_offset + size]
        here = empty((self.size,), "uint8")
        _copy(_view(self.whole, (self.size,), "uint8", 0), here.handle)
        return here.numpy().data[wire.byte_offset : wire.byte_offset + size]

    @contextmanager
    def writable(self, wire: WireTensor, size: int) -> Generator[memoryview]:
        """The first `size` bytes of a tensor, to be written inside the ``with`` block."""
        self._check(wire.byte_offset, size)
        start, end = wire.byte_offset, wire.byte_offset + size
        if self.device[0] == Device.kDLCPU:
            yield self._all()[start:end]
            return
        here, flat = empty((self.size,), "uint8"), _view(self.whole, (self.size,), "uint8", 0)
        if size != self.size:
            _copy(flat, here.handle)
        yield here.numpy().data[start:end]
        _copy(here.handle, flat)
