"""``python -m weft.exec.rpc_proxy``, ``weft rpc-proxy``: pass on what servers behind a firewall and clients send."""

import sys

from weft.exec.command import address, run
from weft.rpc.proxy import Proxy


def rpc_proxy(
    *, host: str = "127.0.0.1", port: int = 9090, port_end: int = 9199, tracker: str | None = None, web_port: int = 0
) -> None:
    """Pass on what servers behind a firewall and their clients send each other.

    Parameters
    ----------
    host
        The address to listen at.
    port
        The first port to try.
    port_end
        The end of the ports to try.
    tracker
        The tracker that shall know of the servers, as host:port.
    web_port
        Where pages of browsers may come as servers, over WebSockets; 0 for nowhere.
    """
    proxy = Proxy(host, port, port_end, web_port, tracker_addr=address(tracker))
    assert proxy.proc is not None
    proxy.proc.join()


if __name__ == "__main__":
    sys.exit(run(rpc_proxy))
