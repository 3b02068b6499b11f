"""Servers: a process that listens, and one for each session, forked when its client has shown the key.

`Server` is what programs hold; `serve` is what its process runs. A server that a tracker knows offers itself there,
under a key of its own for each session, and has one session at a time; others have up to `max_sessions`.
"""

from __future__ import annotations

import hmac
import logging
import os
import select
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import tvm_ffi

import weft.rpc.functions
import weft.rpc.testing  # noqa: F401 - and what tests ask for
from weft.error import InvalidArgument, RPCError
from weft.rpc import base
from weft.rpc.channel import SocketChannel
from weft.rpc.codec import RPCCode, message
from weft.rpc.folder import Folder
from weft.rpc.loop import Loop, Peer, Talk, spoken_name, spoken_number
from weft.rpc.process import Served, ServingProcess, configure_logging, standard_input
from weft.rpc.service import Limits, Service
from weft.rpc.trust import NONCE_BYTES, PROOF_BYTES, nonce, proof, server_tls, verified

__all__ = ["MAX_SESSIONS", "Options", "Server", "_server_env", "serve"]

MAX_SESSIONS = 32
_PING_SECONDS = 2.0
_RETRY_SECONDS = 5.0
_UNUSED_PINGS = 3  # as long may a client that was given this server's key take to come
_GRACE_SECONDS = 2.0
_TRACKER_TIMEOUT = 10.0

logger = logging.getLogger("RPCServer")


class Options(NamedTuple):
    """What a server's process is told; see `Server`."""

    host: str
    port: int
    port_end: int
    is_proxy: bool
    tracker_addr: tuple[str, int] | None
    key: str
    load_library: str | None
    custom_addr: str | None
    silent: bool
    no_fork: bool
    reuse_addr: bool
    timeout: float | None
    secret: str | bytes | None
    tls_certificate: str | None
    tls_key: str | None
    max_sessions: int
    limits: Limits
    folder: str


class Server(Served):
    """A server, in a process of its own that ends with this object, or with this process.

    Parameters
    ----------
    host, port, port_end : str and int
        It listens at the first free port of ``[port, port_end)``; with `is_proxy`, where the proxy does.
    is_proxy : bool
        Whether it reaches its clients through a proxy.
    tracker_addr : tuple of str and int, optional
        The tracker that shall know of it.
    key : str
        What a client has to name; at a tracker, what kind of server this is.
    load_library : str, optional
        Libraries to load, separated by colons.
    custom_addr : str, optional
        The address that the tracker shall tell clients.
    silent : bool
        Whether it reports errors alone.
    no_fork : bool
        Whether sessions are processes that start afresh, where those that are forked make trouble.
    server_init_callback : callable, optional
        Is called in the server's process first, to register functions.
    reuse_addr : bool
        Whether a port may be used whose last connections are not quite over.
    timeout : float, optional
        Seconds after which any session is ended.
    secret : str or bytes, optional
        What a client has to know. TVM's clients know none.
    tls_certificate, tls_key : path, optional
        Files in PEM; with them connections are encrypted.
    max_sessions : int
        Sessions at once; further clients wait.
    limits : Limits
        What each may take.

    Notes
    -----
    Whoever is let in may run any code: the key is a name. Listen in trusted networks, or give a secret and TLS.
    """

    def __init__(
        self,
        host: str = "0.0.0.0",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], Any] | None = None,
        reuse_addr: bool = True,
        timeout: float | None = None,
        *,
        secret: str | bytes | None = None,
        tls_certificate: Any = None,
        tls_key: Any = None,
        max_sessions: int = MAX_SESSIONS,
        limits: Limits | None = None,
    ) -> None:
        if no_fork and tls_certificate is not None:
            raise InvalidArgument(
                "sessions that start afresh cannot take an encrypted connection over", help="leave no_fork out"
            )
        # this process owns it, because the server's is ended by a signal
        self._folder = tempfile.TemporaryDirectory(prefix="weft-rpc-", ignore_cleanup_errors=True)
        options = Options(
            host,
            port,
            port_end,
            is_proxy,
            tracker_addr and (tracker_addr[0], int(tracker_addr[1])),
            key,
            load_library,
            custom_addr,
            silent,
            no_fork,
            reuse_addr,
            timeout,
            secret,
            None if tls_certificate is None else str(tls_certificate),
            None if tls_key is None else str(tls_key),
            max_sessions,
            limits or Limits(),
            self._folder.name,
        )
        self.host = host
        self.proc = ServingProcess("weft.rpc.server:serve", [options], server_init_callback)
        self.port: int = self.proc.reported()

    def terminate(self) -> None:
        """End the server and its sessions, and remove their files."""
        super().terminate()
        self._folder.cleanup()


def serve(options: Options, report: Callable[[int], None]) -> None:
    """Serve in this process, until its parent ends."""
    configure_logging("RPCServer", options.silent)
    server = _Serving(options)
    report(server.port)
    with suppress(TypeError):  # a process's first error reads its libraries' symbols, for a sixth of a second
        tvm_ffi.get_global_func("ffi.ArrayGetItem")()
    server.loop.run()


class _Serving:
    """A server, in its process."""

    def __init__(self, options: Options) -> None:
        self.options, self.loop = options, Loop()
        self.port, self.n_sessions, self.match_key = options.port, 0, options.key
        self._listening: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._tracker: _TrackerLink | None = None
        self._running: set[int] = set()
        Folder(tempfile.gettempdir()).load(options.load_library)
        if options.tls_certificate is not None:
            self._tls = server_tls(options.tls_certificate, options.tls_key)
        if options.is_proxy:
            self.loop.call_later(0, self._connect_proxy)
        else:
            bound, self.port = base.listen(options.host, options.port, options.port_end, reuse=options.reuse_addr)
            here = base.listen_here(bound) if self._tls is None else None
            self._listening = [bound] if here is None else [bound, here]
            logger.info("bind to %s:%d", options.host, self.port)
            if options.tracker_addr is not None:
                self._tracker = _TrackerLink(self, options.tracker_addr)
                self.loop.call_later(0, self._tracker.tick)
            self._listen()
        self.loop.watch(standard_input, _end_group)

    @property
    def _max_sessions(self) -> int:
        return 1 if self._tracker is not None else self.options.max_sessions

    def _listen(self) -> None:
        wrap = partial(self._tls.wrap_socket, server_side=True, do_handshake_on_connect=False) if self._tls else None
        for listening in self._listening:
            self.loop.accept(listening, self._talk, wrap)

    # ---- handshakes --------------------------------------------------------------------------------------------------

    def _talk(self, peer: Peer) -> Talk:
        """Compare magic number and key, and have the secret proved, before anything else is read."""
        if (yield from spoken_number()) != base.RPC_MAGIC:
            return
        text = yield from spoken_name()
        words = text.split()
        if not words or not hmac.compare_digest(words[0].encode(), f"client:{self.match_key}".encode()):
            logger.warning("mismatch key from %s", peer.address)
            peer.write(base.number(base.RPC_CODE_MISMATCH))
            return
        if self.options.secret is not None:
            ours = nonce()
            peer.write(base.number(base.RPC_CODE_CHALLENGE) + ours)
            answer = yield NONCE_BYTES + PROOF_BYTES
            theirs, shown = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
            if not verified(shown, proof(self.options.secret, "client", text, ours, theirs)):
                logger.warning("wrong secret from %s", peer.address)
                return
            peer.write(proof(self.options.secret, "server", text, ours, theirs))
        if self.n_sessions >= self._max_sessions:  # another came first meanwhile
            peer.write(base.number(base.RPC_CODE_MISMATCH))
            return
        peer.write(base.named(base.RPC_CODE_SUCCESS, f"server:{self.options.key}"))
        self._begin(peer.take(), peer.address, _timeout(words[1:], self.options.timeout))

    def _connect_proxy(self) -> None:
        """Offer this server to a proxy, and serve whom that connects it with."""
        address = (self.options.host, self.options.port)
        try:
            sock = socket.create_connection(address, _TRACKER_TIMEOUT)
            Peer(self.loop, sock, address, self._talk_to_proxy)
        except OSError as e:
            logger.warning("cannot reach the proxy: %s, the next try is in %g s", e, _RETRY_SECONDS)
            self.loop.call_later(_RETRY_SECONDS, self._connect_proxy)

    def _talk_to_proxy(self, peer: Peer) -> Talk:
        peer.established()  # a client may come late
        peer.on_close = partial(self.loop.call_later, _RETRY_SECONDS, self._connect_proxy)
        self.loop.call_later(0, partial(peer.write, base.named(base.RPC_MAGIC, f"server:{self.options.key}")))
        code = yield from spoken_number()
        if code != base.RPC_CODE_SUCCESS:
            logger.warning("the proxy answers %d", code - base.RPC_MAGIC)
            return
        words = (yield from spoken_name()).split()
        peer.on_close = lambda: None
        self._begin(peer.take(), peer.address, _timeout(words[1:], self.options.timeout))

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def _begin(self, sock: socket.socket, address: Any, seconds: float) -> None:
        """Start the process of a session, and note when it ends."""
        self.n_sessions += 1
        logger.info("connected from %s", address)
        if self.n_sessions >= self._max_sessions:
            for listening in self._listening:
                self.loop.ignore(listening)
        try:
            pid, alive, folder, release = self._start(sock, seconds)
        except (OSError, RPCError) as e:  # there is no room for it: of the disk, of processes or of open files
            logger.error("no session for %s: %s", address, e)
            sock.close()
            self._over()
            return
        socket.close(sock.detach())  # of an encrypted one the child goes on with what both know
        self.loop.watch(alive, partial(self._ended, pid, alive, folder, address, release))
        if seconds:  # it ends itself, unless it is held up in something
            self.loop.call_later(seconds + _GRACE_SECONDS, partial(self._overdue, alive, pid))
        self._running.add(alive)

    def _start(self, sock: socket.socket, seconds: float) -> tuple[int, int, str, Callable[[], None]]:
        """The process of a session, the pipe that it holds open, its folder, and what lets go of it."""
        folder = tempfile.mkdtemp(dir=self.options.folder)
        alive, held = os.pipe()
        try:
            if not self.options.no_fork:
                return self._fork(sock, (alive, held), folder, seconds), alive, folder, lambda: None
            told = (sock.fileno(), held, folder, seconds, self.options.load_library, self.options.limits)
            process = ServingProcess("weft.rpc.server:session_afresh", told, pass_fds=(sock.fileno(), held))
            return process.pid, alive, folder, process.kill
        except BaseException:
            os.close(alive)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(held)

    def _fork(self, sock: socket.socket, pipe: tuple[int, int], folder: str, seconds: float) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            self.loop.abandon()
            os.close(pipe[0])
            run_session(sock, folder, seconds, self.options.limits)
            status = 0
        except Exception:
            logger.exception("a session failed")
        finally:
            os._exit(status)

    def _overdue(self, alive: int, pid: int) -> None:
        if alive in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ended(self, pid: int, alive: int, folder: str, address: Any, release: Callable[[], None]) -> None:
        """Free what a session left."""
        self.loop.ignore(alive)
        os.close(alive)
        self._running.discard(alive)
        release()
        with suppress(ChildProcessError):
            status = os.waitpid(pid, 0)[1]
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
                logger.error("a session crashed, by signal %d", os.WTERMSIG(status))
        shutil.rmtree(folder, ignore_errors=True)
        logger.info("finish serving %s", address)
        self._over()

    def _over(self) -> None:
        """Be free for another session."""
        self.n_sessions -= 1
        if self.options.is_proxy:
            self._connect_proxy()
            return
        if self._tracker is not None:
            self._tracker.offer()
        if self.n_sessions == self._max_sessions - 1:
            self._listen()


class _TrackerLink:
    """A server's connection to its tracker: offers the server, and a new key where the last was not used."""

    def __init__(self, serving: _Serving, address: tuple[str, int]) -> None:
        self._serving, self._address = serving, address
        self._tracker: base.TrackerConnection | None = None
        self._unused = 0
        self._old: set[str] = set()

    def tick(self) -> None:
        """Connect where there is no connection; else see whether somebody was given the key and did not come."""
        serving = self._serving
        try:
            if self._tracker is None:
                self._connect()
            elif not serving.n_sessions:
                self._unused = 0 if serving.match_key in self._tracker.pending() else self._unused + 1
                if self._unused > _UNUSED_PINGS:
                    logger.info("no incoming connections, regenerate key ...")
                    self._offer(self._tracker)
            again = _PING_SECONDS
        except (OSError, RPCError) as e:
            self._lost(e)
            again = _RETRY_SECONDS
        serving.loop.call_later(again, self.tick)

    def offer(self) -> None:
        """Tell the tracker that the server is free."""
        try:
            if self._tracker is not None:
                self._offer(self._tracker)
        except (OSError, RPCError) as e:
            self._lost(e)

    def _lost(self, error: Exception) -> None:
        logger.warning("no connection to the tracker: %s, the next try is in %g s", error, _RETRY_SECONDS)
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def _connect(self) -> None:
        options = self._serving.options
        sock = socket.create_connection(self._address, _TRACKER_TIMEOUT)
        self._tracker = base.TrackerConnection(sock, self._address)
        info = {"key": f"server:{options.key}", "addr": (options.custom_addr, self._serving.port)}
        self._tracker.tell(base.TrackerCode.UPDATE_INFO, info)
        if not self._serving.n_sessions:
            self._offer(self._tracker)

    def _offer(self, tracker: base.TrackerConnection) -> None:
        serving = self._serving
        self._old = {serving.match_key}
        serving.match_key = base.random_key(serving.options.key, cmap=self._old)
        self._unused = 0
        place = (serving.port, serving.match_key)
        tracker.tell(base.TrackerCode.PUT, serving.options.key, place, serving.options.custom_addr)


def _timeout(words: list[str], longest: float | None) -> float:
    """How many seconds a session may take, 0 for any: what its client says, and no more than the server does."""
    asked = 0.0
    for word in words:
        if word.startswith("-timeout="):
            with suppress(ValueError):
                asked = max(0.0, float(word.removeprefix("-timeout=")))
    return min(asked, longest) if asked and longest else asked or longest or 0.0


def _end_group() -> None:
    """The parent is gone: end this process and its sessions."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


# ---- the process of a session ----------------------------------------------------------------------------------------


def run_session(sock: socket.socket, folder: str, seconds: float, limits: Limits) -> None:
    """Serve one client in this process, which is for that alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir(folder)
    channel = SocketChannel(sock, limits.max_message_bytes)
    if seconds:
        timer = threading.Timer(seconds, partial(_expire, channel, seconds))
        timer.daemon = True
        timer.start()
    Service(channel, Folder(folder), limits).run()
    channel.close()


def _expire(channel: SocketChannel, seconds: float) -> None:
    text = f"RPCSessionTimeoutError: Your {seconds:g}s session has expired, try a longer session_timeout"
    with suppress(OSError):
        channel.send(message(RPCCode.EXCEPTION, [text]))
        channel.socket.shutdown(socket.SHUT_WR)
        # What the client still sends is read, so that it finds the message and not a connection that was reset.
        select.select([channel.socket], [], [], 0.05)
    os._exit(1)


def session_afresh(
    sock: int,
    held: int,
    folder: str,
    seconds: float,
    load_library: str | None,
    limits: Limits,
    report: Callable[[None], None],
) -> None:
    """Serve one client in a process that was not forked."""
    report(None)
    Folder(tempfile.gettempdir()).load(load_library)
    run_session(socket.socket(fileno=sock), folder, seconds, limits)
    os._exit(0)


def _server_env(load_library: str | list[str] | None, work_path: Any = None) -> Folder:
    """Make the folder of a session, and load libraries, under TVM's name."""
    folder = work_path if isinstance(work_path, Folder) else Folder()
    folder.load(":".join(load_library) if isinstance(load_library, list) else load_library)
    return folder
