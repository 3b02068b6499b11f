"""Remote calls: sessions with servers on other machines, over TVM's wire protocol (`docs/rpc.md`).

Reading order: `base` (how connections begin), `codec` (packets as bytes), `channel`, `service` (the serving side of a
session, with `memory`, `folder`, `functions`, `machine`), `endpoint` and `remote` (the client's side), `client`;
`loop`, `process`, `trust`, `server`, `tracker`, `proxy`.
"""

from typing import Any

import weft.ffi  # isort: skip - loads tvm_ffi, without what it would load besides
from weft.rpc import base, client, proxy, server, testing, tracker
from weft.rpc.client import LocalSession, PopenSession, RPCSession, TrackerSession, connect, connect_tracker
from weft.rpc.server import Server


def __getattr__(name: str) -> Any:
    if name in ("with_minrpc", "minrpc"):
        raise AttributeError(
            f"weft.rpc has no '{name}': Weft's server is Python; PopenSession runs servers that are not"
        )
    raise AttributeError(f"module 'weft.rpc' has no attribute '{name}'")
