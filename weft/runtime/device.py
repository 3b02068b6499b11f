"""Devices: where a tensor lies."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import tvm_ffi

from weft.error import InvalidArgument
from weft.spelling import also_called

_CODES = {
    "llvm": 1,
    "cpu": 1,
    "c": 1,
    "cuda": 2,
    "nvptx": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "rocm_host": 11,
    "ext_dev": 12,
    "cuda_managed": 13,
    "oneapi": 14,
    "webgpu": 15,
    "hexagon": 16,
    "maia": 17,
    "aocl": 32,
    "aocl_sw_emu": 32,
    "sdaccel": 33,
}
_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    11: "rocm_host",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
    32: "aocl",
    33: "sdaccel",
}


def _native(name: str) -> Any:
    """A function of the native devices; the type and number of one come first."""
    return tvm_ffi.get_global_func(f"weft.device_{name}")


def _fact(what: str, doc: str) -> Any:
    """A property that a device says of itself, as :meth:`Device._attribute` finds it."""
    return property(lambda device: device._attribute(what), doc=doc)


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
            kind, _, index = (device_type.split() or [""])[0].partition(":")  # a target's text begins with its kind
            if kind not in _CODES or (index and not index.isdigit()):
                raise InvalidArgument(f"unknown device '{device_type}'", expected="'cpu', 'cuda', 'cuda:1', ...")
            self.device_type, self.device_id = _CODES[kind], int(index) if index else int(device_id)
        elif isinstance(device_type, tvm_ffi.Device):
            self.device_type, self.device_id = int(device_type.dlpack_device_type()), device_type.index
        elif isinstance(device_type, int):
            self.device_type, self.device_id = int(device_type), int(device_id)
        elif hasattr(device_type, "__dlpack_device__"):
            pair: tuple[int, int] = device_type.__dlpack_device__()
            self.device_type, self.device_id = int(pair[0]), int(pair[1])
        else:
            raise InvalidArgument("no device", expected="'cpu', 'cuda', 'cuda:1', ...", found=repr(device_type))

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
        if self.device_type == Device.kDLCPU:
            return self.device_id == 0
        return 0 <= self.device_id < _native("count")(self.device_type)

    def allocate(self, shape: tuple[int, ...], dtype: str, mem_scope: str | None) -> Any:
        """Make a tensor where the native runtime does not reach, on other machines; None where it does."""
        return None

    def sync(self, stream: int | None = None) -> None:
        """Wait until all work on the device, or on one of its streams, is done; the CPU has none outstanding."""
        if self.device_type == Device.kDLCPU:
            return
        if stream is None:
            _native("sync")(self.device_type, self.device_id)
        else:
            _native("stream_sync")(self.device_type, self.device_id, stream)

    def sync_stream_from_to(self, event_src: int, event_dst: int) -> None:
        """Let later work on the stream `event_dst` wait for what the stream `event_src` has to do now."""
        _native("stream_order")(*self._streams(), event_src, event_dst)

    def _attribute(self, what: str) -> Any:
        """What a device says of itself; None on the CPU, where there is no such device, and where it does not say."""
        there = self.device_type != Device.kDLCPU and self.exist
        return _native("attribute")(self.device_type, self.device_id, what) if there else None

    max_threads_per_block: int | None = _fact("max_threads_per_block", "Most threads of a block.")
    warp_size: int | None = _fact("warp_size", "Threads that run in step.")
    max_shared_memory_per_block: int | None = _fact(
        "max_shared_memory_per_block", "Bytes of shared memory for a block."
    )
    max_clock_rate: int | None = _fact("max_clock_rate", "Highest clock, in kHz.")
    multi_processor_count: int | None = _fact("multi_processor_count", "Number of multiprocessors.")
    compute_version: str | None = _fact("compute_version", 'Compute capability of a CUDA device, ``"9.0"``.')
    device_name: str | None = _fact("device_name", "The maker's name of the device.")
    total_global_memory: int | None = _fact("total_global_memory", "Bytes of device memory.")
    api_version: str | None = _fact("api_version", "The version of OpenCL or Vulkan; CUDA does not say.")
    driver_version: str | None = _fact("driver_version", "The version of an OpenCL or Vulkan device's driver.")
    extensions: str | None = _fact("extensions", "OpenCL's extensions, names with spaces between them.")

    def create_raw_stream(self) -> int:
        """Make a stream: work on it is done in order; returns its handle."""
        return _native("stream_create")(*self._streams())

    def free_raw_stream(self, stream: int) -> None:
        """Destroy a stream of :meth:`create_raw_stream`."""
        _native("stream_free")(*self._streams(), stream)

    def set_raw_stream(self, stream: int) -> None:
        """Make a stream the one that copies and kernels of this thread on this device use; 0 is the default."""
        _native("stream_set")(*self._streams(), stream)

    def _streams(self) -> tuple[int, int]:
        if self.device_type == Device.kDLCPU:
            raise InvalidArgument(f"{self} has no streams", expected="a device such as cuda:0", found=str(self))
        return self.device_type, self.device_id

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


DeviceLike = str | int | Device
"""What becomes a device: ``"cuda:1"``, a kind by number, or one."""


@also_called(dev_type="dev", dev_id="index")
def device(dev: str | int | Device = "cpu", index: int = 0) -> Device:
    """Make a device from ``"cpu"``, ``"cuda:1"``, a kind and index, or another device."""
    return dev if isinstance(dev, Device) else Device(dev, index)


@also_called(dev_id="index")
def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device(Device.kDLCPU, index)


@also_called(dev_id="index")
def cuda(index: int = 0) -> Device:
    """A CUDA GPU."""
    return Device(Device.kDLCUDA, index)


@also_called(dev_id="index")
def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", index)


@also_called(dev_id="index")
def vulkan(index: int = 0) -> Device:
    """A Vulkan device."""
    return Device("vulkan", index)


def enabled(target: str) -> bool:
    """Whether code for a target's kind can run here: ``"cpu"``, ``"llvm"``; ``"cuda"`` where there is such a device."""
    kind = target.split()[0]
    if _CODES.get(kind, 1) != _CODES["cpu"]:
        return bool(Device(kind).exist)
    generators = (tvm_ffi.get_global_func(f"{p}target.build.{kind}", allow_missing=True) for p in ("weft.", ""))
    return (
        kind == "cpu"
        or any(g is not None for g in generators)
        or (kind == "llvm" and find_spec("llvmlite") is not None)
    )
