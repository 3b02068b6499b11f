"""``python -m weft.exec.rpc_tracker``, ``weft rpc-tracker``: know which servers are free, and give them to clients."""

import sys

from weft.exec.command import run
from weft.rpc.tracker import Tracker


def rpc_tracker(*, host: str = "0.0.0.0", port: int = 9190, port_end: int = 9199, silent: bool = False) -> None:
    """Know which servers are free, and give them to clients.

    Parameters
    ----------
    host
        The address to listen at.
    port
        The first port to try.
    port_end
        The end of the ports to try.
    silent
        Report errors alone.
    """
    tracker = Tracker(host, port, port_end, silent)
    assert tracker.proc is not None
    tracker.proc.join()


if __name__ == "__main__":
    sys.exit(run(rpc_tracker))
