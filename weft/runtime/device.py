"""Devices: where a tensor lies."""

from __future__ import annotations

from typing import Any

import tvm_ffi

from weft.error import InvalidArgument

__all__ = ["Device", "cpu", "cuda", "device", "opencl"]

_CODES = {"llvm": 1, "cpu": 1, "c": 1, "cuda": 2, "nvptx": 2, "cuda_host": 3, "opencl": 4, "vulkan": 7, "metal": 8,
          "vpi": 9, "rocm": 10, "rocm_host": 11, "ext_dev": 12, "cuda_managed": 13, "oneapi": 14, "webgpu": 15,
          "hexagon": 16, "maia": 17, "aocl": 32, "aocl_sw_emu": 32, "sdaccel": 33}  # fmt: skip
_NAMES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm",
          11: "rocm_host", 12: "ext_dev", 13: "cuda_managed", 14: "oneapi", 15: "webgpu", 16: "hexagon",
          17: "maia", 32: "aocl", 33: "sdaccel"}  # fmt: skip


def _cuda(name: str) -> Any:
    """A function of the native CUDA device."""
    return tvm_ffi.get_global_func(f"weft.cuda_{name}")


class Device:
    """A device: a kind and an index.

    Parameters
    ----------
    device_type : str, int or Device
        ``"cpu"``, ``"cuda:1"``, or DLPack's number of the kind.
    device_id : int
        Which device of that kind.
    """

    __slots__ = ("device_id", "device_type")

    kDLCPU = 1
    kDLCUDA = 2

    def __init__(self, device_type: str | int | Any, device_id: int = 0) -> None:
        if isinstance(device_type, str):
            kind, _, index = device_type.partition(":")
            if kind not in _CODES or (index and not index.isdigit()):
                raise InvalidArgument(f"unknown device '{device_type}'", expected="'cpu', 'cuda', 'cuda:1', ...")
            self.device_type, self.device_id = _CODES[kind], int(index) if index else int(device_id)
        elif isinstance(device_type, tvm_ffi.Device):
            self.device_type, self.device_id = int(device_type.dlpack_device_type()), device_type.index
        elif isinstance(device_type, int):
            self.device_type, self.device_id = int(device_type), int(device_id)
        else:
            pair: tuple[int, int] = device_type.__dlpack_device__()
            self.device_type, self.device_id = int(pair[0]), int(pair[1])

    @property
    def index(self) -> int:
        """The index, under its other name."""
        return self.device_id

    @property
    def type(self) -> str:
        """Name of the kind, ``"cpu"``."""
        return _NAMES.get(self.device_type, f"device{self.device_type}")

    @property
    def exist(self) -> bool:
        """Whether the runtime can use the device."""
        if self.device_type == Device.kDLCUDA:
            return 0 <= self.device_id < _cuda("count")()
        count = self._packed("count")
        if count is not None:
            return 0 <= self.device_id < count()
        return self.device_type == Device.kDLCPU and self.device_id == 0

    def allocate(self, shape: tuple[int, ...], dtype: str, mem_scope: str | None) -> Any:
        """Make a tensor where the native runtime does not reach, on other machines; None where it does."""
        return None

    def sync(self, stream: int | None = None) -> None:
        """Wait until all work on the device, or on one of its streams, is done; the CPU has none outstanding."""
        if self.device_type == Device.kDLCUDA:
            if stream is None:
                _cuda("sync")(self.device_id)
            else:
                _cuda("stream_sync")(self.device_id, stream)
        elif (wait := self._packed("sync")) is not None:
            wait(self.device_id)

    def _packed(self, what: str) -> Any:
        """A function of a device that a library outside of the runtime brings; None where there is none such."""
        return tvm_ffi.get_global_func(f"weft.device.{self.type}.{what}", allow_missing=True)

    def sync_stream_from_to(self, event_src: int, event_dst: int) -> None:
        """Let later work on the stream `event_dst` wait for what the stream `event_src` has to do now."""
        _cuda("stream_order")(self._streams(), event_src, event_dst)

    def _attribute(self, number: int) -> int | None:
        """One of CUDA's device attributes; None on other devices, and where there is no such GPU."""
        return _cuda("attribute")(self.device_id, number) if self._gpu() else None

    @property
    def max_threads_per_block(self) -> int | None:
        """Most threads of a block."""
        return self._attribute(1)

    @property
    def warp_size(self) -> int | None:
        """Threads that run in step."""
        return self._attribute(10)

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """Bytes of shared memory that a block may use."""
        return self._attribute(8)

    @property
    def max_clock_rate(self) -> int | None:
        """Highest clock, in kHz."""
        return self._attribute(13)

    @property
    def multi_processor_count(self) -> int | None:
        """Number of multiprocessors."""
        return self._attribute(16)

    @property
    def compute_version(self) -> str | None:
        """Compute capability, ``"9.0"``."""
        major, minor = self._attribute(75), self._attribute(76)
        return None if major is None else f"{major}.{minor}"

    @property
    def device_name(self) -> str | None:
        """The maker's name of the GPU."""
        return str(_cuda("name")(self.device_id)) if self._gpu() else None

    @property
    def total_global_memory(self) -> int | None:
        """Bytes of device memory."""
        return _cuda("total_memory")(self.device_id) if self._gpu() else None

    def _gpu(self) -> bool:
        return self.device_type == Device.kDLCUDA and self.exist

    def create_raw_stream(self) -> int:
        """Make a stream: work on it is done in order; returns its handle."""
        return _cuda("stream_create")(self._streams())

    def free_raw_stream(self, stream: int) -> None:
        """Destroy a stream of :meth:`create_raw_stream`."""
        _cuda("stream_free")(self._streams(), stream)

    def set_raw_stream(self, stream: int) -> None:
        """Make a stream the one that copies and kernels of this thread on this device use; 0 is the default."""
        _cuda("stream_set")(self._streams(), stream)

    def _streams(self) -> int:
        if self.device_type != Device.kDLCUDA:
            raise InvalidArgument(f"{self} has no streams", expected="a CUDA device", found=str(self))
        return self.device_id

    def dlpack_device_type(self) -> int:
        """DLPack's number of the kind of device."""
        return self.device_type

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's pair of numbers."""
        return (self.device_type, self.device_id)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tvm_ffi.Device):
            return (self.device_type, self.device_id) == (int(other.dlpack_device_type()), other.index)
        return isinstance(other, Device) and self.__dlpack_device__() == other.__dlpack_device__()

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.type}({self.device_id})"

    def __str__(self) -> str:
        return f"{self.type}:{self.device_id}"


def device(dev: str | int | Device = "cpu", index: int = 0) -> Device:
    """Make a device from ``"cpu"``, ``"cuda:1"``, a kind and index, or another device."""
    return dev if isinstance(dev, Device) else Device(dev, index)


def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device(Device.kDLCPU, index)


def cuda(index: int = 0) -> Device:
    """A CUDA GPU."""
    return Device(Device.kDLCUDA, index)


def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", index)
