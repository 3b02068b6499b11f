"""The client's end of a session: asks, waits for the answer, and serves what is asked back meanwhile.

What a client lets go of is freed there without waiting: the packet goes out at once where nothing else is under way,
and its answer is read before the next one. So are calls that nobody waits for (:meth:`Endpoint.call_later`).
"""

from __future__ import annotations

import itertools
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi

from weft.error import InvalidArgument, RPCError, RPCSessionTimeoutError
from weft.rpc import codec
from weft.rpc.channel import Channel, Packet
from weft.rpc.codec import CALLBACK, Opaque, RPCCode, WireTensor, encode, message, packet
from weft.rpc.failure import error_text, remote_error
from weft.rpc.service import Service

_CODE = struct.Struct("<i")
_MAX_OWED = 128  # answers that nobody has read yet lie in the socket's buffer
_MAX_LATER_BYTES = 512  # of a call that nobody waits for: as many as `_MAX_OWED` fit any socket's buffer
_MAX_PLAIN = 100  # numbers of a call by native code
_MAX_REMOTE_SESSIONS = 1 << 15  # device types are 32 bits
_call = tvm_ffi.get_global_func("weft.rpc_call")
_numbers: set[int] = set()
_numbers_lock = threading.Lock()


class Endpoint:
    """A session as its client has it.

    Parameters
    ----------
    link : Channel or LocalLink
        Where the packets go.
    name : str
        What the session is called in errors.
    """

    def __init__(self, link: Channel | LocalLink, name: str) -> None:
        self.link, self.name = link, name
        self._lock = threading.RLock()
        self._depth = 0
        self._ready = -1  # the descriptor by which native code may do the next exchange, where nothing is under way
        self._owed: deque[bool] = deque()  # answers that are outstanding; whether what is wrong with them is told
        self._failed: Exception | None = None  # what the first of them said
        self._released: deque[bytes] = deque()
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._callback_numbers = itertools.count(1)
        self._takes_callbacks: bool | None = None
        self.closed = False
        self.number = _take_number()
        if isinstance(link, LocalLink):
            link.serve_with(self._serve)

    def wrap(self, values: Sequence[Any]) -> Any:
        """What a server returned, of the index of its type, then itself or its handle."""
        return values[1]

    def outgoing(self, value: Any) -> Any:
        """An argument as the wire has it."""
        return value

    # ---- asking ------------------------------------------------------------------------------------------------------

    def initialize(self, constructor: Sequence[Any]) -> None:
        """Begin the session; ``rpc.Connect`` and its arguments as `constructor` let another server serve it."""
        version = codec.PROTOCOL_VERSION
        self._ask(packet(RPCCode.INIT_SERVER, len(version).to_bytes(8, "little"), version, encode(constructor)))

    def system(self, code: int, *values: Any) -> Any:
        """Do a system call."""
        found = self._ask(message(code, values))
        return found[0] if found else None

    def call(self, handle: int, args: Sequence[Any]) -> Any:
        """Call a function of the server with values of the wire."""
        return self._result(self._ask(message(RPCCode.CALL_FUNC, args, handle)))

    def call_plain(self, handle: int, args: Sequence[Any]) -> Any:
        """:meth:`call` with nothing but None, booleans and numbers: by native code, where nothing else is under way."""
        with self._lock:
            descriptor = self._ready
            if descriptor >= 0 and len(args) <= _MAX_PLAIN:
                self._depth = 1
                try:
                    found = _call(descriptor, handle, *args)
                    if not isinstance(found, bytes):
                        return found
                    self.link.feed(found)
                    return self._result(self._ask(asked=True))
                except TypeError:
                    encode(args)  # says which number is too large
                    raise
                except KeyboardInterrupt:
                    self.close()
                    raise
                finally:
                    self._depth = 0
        return self.call(handle, args)

    def _result(self, values: list[Any]) -> Any:
        if len(values) < 2:
            raise codec.malformed("a result without a value")
        return self.wrap(values)

    def call_later(self, handle: int, args: Sequence[Any]) -> None:
        """Call a function of the server and go on: what it returns is freed, :meth:`wait` raises what it raised."""
        self._ask(message(RPCCode.CALL_FUNC, args, handle), later=True)

    def wait(self) -> None:
        """Wait for all calls that were sent, and raise what the first of them raised that failed."""
        self._ask(later=True)

    def copy_to(self, target: WireTensor, elements: memoryview) -> None:
        """Copy bytes into a tensor of the server."""
        size = len(elements)
        body = codec.encode_tensor(target) + size.to_bytes(8, "little")
        if size <= 1 << 12:
            self._ask(packet(RPCCode.COPY_TO_REMOTE, body, elements))
        else:
            self._ask(packet(RPCCode.COPY_TO_REMOTE, body, more=size), elements)

    def copy_from(self, source: WireTensor, elements: memoryview) -> None:
        """Copy the bytes of a tensor of the server to here."""
        size = len(elements)
        self._ask(
            packet(RPCCode.COPY_FROM_REMOTE, codec.encode_tensor(source) + size.to_bytes(8, "little")), into=elements
        )

    def free(self, code: int, *values: Any) -> None:
        """Let the server free something; nobody waits for it, and nothing is raised."""
        if self.closed:
            return
        self._released.append(message(code, values))
        self._ready = -1
        if self._depth == 0 and self._lock.acquire(blocking=False):
            try:
                self._flush()
            except (OSError, RPCError):
                pass  # the next question says so
            finally:
                self._lock.release()

    def _ask(self, *parts: Any, into: memoryview | None = None, later: bool = False, asked: bool = False) -> list[Any]:
        with self._lock:
            if self.closed:
                raise RPCError("the session is closed", where=self.name)
            if not asked and (self._released or len(self._owed) > _MAX_OWED):
                self._flush()
            self._depth += 1
            self._ready = -1
            try:
                if later:
                    return self._later(*parts)
                if not self._owed:
                    return self._next_answer(into, True, None if asked else self._exchange(*parts))
                self._send(*parts)
                self._settle()
                values = self._next_answer(into, True)
                self._tell()
                return values
            except (codec.Malformed, KeyboardInterrupt):  # the next answer would not be to the next question
                self.close()
                raise
            except RPCError:  # it may be an OSError, too: of a file of the server's
                raise
            except OSError as e:
                self.close()
                raise RPCError("the connection was lost", where=self.name, found=str(e)) from e
            finally:
                self._depth -= 1
                if self._released and not self._depth and not self.closed:
                    self._flush()
                if self._depth == asked:
                    self._ready = self.link.idle  # first, as another thread may let go of something meanwhile
                    if self.closed or self._owed or self._released:
                        self._ready = -1

    def _later(self, request: bytes = b"") -> list[Any]:
        """Send a call, and read no more answers than there have to be; without a call, all of them."""
        while self._owed and (not 0 < len(request) <= _MAX_LATER_BYTES or len(self._owed) > _MAX_OWED):
            self._next_answer()
        if request:
            self._send(request)
            self._owed.append(True)
        else:
            self._tell()
        return []

    def _tell(self) -> None:
        """Raise what an answer said that nobody waited for."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _send(self, *parts: Any) -> None:
        try:
            self.link.send(*parts)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the server said before it closed is still there to read

    def _flush(self) -> None:
        """Send what is to be freed; where too many answers are outstanding, read them."""
        self._depth += 1
        try:
            while self._released:
                self._send(self._released.popleft())
                self._owed.append(False)
                if len(self._owed) > _MAX_OWED:
                    self._settle()
        finally:
            self._depth -= 1

    def _settle(self) -> None:
        """Read the answers that are outstanding."""
        while self._owed:
            self._next_answer()

    def _exchange(self, *parts: Any) -> Packet | None:
        try:
            return self.link.exchange(*parts)
        except (BrokenPipeError, ConnectionResetError):
            return self.link.packet()  # as in `_send`

    def _next_answer(
        self, into: memoryview | None = None, last: bool = False, reply: Packet | None = None
    ) -> list[Any]:
        """The next answer, of which `reply` is the packet where it was read already; questions are answered before."""
        while True:
            reply = reply or self.link.packet()
            if reply is None:
                self.close()
                raise RPCError("the server closed the connection", where=self.name)
            (code,) = _CODE.unpack_from(reply.head)
            if code != RPCCode.CALL_FUNC and code != RPCCode.FREE_HANDLE:
                break
            self._serve(code, reply)
            reply = None
        told = last or self._owed.popleft()
        if code == RPCCode.COPY_ACK:
            return self._take(reply, into)
        values = codec.decode(self.link.whole(reply), 4)
        if code == RPCCode.EXCEPTION:
            error = remote_error(str(values[0]) if values else "")
            if last or isinstance(error, RPCSessionTimeoutError):
                raise error
            if told:
                self._failed = self._failed or error
        elif code != RPCCode.RETURN:
            raise codec.malformed(f"an answer of code {code}")
        elif told and not last and len(values) > 1:
            self.wrap(values)  # so that it is freed there
        return values

    def _take(self, reply: Packet, into: memoryview | None) -> list[Any]:
        here = len(reply.head) - 4
        if into is None or here + reply.rest != len(into):
            raise codec.malformed(f"a copy of {here + reply.rest} bytes")
        into[:here] = reply.head[4:]
        if reply.rest:
            self.link.read_rest(into[here:])
        return []

    # ---- being asked -------------------------------------------------------------------------------------------------

    def callback(self, function: Callable[..., Any]) -> int:
        """A handle by which the server may call a function of this process while it answers.

        Raises
        ------
        InvalidArgument
            When the server does not take such, as TVM's do not.
        """
        if self._takes_callbacks is None:
            handle = self.system(RPCCode.GET_GLOBAL_FUNC, "weft.rpc.callbacks")
            self._takes_callbacks = bool(handle)
            if handle:
                self.free(RPCCode.FREE_HANDLE, Opaque(codec.handle(handle)))
        if not self._takes_callbacks:
            raise InvalidArgument(
                "this server takes no functions of its client", where=self.name, help="servers of Weft do"
            )
        number = next(self._callback_numbers)
        self._callbacks[number] = function
        return number | CALLBACK

    def _serve(self, code: int, request: Packet) -> None:
        """Answer a question of the server's."""
        body = self.link.whole(request)
        try:
            if code == RPCCode.FREE_HANDLE:
                self._callbacks.pop(codec.handle(next(iter(codec.decode(body, 4)), None)), None)
                answer = message(RPCCode.RETURN, [None])
            else:
                answer = self._called(int.from_bytes(body[4:12], "little"), codec.decode(body, 12))
        except codec.Malformed:
            raise
        except Exception as e:
            answer = message(RPCCode.EXCEPTION, [error_text(e)])
        self._send(answer)

    def _called(self, number: int, values: list[Any]) -> bytes:
        function = self._callbacks.get(number)
        if function is None:
            raise InvalidArgument(f"the client has no function {number}")
        args: list[Any] = []
        while values:
            count = 3 if isinstance(values[1], WireTensor) else 2
            args.append(self.wrap(values[:count]))
            del values[:count]
        return message(RPCCode.RETURN, [self.outgoing(function(*args))])

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session; what the server held for it is freed there."""
        if self.closed:
            return
        self.closed, self._ready = True, -1
        try:
            if not self._depth:
                self.link.send(packet(RPCCode.SHUTDOWN))
        except OSError:
            pass
        finally:
            self.link.close()
            self._callbacks.clear()
            _numbers.discard(self.number)

    def detach(self) -> Any:
        """Give the link away, open as it is."""
        self.closed, self._ready = True, -1
        _numbers.discard(self.number)
        return self.link

    def __del__(self) -> None:
        if hasattr(self, "number"):
            self.close()


def _take_number() -> int:
    with _numbers_lock:
        number = next(i for i in range(_MAX_REMOTE_SESSIONS) if i not in _numbers)
        _numbers.add(number)
    return number


class LocalLink:
    """The way to a service of this process, which answers packets as any other."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.link = self._back = _Back()

    def serve_with(self, serve: Callable[[int, Packet], None]) -> None:
        """Say which method of the client answers the service's questions."""
        self._back.serve = weakref.WeakMethod(serve)

    def send(self, *parts: Any) -> None:
        """Take a packet and answer it; an answer of the client's is for the service, which waits for it."""
        body = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))[8:]
        code = int.from_bytes(body[:4], "little")
        if code in (RPCCode.RETURN, RPCCode.EXCEPTION):
            self._back.answers.append(body)
        elif code == RPCCode.SHUTDOWN:
            self.service.close()
        elif code in (RPCCode.COPY_TO_REMOTE, RPCCode.COPY_FROM_REMOTE):
            self._back.replies.append(memoryview(self.service.answer_copy(body))[8:])
        else:
            self._back.replies.append(memoryview(self.service.answer(body))[8:])

    def packet(self) -> Packet:
        """The next packet of the service."""
        return Packet(self._back.replies.popleft(), 0)

    def exchange(self, *parts: Any) -> Packet:
        """Take a packet; the answer."""
        self.send(*parts)
        return self.packet()

    def whole(self, packet: Packet) -> memoryview:
        """All of a packet."""
        return packet.head

    def read_rest(self, view: memoryview) -> None:
        """Nothing is left of a packet."""

    def skip(self, size: int) -> None:
        """Nothing is left of a packet."""

    def feed(self, data: bytes) -> None:
        """Native code reads nothing here."""

    idle = -1

    def close(self) -> None:
        """Free what the service held."""
        self.service.close()


class _Back:
    """What a service of this process reads and writes, when it calls functions of its client."""

    def __init__(self) -> None:
        self.replies: deque[memoryview] = deque()
        self.answers: deque[memoryview] = deque()
        self.serve: Callable[[], Callable[[int, Packet], None] | None] = lambda: None

    def send(self, *parts: Any) -> None:
        """Let the client answer a question."""
        body = memoryview(b"".join(parts))[8:]
        serve = self.serve()
        assert serve is not None
        serve(int.from_bytes(body[:4], "little"), Packet(body, 0))

    def exchange(self, *parts: Any) -> Packet:
        """Let the client answer a question; its answer."""
        self.send(*parts)
        return self.packet()

    def packet(self) -> Packet:
        """The client's answer."""
        return Packet(self.answers.popleft(), 0)
