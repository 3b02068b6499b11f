"""Sessions: with a server, with this process, with a program over pipes, or with whom a tracker has free."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from weft.error import InvalidArgument, RPCError, reading
from weft.rpc import base, codec
from weft.rpc.channel import Channel, PipeChannel, SocketChannel
from weft.rpc.endpoint import LocalLink
from weft.rpc.folder import Folder
from weft.rpc.remote import RemoteDevice, RemoteEndpoint, RemoteFunction, RemoteModule
from weft.rpc.service import SESSION_CONSTRUCTORS, Service
from weft.rpc.trust import Secret, Tls, client_tls, prove
from weft.runtime import Device

__all__ = ["LocalSession", "PopenSession", "RPCSession", "TrackerSession", "connect", "connect_tracker"]

T = TypeVar("T")
_WAIT_SECONDS = 600.0  # for a server that has other sessions, or a proxy without one
_GRACE_SECONDS = 10.0  # behind its time, for a server to say that a session is over
_REFUSALS = {
    base.RPC_CODE_MISMATCH: "the server does not take this key",
    base.RPC_CODE_DUPLICATE: "this key is in use already",
    base.RPC_CODE_CHALLENGE: "the server asks for a secret",
}


class Pipeline:
    """Calls that nobody waits for one by one: :meth:`RPCSession.pipeline` makes one."""

    def __init__(self, endpoint: RemoteEndpoint) -> None:
        self._endpoint = endpoint

    def __call__(self, function: Any, *args: Any) -> None:
        """Call a function of the session after those before, and go on at once; what it returns is let go of."""
        if not isinstance(function, RemoteFunction) or function.endpoint is not self._endpoint:
            raise InvalidArgument(
                "a pipeline calls functions of its session", expected=self._endpoint.name, found=type(function).__name__
            )
        self._endpoint.call_later(function.handle, [self._endpoint.outgoing(a) for a in args])

    def wait(self) -> None:
        """Wait for all calls so far, and raise what the first of them raised that failed."""
        self._endpoint.wait()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*(() if kind is None else (Exception,))):
            self.wait()


def _device(kind: str, doc: str) -> Callable[..., RemoteDevice]:
    def of_kind(self: RPCSession, dev_id: int = 0) -> RemoteDevice:
        return self.device(kind, dev_id)

    of_kind.__doc__ = doc
    return of_kind


class RPCSession:
    """A session with another machine, `sess` as a module. :func:`connect` makes one."""

    def __init__(self, sess: RemoteModule) -> None:
        self._sess = sess
        self._remote_funcs: dict[str, RemoteFunction] = {}
        self._uploaded: dict[str, str] = {}  # files here and what they are called in the session's folder

    @property
    def _tbl_index(self) -> int:
        return self._sess.endpoint.number

    def _do(self, name: str, *args: Any) -> Any:
        found = self._remote_funcs.get(name)
        if found is None:
            found = self._remote_funcs[name] = self._sess._server(f"tvm.rpc.server.{name}")
        return found(*args)

    def get_function(self, name: str) -> RemoteFunction:
        """Return a global function of the server; an InvalidArgument, also an AttributeError, where there is none."""
        return self._sess.get_function(name)

    def system_lib(self) -> RemoteModule:
        """Return the module of the functions that are linked into the server's process."""
        return codec.answered(self.get_function("ffi.SystemLib")(), RemoteModule)

    def device(self, dev_type: Any, dev_id: int = 0) -> RemoteDevice:
        """Return a device of the server: ``remote.device("cuda", 1)``."""
        kind, index = Device(dev_type, dev_id).__dlpack_device__()
        return RemoteDevice(self._sess.endpoint, kind, index, self)

    context = device

    def pipeline(self) -> Pipeline:
        """Make a pipeline, whose calls do not wait for the server; the end of its block does.

        ``with remote.pipeline() as later: later(function, a, b)`` calls ``function(a, b)`` there. Whatever else asks
        the server, as `numpy` of a tensor does, comes after these calls, and raises what the first of them raised.
        """
        return Pipeline(self._sess.endpoint)  # pyright: ignore[reportArgumentType]

    def upload(self, data: Any, target: str | None = None) -> None:
        """Write a file of the session's folder: bytes, or a file here, whose name it gets where `target` says none."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            if not target:
                raise InvalidArgument("bytes need a name", help="upload(data, target=...)")
            blob: Any = data
        else:
            blob = Path(data).read_bytes()
            target = self._uploaded[str(data)] = target or Path(data).name
        self._do("upload", target, blob)

    def download(self, path: str) -> bytearray:
        """Read a file of the session's folder."""
        return bytearray(codec.answered(self._do("download", path), bytes))

    def remove(self, path: str) -> None:
        """Delete a file of the session's folder."""
        self._do("remove", path)

    def listdir(self, path: str = "") -> str:
        """Return the names of what is in the session's folder, or a folder of it, with commas between."""
        return codec.answered(self._do("listdir", path), str)

    def load_module(self, path: str) -> RemoteModule:
        """Open a library of the session's folder, by its name or the path it was uploaded from; objects are linked."""
        return self._sess.load_module(self._uploaded.get(str(path), path))

    def download_linked_module(self, path: str) -> bytearray:
        """Link object files of the session's folder there, and return the library."""
        return bytearray(codec.answered(self._do("download_linked_module", path), bytes))

    cpu = _device("cpu", "The server's CPU.")
    cuda = gpu = _device("cuda", "A CUDA GPU of the server.")
    cl = _device("opencl", "An OpenCL device of the server.")
    vulkan = _device("vulkan", "A Vulkan device of the server.")
    metal = _device("metal", "A Metal device of the server.")
    rocm = _device("rocm", "A ROCm GPU of the server.")
    ext_dev = _device("ext_dev", "A device of the server that an extension brings.")
    hexagon = _device("hexagon", "A Hexagon processor of the server.")
    webgpu = _device("webgpu", "A WebGPU device of the server.")

    def close(self) -> None:
        """End the session now; what it held there is freed."""
        self._sess.endpoint.close()

    def __enter__(self) -> RPCSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalSession(RPCSession):
    """A session with this process itself: what runs with it runs with another machine."""

    def __init__(self) -> None:
        endpoint = RemoteEndpoint(LocalLink(Service(folder=Folder())), "this process")
        endpoint.initialize([])
        super().__init__(RemoteModule(endpoint))


class PopenSession(RPCSession):
    """A session with a program of this machine that speaks the protocol over pipes, as TVM's minimal servers do.

    `binary` is the program, or its content; it is started with the numbers of the pipes that it reads and writes.
    """

    def __init__(self, binary: Any) -> None:
        endpoint = RemoteEndpoint(_popen_channel(binary), f"the program {binary if isinstance(binary, str) else ''}")
        endpoint.initialize([])
        super().__init__(RemoteModule(endpoint))


class _Program(PipeChannel):
    """Pipes to a program, which ends when they are closed."""

    def __init__(self, path: str, folder: Any = None) -> None:
        reads, far_writes = os.pipe()
        far_reads, writes = os.pipe()
        try:
            self._process = subprocess.Popen([path, str(far_reads), str(far_writes)], pass_fds=(far_reads, far_writes))
        except OSError as e:
            raise RPCError(f"{path} cannot be started", found=str(e)) from e
        finally:
            os.close(far_reads)
            os.close(far_writes)
        self._folder = folder
        super().__init__(reads, writes)

    def close(self) -> None:
        """Close the pipes and wait for the program."""
        super().close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _popen_channel(binary: Any) -> _Program:
    if isinstance(binary, (bytes, bytearray)):
        folder = tempfile.TemporaryDirectory(prefix="weft-rpc-")
        path = Path(folder.name) / "server"
        path.write_bytes(binary)
        path.chmod(0o500)
        return _Program(str(path), folder)
    path = Path(binary).absolute()
    if not path.is_file():
        raise RPCError(f"{path} does not exist")
    if not os.access(path, os.X_OK):
        raise RPCError(f"{path} is not executable")
    return _Program(str(path))


def _open(url: str, port: int, key: str, secret: Secret | None, tls: Tls) -> SocketChannel:
    """Connect to a server, and have the connection accepted."""
    try:
        sock = (None if tls else base.connect_here(url, port)) or socket.create_connection((url, port), _WAIT_SECONDS)
        sock.settimeout(_WAIT_SECONDS)
    except OSError as e:
        raise RPCError(f"cannot connect to {url}:{port}", found=str(e)) from e
    try:
        if tls:
            sock = client_tls(sock, url, tls)
        name = f"client:{key}"
        sock.sendall(base.named(base.RPC_MAGIC, name))
        (code,) = struct.unpack("<i", base.recvall(sock, 4))
        if secret is not None:
            if code == base.RPC_CODE_SUCCESS:
                raise RPCError(
                    "the server asks for no secret, so it may not be the one that is meant",
                    where=f"{url}:{port}",
                    help="connect without secret=",
                )
            if code == base.RPC_CODE_CHALLENGE:
                prove(sock, secret, name)
                (code,) = struct.unpack("<i", base.recvall(sock, 4))
        if code != base.RPC_CODE_SUCCESS:
            what = _REFUSALS.get(code, "this is no server of the protocol")
            raise RPCError(what, where=f"{url}:{port}", found=f"key={key!r}")
        (size,) = struct.unpack("<i", base.recvall(sock, 4))
        if not 0 <= size <= base.MAX_KEY_BYTES:
            raise RPCError("this is no server of the protocol", where=f"{url}:{port}")
        base.recvall(sock, size)
    except OSError as e:
        sock.close()
        raise RPCError(f"the connection to {url}:{port} was lost before it began", found=str(e)) from e
    except BaseException:
        sock.close()
        raise
    return SocketChannel(sock)


def _through(url: str, port: int, key: str = "", _logging: bool = False, *constructor: Any) -> Channel:
    """The channel of a session with another server, for who passes packets on."""
    channel = _open(url, int(port), key, None, False)
    endpoint = RemoteEndpoint(channel, f"{url}:{port}")
    endpoint.initialize(list(constructor))
    return endpoint.detach()


def _through_program(binary: Any) -> Channel:
    endpoint = RemoteEndpoint(_popen_channel(binary), "a program")
    endpoint.initialize([])
    return endpoint.detach()


SESSION_CONSTRUCTORS["rpc.Connect"] = _through
SESSION_CONSTRUCTORS["rpc.PopenSession"] = _through_program


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None,
    enable_logging: bool = False,
    *,
    secret: Secret | None = None,
    tls: Tls = False,
) -> RPCSession:
    """Begin a session with a server.

    Parameters
    ----------
    url, port : str and int
        Where it listens.
    key : str
        The key that it has.
    session_timeout : float
        Seconds after which the server ends the session, and soon after that this side; 0 for never.
    session_constructor_args : sequence, optional
        What serves the session there instead of the server itself: ``["rpc.Connect", host, port, key, False]`` is a
        server that only this one reaches.
    enable_logging : bool
        TVM's signature has it.
    secret : str or bytes, optional
        What the server knows, too. Only Weft's have one.
    tls : bool, path or ssl.SSLContext
        Whether the connection is encrypted; a file has the certificates that are trusted.

    Raises
    ------
    RPCError
        When there is no such server, or it refuses.
    """
    if session_constructor_args is not None and not isinstance(session_constructor_args, (list, tuple)):
        raise InvalidArgument("expected the session's constructor as a list", found=repr(session_constructor_args))
    if session_timeout:
        key = f"{key} -timeout={session_timeout}"
    channel = _open(url, int(port), key, secret, tls)
    if session_timeout:
        channel.end_after(float(session_timeout) + _GRACE_SECONDS)
    endpoint = RemoteEndpoint(channel, f"{url}:{port}")
    endpoint.initialize(list(session_constructor_args or []))
    return RPCSession(RemoteModule(endpoint))


def connect_tracker(url: str, port: int) -> TrackerSession:
    """Connect to a tracker."""
    return TrackerSession((url, int(port)))


class TrackerSession:
    """A connection to a tracker, which knows what servers there are; `addr` is where it listens."""

    def __init__(self, addr: tuple[str, int]) -> None:
        self._addr = addr
        self._tracker: base.TrackerConnection | None = None
        self._connection()

    def __del__(self) -> None:
        self.close()

    def _connection(self) -> base.TrackerConnection:
        if self._tracker is None or self._tracker.sock.fileno() < 0:
            self._tracker = base.TrackerConnection(base.connect_with_retry(self._addr), self._addr)
        return self._tracker

    def close(self) -> None:
        """Close the connection."""
        tracker, self._tracker = getattr(self, "_tracker", None), None
        if tracker is not None:
            tracker.close()

    def _ask(self, *message: object) -> Any:
        answer = self._connection().ask(*message)
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] != base.TrackerCode.SUCCESS:
            raise RPCError("the tracker refuses", where=f"{self._addr[0]}:{self._addr[1]}", found=str(answer))
        return answer[1]

    def summary(self) -> dict[str, Any]:
        """Return the tracker's queues (``"queue_info"``) and servers (``"server_info"``)."""
        return codec.answered(self._ask(base.TrackerCode.SUMMARY), dict)

    def text_summary(self) -> str:
        """Return the summary as a table."""
        with reading("the tracker's summary has another form", RPCError):
            return self._table(self.summary())

    def _table(self, data: dict[str, Any]) -> str:
        line = "-" * 30 + "\n"
        text = f"Server List\n{line}{'server-address':<24} key\n{line}"
        total: dict[str, int] = {}
        for item in sorted(data["server_info"], key=lambda x: x["key"]):
            text += f"{':'.join(map(str, item['addr'])):<24} {item['key']}\n"
            kind = item["key"].split(":", 1)[-1]
            total[kind] = total.get(kind, 0) + 1
        queues: dict[str, dict[str, int]] = data["queue_info"]
        width = max((len(k) for k in queues), default=0)
        title = f"{'key':<{width}}   total  free  pending\n"
        rule = "-" * len(title) + "\n"
        text += f"{line}\nQueue Status\n{rule}{title}{rule}"
        for key in sorted(queues):
            count, free, pending = total.get(key, 0), queues[key]["free"], queues[key]["pending"]
            if count or pending:
                text += f"{key:<{width}}   {count:<5d}  {free:<4d}  {pending:<7d}\n"
        return text + rule

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None,
        *,
        secret: Secret | None = None,
        tls: Tls = False,
    ) -> RPCSession:
        """Begin a session with a server of a key, as soon as one is free.

        Parameters
        ----------
        key : str
            The kind of server.
        priority : int
            Who asks with a higher one comes first.
        session_timeout, session_constructor_args, secret, tls
            As in :func:`connect`.
        max_retry : int
            How often another server is asked for where one that was free cannot be reached.

        Raises
        ------
        RPCError
            When none could be reached.
        """
        last: Exception | None = None
        for _ in range(max_retry):
            try:
                place = self._ask(base.TrackerCode.REQUEST, key, "", priority)
                with reading("the tracker names no server: [address, port, key]", RPCError, found=place):
                    url, port, matched = str(place[0]), int(place[1]), str(place[2])
                return connect(url, port, matched, session_timeout, session_constructor_args, secret=secret, tls=tls)
            except RPCError as e:
                last = e
        raise RPCError(f"no session with a server of '{key}' after {max_retry} tries", found=str(last)) from last

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> T:
        """Run a function of a session; where the server is lost meanwhile, again with another.

        Raises
        ------
        RPCError
            When the session took too long, or all tries failed.
        """
        last: Exception | None = None
        for _ in range(max_retry):
            start = time.monotonic()
            try:
                session = self.request(key, priority=priority, session_timeout=session_timeout)
                start = time.monotonic()
                return func(session)
            except RuntimeError as e:
                if session_timeout and time.monotonic() - start >= session_timeout * 0.95:
                    name = re.sub(r"^<(.*)>$", r"\1", getattr(func, "__name__", "a function"))
                    raise RPCError(f"the session timed out while {name} ran") from e
                last = e
        raise RPCError(f"'{key}' did not run in {max_retry} tries", found=str(last)) from last
