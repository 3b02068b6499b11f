"""Remote calls: sessions with servers on other machines, over TVM's wire protocol."""

from weft.rpc.client import LocalSession, PopenSession, RPCSession, TrackerSession, connect, connect_tracker
