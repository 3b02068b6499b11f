"""The serving side of one session: what a client keeps here, and the answer to each packet.

A handle is a number that stands for something in this session's table, so a client can only name what it was given.
`Service.answer` turns a packet into the answer, and `Service.run` does so until the client closes; a client whose
session is to be served elsewhere (``rpc.Connect`` as its constructor) is connected through, packet by packet.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import tvm_ffi

from weft import registry, runtime
from weft.error import InvalidArgument, OutOfMemory, RPCError
from weft.ffi import convert_argument, get_global_func
from weft.rpc import codec
from weft.rpc.channel import MAX_MESSAGE_BYTES, Channel, Packet
from weft.rpc.codec import (
    CALLBACK,
    DEVICE_ATTRIBUTES,
    Opaque,
    RPCCode,
    TypeIndex,
    WireDevice,
    WireTensor,
    message,
    packet,
)
from weft.rpc.failure import error_text, remote_error
from weft.rpc.folder import Folder
from weft.rpc.memory import Memory, Stream

_MAX_HANDLES = 1 << 20
_SLOTS = 256
_LOCAL = "rpc.LocalSession"
_CODE, _HANDLE = struct.Struct("<i"), struct.Struct("<Q")


class Limits(NamedTuple):
    """What a session may take: bytes of a packet, and of the memory that it allocates (0: three quarters of all)."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_memory_bytes: int = 0

    def memory(self) -> int:
        """The bytes that may be allocated."""
        return self.max_memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3


class _Link(Protocol):
    """What a service reads packets from: a `Channel`, or the client of the same process."""

    def packet(self) -> Packet | None: ...
    def send(self, *parts: Any) -> None: ...
    def exchange(self, *parts: Any) -> Packet | None: ...


class ServedModule:
    """A module that is not native: a client sees it as it sees other modules."""

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return the function of a name, None where there is none."""
        raise NotImplementedError


_SESSION_FUNCTIONS: registry.Registry[Callable[..., Any]] = registry.Registry()
SESSION_CONSTRUCTORS: dict[str, Callable[..., Channel]] = {}
"""What may serve a session instead: functions of the constructor's arguments that return a channel to a server."""
session_function = _SESSION_FUNCTIONS.on
"""Offer a function of the service and the client's arguments to each client, as a global function is."""


class Service:
    """One session.

    Parameters
    ----------
    link : Channel, optional
        Where the client is; a client of this process sets it.
    folder : Folder, optional
        Where its files are; by default one of its own that ends with it.
    limits : Limits
        What it may take.
    """

    def __init__(self, link: _Link | None = None, folder: Folder | None = None, limits: Limits | None = None) -> None:
        self.link = link
        self.folder = folder or Folder()
        self.limits = limits or Limits()
        self.objects: dict[int, Any] = {}
        self.entry_names: dict[int, str] = {}  # of libraries, by the address of their modules
        self._handles = itertools.count(1 << 12)
        self._slots: tvm_ffi.List[Any] = tvm_ffi.List([None] * (2 * _SLOTS))  # what native code knows: see rpc_calls.cc
        self._memory_left = self.limits.memory()
        self._ready = False
        self._elsewhere: Channel | None = None
        self._dropped_callbacks: list[int] = []
        self._by_code: dict[int, Callable[[memoryview], bytes]] = {
            RPCCode.CALL_FUNC: self._call,
            RPCCode.GET_GLOBAL_FUNC: self._system(self._global_function),
            RPCCode.FREE_HANDLE: self._system(self._free),
            RPCCode.DEV_SET_DEVICE: self._system(lambda dev: self._device(dev) and None),
            RPCCode.DEV_GET_ATTR: self._system(self._attribute),
            RPCCode.DEV_ALLOC_DATA: self._system(lambda dev, size, _, __: self._allocate(dev, size)),
            RPCCode.DEV_ALLOC_DATA_WITH_SCOPE: self._system(self._allocate_tensor),
            RPCCode.DEV_FREE_DATA: self._system(lambda _, data: self._free(data)),
            RPCCode.DEV_STREAM_SYNC: self._system(lambda dev, s: self._device(dev).sync(self._stream(dev, s) or None)),
            RPCCode.COPY_AMONG_REMOTE: self._system(self._copy_among),
            RPCCode.DEV_CREATE_STREAM: self._system(self._create_stream),
            RPCCode.DEV_FREE_STREAM: self._system(self._free_stream),
            RPCCode.DEV_SET_STREAM: self._system(lambda dev, s: self._device(dev).set_raw_stream(self._stream(dev, s))),
        }

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Answer packets until the client closes, or sends what is no packet."""
        assert self.link is not None
        try:
            request = self.link.packet()
            while request is not None and _code(request) != RPCCode.SHUTDOWN:
                request = self._exchange(*self._reply(request))
        except RPCError as e:  # before ConnectionError, which it may be, too
            with suppress(ConnectionError):
                self.link.send(message(RPCCode.EXCEPTION, [error_text(e)]))
        except ConnectionError:
            pass
        self.close()

    def _exchange(self, *reply: Any) -> Packet | None:
        """Send an answer and read the next packet; native code answers calls meanwhile, as far as it can."""
        link = self.link
        assert link is not None
        while len(reply) == 1 and isinstance(link, Channel) and (descriptor := link.idle) >= 0:
            try:
                found = _serve(descriptor, self._slots, reply[0])
                if not isinstance(found, bytes):
                    reply = (message(RPCCode.RETURN, self.outgoing(found[0])),)
                    continue
            except Exception as e:
                reply = (message(RPCCode.EXCEPTION, [error_text(e)]),)
                continue
            link.feed(found)
            return link.packet()
        return link.exchange(*reply)

    def close(self) -> None:
        """Free what the session held."""
        self.objects.clear()
        self._slots.clear()
        self.folder.remove()
        if self._elsewhere is not None:
            self._elsewhere.send(packet(RPCCode.SHUTDOWN))
            self._elsewhere.close()

    def _reply(self, request: Packet) -> tuple[Any, ...]:
        """What answers a packet; of a session that is served elsewhere, nothing that is not sent already."""
        if self._elsewhere is not None:
            self._pass_on(request)
            return ()
        code = _code(request)
        if code == RPCCode.COPY_TO_REMOTE:
            return (self._copy_in(request),)
        if code == RPCCode.COPY_FROM_REMOTE:
            return self._copy_out(request.head)
        return (self.answer(request.head if not request.rest else self._channel.whole(request)),)

    @property
    def _channel(self) -> Channel:
        assert isinstance(self.link, Channel)
        return self.link

    def answer(self, body: memoryview) -> bytes:
        """The packet that answers a packet, which is no copy; an RPCError where it cannot be read."""
        (code,) = _CODE.unpack_from(body)
        if code == RPCCode.INIT_SERVER:
            return self._guarded(self._initialize, body)
        handler = self._by_code.get(code)
        if handler is None:
            raise codec.malformed(f"a packet of code {code}")
        if not self._ready:
            raise RPCError("a session begins with its constructor", found=f"a packet of code {code}")
        return self._guarded(handler, body)

    def _guarded(self, handler: Callable[[memoryview], bytes], body: memoryview) -> bytes:
        """The handler's answer, or what it raised as one; what is no packet is not answered."""
        try:
            return handler(body)
        except codec.Malformed:
            raise
        except Exception as e:
            return message(RPCCode.EXCEPTION, [error_text(e)])

    # ---- the beginning -----------------------------------------------------------------------------------------------

    def _initialize(self, body: memoryview) -> bytes:
        try:
            version, at = codec.read_text(body, 4)
        except struct.error as e:
            raise codec.malformed(str(e)) from None
        if self._ready or self._elsewhere is not None:
            raise RPCError("the session has begun already")
        if version != codec.PROTOCOL_VERSION:
            raise RPCError(
                "the client speaks another version of the protocol",
                expected=codec.PROTOCOL_VERSION.decode(),
                found=repr(version),
            )
        name, *args = codec.decode(body, at) or [_LOCAL]
        if name != _LOCAL:
            construct = SESSION_CONSTRUCTORS.get(name) or get_global_func(str(name), allow_missing=True)
            if construct is None:
                raise RPCError(
                    f"there is no session constructor '{name}'",
                    expected=", ".join([_LOCAL, *sorted(SESSION_CONSTRUCTORS)]),
                )
            made: Any = construct(*args)
            self._elsewhere = made if isinstance(made, Channel) else made.channel()
        self._ready = True
        return _VOID

    def _pass_on(self, request: Packet) -> None:
        """Send a packet to the server that serves the session, and its answer back."""
        assert self._elsewhere is not None
        _forward(request, self._channel, self._elsewhere)
        while True:
            reply = self._elsewhere.packet()
            if reply is None:
                raise RPCError("the connection to the server of this session was lost")
            last = _code(reply) in (RPCCode.RETURN, RPCCode.EXCEPTION, RPCCode.COPY_ACK)
            _forward(reply, self._elsewhere, self._channel)
            if last:
                return
            answer = self._channel.packet()  # the server has called a function of the client
            if answer is None:
                raise ConnectionResetError
            _forward(answer, self._channel, self._elsewhere)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _call(self, body: memoryview) -> bytes:
        if len(body) < 12:
            raise codec.malformed("a call without a function")
        (handle,) = _HANDLE.unpack_from(body, 4)
        values = codec.decode(body, 12)
        function = self.objects.get(handle)
        if not callable(function):
            raise InvalidArgument(f"there is no function of handle {handle}")
        result = function(*[self.native(v) for v in values])
        answer = message(RPCCode.RETURN, self.outgoing(result))
        if self._dropped_callbacks:
            self._free_callbacks()
        return answer

    def native(self, value: Any) -> Any:
        """A value of the wire as functions take it."""
        convert = _NATIVE.get(type(value))
        return value if convert is None else convert(self, value)

    def outgoing(self, value: Any) -> list[Any]:
        """A value as clients take results: its type's index, then itself or its handle."""
        convert = _OUTGOING.get(type(value))
        return self._outgoing_object(value) if convert is None else convert(self, value)

    def _outgoing_object(self, value: Any) -> list[Any]:
        """Results of classes that have subclasses or conversions, or that the client keeps a handle of."""
        for cls, convert in _OUTGOING_BASES:
            if isinstance(value, cls):
                return convert(self, value)
        converted = convert_argument(value)
        if converted is not value:
            return self.outgoing(converted)
        if hasattr(value, "__tvm_ffi_object__"):
            return self.outgoing(value.__tvm_ffi_object__())
        if callable(value):
            return [TypeIndex.FUNCTION, Opaque(self.keep(value))]
        return [TypeIndex.OBJECT, Opaque(self.keep(value))]

    def keep(self, value: Any) -> int:
        """Put something into the table; returns its handle."""
        if len(self.objects) >= _MAX_HANDLES:
            raise OutOfMemory("the session holds too many objects", expected=f"at most {_MAX_HANDLES}")
        handle = next(self._handles)
        self.objects[handle] = value
        if isinstance(value, (tvm_ffi.Function, Memory)):
            at = 2 * (handle % _SLOTS)
            self._slots[at], self._slots[at + 1] = handle, value.whole if isinstance(value, Memory) else value
        return handle

    def held(self, handle: int, what: type | tuple[type, ...]) -> Any:
        """What a handle stands for; an InvalidArgument where that is nothing, or something else."""
        found = self.objects.get(int(handle))
        if not isinstance(found, what):
            raise InvalidArgument(
                f"there is nothing of that kind with the handle {int(handle)}",
                found="nothing" if found is None else type(found).__name__,
            )
        return found

    def tensor(self, value: WireTensor) -> Any:
        """The tensor that the client means."""
        return self.held(value.data, Memory).view(value)

    def _keep_tensor(self, value: Any) -> list[Any]:
        memory = Memory.of(value)
        handle = self.keep(memory)
        value = memory.whole
        device = WireDevice(*value.__dlpack_device__())
        wire = WireTensor(handle, device, str(value.dtype), tuple(value.shape))
        return [TypeIndex.TENSOR, wire, Opaque(handle)]

    # ---- functions of the client -------------------------------------------------------------------------------------

    def _callback(self, handle: int) -> Any:
        """The function of the client that a handle with the bit `CALLBACK` names."""
        return tvm_ffi.convert(_Callback(self, handle & ~CALLBACK))

    def call_back(self, handle: int, args: tuple[Any, ...]) -> Any:
        """Call a function of the client, which waits for an answer, and serve what that asks for meanwhile."""
        assert self.link is not None
        values = [v for a in args for v in self.outgoing(a)]
        self.link.send(message(RPCCode.CALL_FUNC, values, handle))
        result = self._client_answer()
        if not result:
            raise codec.malformed("an answer without a value")
        return self.native(result[0])

    def _client_answer(self) -> list[Any]:
        assert self.link is not None
        while True:
            reply = self.link.packet()
            if reply is None:
                raise ConnectionResetError("the client is gone")
            code = _code(reply)
            if code not in (RPCCode.RETURN, RPCCode.EXCEPTION):
                self.link.send(*self._reply(reply))
                continue
            values = codec.decode(reply.head if not reply.rest else self._channel.whole(reply), 4)
            if code == RPCCode.EXCEPTION:
                raise remote_error(str(values[0]) if values else "")
            return values

    def drop_callback(self, handle: int) -> None:
        """Tell the client, when it next waits, that a function of its is not needed any more."""
        self._dropped_callbacks.append(handle)

    def _free_callbacks(self) -> None:
        assert self.link is not None
        while self._dropped_callbacks:
            self.link.send(message(RPCCode.FREE_HANDLE, [Opaque(self._dropped_callbacks.pop())]))
            self._client_answer()

    # ---- system calls ------------------------------------------------------------------------------------------------

    def _system(self, function: Callable[..., Any]) -> Callable[[memoryview], bytes]:
        """The handler of a code whose packet has the function's arguments."""

        def handle(body: memoryview) -> bytes:
            values = codec.decode(body, 4)
            try:
                result = function(*values)
            except (TypeError, AttributeError, struct.error) as e:
                raise InvalidArgument("a packet has the wrong values", found=f"{values}: {e}") from e
            return _VOID if result is None else message(RPCCode.RETURN, [result])

        return handle

    def _global_function(self, name: str) -> Opaque:
        own = _SESSION_FUNCTIONS.get(name)
        registered = tvm_ffi.get_global_func(name, allow_missing=True)
        if registered is None and own is not None:
            return Opaque(self.keep(_Bound(self, own)))
        found = registered or get_global_func(name, allow_missing=True)
        return Opaque(0 if found is None else self.keep(getattr(found, "plain", found)))

    def _free(self, handle: int) -> None:
        handle = int(handle)
        found = self.objects.pop(handle, None)
        at = 2 * (handle % _SLOTS)
        if self._slots[at] == handle:
            self._slots[at] = self._slots[at + 1] = None
        if isinstance(found, Memory):
            self._memory_left += found.counted

    def _device(self, device: WireDevice) -> runtime.Device:
        made = runtime.Device(*device)
        if not made.exist:
            raise InvalidArgument(f"this machine has no device {made}")
        return made

    def _stream(self, device: WireDevice, handle: int | None) -> int:
        return self.held(handle, Stream).of(device) if handle else 0  # the one that the device has anyway

    def _create_stream(self, device: WireDevice) -> Opaque:
        return Opaque(self.keep(Stream(device, self._device(device).create_raw_stream())))

    def _free_stream(self, device: WireDevice, handle: int) -> None:
        self._device(device).free_raw_stream(self._stream(device, handle))
        self._free(handle)

    def _attribute(self, device: WireDevice, kind: int) -> Any:
        made = runtime.Device(*device)
        if kind == 0:
            return int(made.exist)
        name = DEVICE_ATTRIBUTES[kind] if 0 <= kind < len(DEVICE_ATTRIBUTES) else ""
        return getattr(made, name, None)

    @contextmanager
    def counted(self, size: int) -> Generator[None]:
        """Count bytes against what the session may allocate, inside the ``with`` block."""
        if not 0 <= size <= self._memory_left:
            raise OutOfMemory(
                "the session may not allocate that much", found=f"{size} bytes", expected=f"0 to {self._memory_left}"
            )
        self._memory_left -= size
        try:
            yield
        finally:
            self._memory_left += size

    def _allocate(self, device: WireDevice, size: int) -> Opaque:
        with self.counted(size):
            handle = self.keep(Memory.allocate(size, self._device(device)))
        self._memory_left -= size
        return Opaque(handle)

    def _allocate_tensor(self, like: WireTensor, scope: str | None) -> Opaque:
        if scope not in (None, "", "global"):
            raise InvalidArgument("unknown memory scope", expected="'global'", found=repr(scope))
        return self._allocate(like.device, codec.element_bytes(like.dtype, math.prod(like.shape)))

    def _copy_among(self, source: WireTensor, target: WireTensor, _stream: Any) -> None:
        Memory.copy(self.tensor(source), self.tensor(target))

    # ---- copies ------------------------------------------------------------------------------------------------------

    def _copied(self, body: memoryview) -> tuple[WireTensor, int, int]:
        """The tensor of a copy's packet, the number of its bytes and the place of what follows."""
        try:
            tensor, at = codec.read_tensor(body, 4)
            (size,) = struct.unpack_from("<Q", body, at)
        except struct.error as e:
            raise codec.malformed(str(e)) from None
        return tensor, size, at + 8

    def _copy_in(self, request: Packet) -> bytes:
        """Take what the client sends into memory; the elements are read, or dropped, whatever happens."""
        assert self.link is not None
        wire, size, at = self._copied(request.head)
        elements = request.head[at:]
        if size != len(elements) + request.rest:
            raise codec.malformed(f"a copy of {size} bytes has {len(elements) + request.rest}")
        left = request.rest
        try:
            with self.held(wire.data, Memory).writable(wire, size) as view:
                view[: len(elements)] = elements
                if left:
                    left = 0
                    self._channel.read_rest(view[len(elements) :])
        except (RPCError, ConnectionError):
            raise
        except Exception as e:
            if left:
                self._channel.skip(left)
            return message(RPCCode.EXCEPTION, [error_text(e)])
        return _VOID

    def _copy_out(self, body: memoryview) -> tuple[Any, ...]:
        wire, size, at = self._copied(body)
        if at != len(body):
            raise codec.malformed("bytes behind a copy")
        try:
            view = self.held(wire.data, Memory).readable(wire, size)
        except Exception as e:
            return (message(RPCCode.EXCEPTION, [error_text(e)]),)
        if size <= 1 << 12:
            return (packet(RPCCode.COPY_ACK, bytes(view)),)
        return packet(RPCCode.COPY_ACK, more=size), view

    def answer_copy(self, body: memoryview) -> bytes:
        """The answer to a copy, for a client of the same process."""
        if int.from_bytes(body[:4], "little") == RPCCode.COPY_TO_REMOTE:
            return self._copy_in(Packet(body, 0))
        return b"".join(self._copy_out(body))


class _Bound:
    """A session function with its service."""

    __slots__ = ("_function", "_service")

    def __init__(self, service: Service, function: Callable[..., Any]) -> None:
        self._service, self._function = service, function

    def __call__(self, *args: Any) -> Any:
        return self._function(self._service, *args)


class _Callback:
    """A function of the client."""

    def __init__(self, service: Service, handle: int) -> None:
        self._service, self._handle = service, handle

    def __call__(self, *args: Any) -> Any:
        return self._service.call_back(self._handle, args)

    def __del__(self) -> None:
        self._service.drop_callback(self._handle)


def _code(request: Packet) -> int:
    return _CODE.unpack_from(request.head)[0]


def _forward(request: Packet, source: Channel, target: Channel) -> None:
    size = len(request.head) + request.rest
    target.send(size.to_bytes(8, "little") + request.head)
    left = request.rest
    piece = memoryview(bytearray(min(left, 1 << 20)))
    while left:
        part = piece[: min(left, len(piece))]
        source.read_rest(part)
        target.send(part)
        left -= len(part)


def _function_argument(service: Service, handle: int) -> Any:
    if handle & CALLBACK:
        return service._callback(handle)
    found = service.objects.get(int(handle))
    if not callable(found):
        raise InvalidArgument(f"there is no function of handle {int(handle)}")
    return found if isinstance(found, tvm_ffi.Function) else tvm_ffi.convert(found)


def _object_argument(service: Service, handle: int) -> Any:
    if not handle:
        return None
    found = service.held(handle, object)
    return found.whole if isinstance(found, Memory) else found


_NATIVE: dict[type, Callable[[Service, Any], Any]] = {
    WireTensor: Service.tensor,
    WireDevice: lambda _, v: tvm_ffi.Device(v.kind, v.number),
    codec.FunctionHandle: _function_argument,
    codec.ModuleHandle: lambda s, handle: s.held(handle, (tvm_ffi.Module, ServedModule)) if handle else None,
    codec.ObjectHandle: _object_argument,
    Opaque: _object_argument,
}
_OUTGOING: dict[type, Callable[[Service, Any], list[Any]]] = {
    type(None): lambda _, v: [TypeIndex.NONE, None],
    int: lambda _, v: [TypeIndex.INT, v],
    bool: lambda _, v: [TypeIndex.BOOL, v],
    float: lambda _, v: [TypeIndex.FLOAT, v],
    str: lambda _, v: [TypeIndex.STR, v],
    bytes: lambda _, v: [TypeIndex.BYTES, v],
    bytearray: lambda _, v: [TypeIndex.BYTES, v],
    tvm_ffi.dtype: lambda _, v: [TypeIndex.DTYPE, v],
    tvm_ffi.Tensor: Service._keep_tensor,
}
_OUTGOING_BASES: list[tuple[type, Callable[[Service, Any], list[Any]]]] = [
    (tvm_ffi.dtype, lambda _, v: [TypeIndex.DTYPE, v]),
    (str, lambda _, v: [TypeIndex.STR, str(v)]),
    (bytes, lambda _, v: [TypeIndex.BYTES, bytes(v)]),
    (tvm_ffi.Tensor, Service._keep_tensor),
    (tvm_ffi.Function, lambda s, v: [TypeIndex.FUNCTION, Opaque(s.keep(getattr(v, "plain", v)))]),
    (runtime.Module, lambda s, v: [TypeIndex.MODULE, Opaque(s.keep(v.__tvm_ffi_object__()))]),
    (tvm_ffi.Module, lambda s, v: [TypeIndex.MODULE, Opaque(s.keep(v))]),
    (ServedModule, lambda s, v: [TypeIndex.MODULE, Opaque(s.keep(v))]),
    (runtime.Device, lambda _, v: [TypeIndex.DEVICE, WireDevice(*v.__dlpack_device__())]),
    (tvm_ffi.Device, lambda _, v: [TypeIndex.DEVICE, WireDevice(int(v.dlpack_device_type()), v.index)]),
]
_serve = tvm_ffi.get_global_func("weft.rpc_serve")
_VOID = message(RPCCode.RETURN, [None])
