"""``python -m weft.exec.query_rpc_tracker``, ``weft query-tracker``: print which servers a tracker knows."""

import os
import sys

from weft.exec.command import run
from weft.rpc.client import connect_tracker


def query_tracker(*, host: str | None = None, port: int | None = None) -> None:
    """Print which servers a tracker knows, and who waits.

    Parameters
    ----------
    host
        Where the tracker listens; else TVM_TRACKER_HOST, else this machine.
    port
        Its port; else TVM_TRACKER_PORT, else 9190.
    """
    host = host or os.environ.get("TVM_TRACKER_HOST", "127.0.0.1")
    port = port or int(os.environ.get("TVM_TRACKER_PORT", "9190"))
    tracker = connect_tracker(host, port)
    print(f"Tracker address {host}:{port}\n")
    print(tracker.text_summary())


if __name__ == "__main__":
    sys.exit(run(query_tracker))
