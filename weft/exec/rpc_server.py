"""``python -m weft.exec.rpc_server``, ``weft rpc-server``: serve sessions of remote clients on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.error import InvalidArgument
from weft.exec.command import address, run
from weft.rpc.server import MAX_SESSIONS, Server


def rpc_server(
    *,
    host: str = "0.0.0.0",
    port: int = 9090,
    port_end: int = 9199,
    through_proxy: bool = False,
    tracker: str | None = None,
    key: str = "",
    silent: bool = False,
    load_library: str | None = None,
    fork: bool = True,
    custom_addr: str | None = None,
    secret_file: Path | None = None,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    max_sessions: int = MAX_SESSIONS,
) -> None:
    """Serve remote clients on this machine. Whoever is let in may run any code here.

    Parameters
    ----------
    host
        The address to listen at, or that of the proxy.
    port
        The first port to try, or that of the proxy.
    port_end
        The end of the ports to try.
    through_proxy
        Whether host and port are those of a proxy.
    tracker
        The tracker that shall know of this server, as host:port.
    key
        What clients have to name; at a tracker, the kind of this machine.
    silent
        Report errors alone.
    load_library
        Libraries to load, separated by colons.
    fork
        Whether sessions are forked from the server; otherwise each starts afresh.
    custom_addr
        The address that the tracker tells clients.
    secret_file
        A file whose first line clients have to know. TVM's clients cannot.
    tls_certificate
        A certificate in PEM; connections are encrypted then.
    tls_key
        Its private key.
    max_sessions
        Sessions at once.
    """
    tracker_addr = address(tracker)
    if tracker_addr is not None and not key:
        raise InvalidArgument("a tracker wants to know what kind of server this is", help="pass --key")
    secret = secret_file.read_text().split("\n", 1)[0].strip() if secret_file is not None else None
    server = Server(
        host,
        port,
        port_end,
        through_proxy,
        tracker_addr,
        key,
        load_library,
        custom_addr,
        silent,
        not fork,
        secret=secret,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        max_sessions=max_sessions,
    )
    assert server.proc is not None
    server.proc.join()


if __name__ == "__main__":
    sys.exit(run(rpc_server))
