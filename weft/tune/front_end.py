"""What TVM's two older tuners, :mod:`weft.autotvm` and :mod:`weft.auto_scheduler`, have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from queue import Queue
from typing import Any, ClassVar, Self

from weft import error, ir, runtime, te
from weft.target import Target
from weft.tune.device import TrackerDevice
from weft.tune.measure import Built, Measurer, Timed, Worker


class MeasureErrorNo(IntEnum):
    """What became of a configuration or state that was measured."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class Timer:
    """Times kernels by themselves: one at a time on this machine, or as many at once as a tracker has devices for it.

    Parameters
    ----------
    devices : sequence of TrackerDevice, optional
        Where, instead of a process of this machine.
    """

    def __init__(self, devices: Sequence[TrackerDevice] = ()) -> None:
        self._idle: Queue[Worker | None] = Queue()
        self._measurers: dict[Worker | None, Measurer] = {}
        for device in devices or (None,):
            self._idle.put(device)
        self._count = self._idle.qsize()

    @classmethod
    def of_tracker(cls, key: str, host: str | None, port: int | None, priority: int, count: int | None) -> Timer:
        """Use `count` devices of a tracker, one by default; where it is may be said by the environment."""
        address = tracker_address(host, port)
        return cls([TrackerDevice(address, key, priority) for _ in range(max(1, count or 1))])

    def time(self, target: Any, built: Built, case: Any, **how: Any) -> Timed:
        """Time a kernel; see :meth:`Measurer.time`."""
        device = self._idle.get()
        try:
            if device not in self._measurers:
                self._measurers[device] = Measurer(Target(target), runtime.num_threads(), 1, runner=device)
            return self._measurers[device].time(built, case, **how)
        finally:
            self._idle.put(device)

    def map(self, function: Callable[..., Any], *rows: Iterable[Any]) -> list[Any]:
        """Call a function that times, as often at once as there are devices; others may have these afterwards."""
        try:
            if self._count == 1:
                return list(map(function, *rows))
            with ThreadPoolExecutor(self._count) as pool:
                return list(pool.map(function, *rows))
        finally:
            for device in filter(None, self._measurers):
                device.stop()

    def __del__(self) -> None:
        for measurer in getattr(self, "_measurers", {}).values():
            measurer.__exit__()


def tracker_address(host: str | None, port: int | None) -> str:
    """Where a tracker is: as given, else by TVM_TRACKER_HOST and TVM_TRACKER_PORT."""
    host, found = host or os.environ.get("TVM_TRACKER_HOST"), port or os.environ.get("TVM_TRACKER_PORT")
    if not host or not found:
        raise error.InvalidArgument(
            "where is the tracker?", expected="host and port, or TVM_TRACKER_HOST and TVM_TRACKER_PORT"
        )
    return f"{host}:{found}"


class _Current:
    def __get__(self, instance: object, owner: type[Dispatcher]) -> Any:
        return owner._open.current or owner._outermost


class Dispatcher:
    """What is asked for a workload's choices inside of its ``with`` block, in this thread alone.

    A kind of them derives with ``kind=`` its name, and says with :meth:`set_outermost` who answers outside of blocks.
    """

    current = _Current()
    _kind: ClassVar[type[Dispatcher]]
    _open: ClassVar[ir.Ambient[Any]]
    _outermost: ClassVar[Any] = None

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls._kind, cls._open = cls, ir.Ambient(kind)

    def __init__(self) -> None:
        self._old_ctx: Any = self._kind.current

    @classmethod
    def set_outermost(cls, dispatcher: Dispatcher) -> None:
        """Say who is asked where no block of this kind is open."""
        cls._kind._outermost = dispatcher

    def __enter__(self) -> Self:
        self._old_ctx = self._kind.current
        return self._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        self._open.leave(self)


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Make a workload's arguments hashable: tensors become ``("TENSOR", shape, dtype)``, lists tuples."""
    return tuple(_plain(a) for a in args)


def _plain(value: Any) -> Any:
    if isinstance(value, te.Tensor):
        return ("TENSOR", tuple(_plain(d) for d in value.shape), value.dtype)
    if isinstance(value, (ir.IntImm, ir.FloatImm, ir.StringImm)):
        return value.value
    if value is None or isinstance(value, (str, int, float, ir.Var)):
        return value
    if isinstance(value, Sequence):
        return tuple(_plain(v) for v in value)
    raise error.InvalidArgument(
        "a workload takes strings, numbers, tensors and lists of them", found=f"{type(value).__name__} {value!r}"
    )


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Make placeholders of what stands for tensors in :func:`serialize_args`'s result, or in its JSON."""
    return [te.placeholder(a[1], dtype=a[2]) if _is_tensor(a) else a for a in args]


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, (list, tuple)) and len(arg) == 3 and arg[0] == "TENSOR"
