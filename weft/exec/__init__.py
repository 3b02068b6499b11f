"""Programs to start a machine's side of remote calls, under TVM's names: ``python -m weft.exec.rpc_server``.

The same are commands of ``weft``: ``weft rpc-server``, ``rpc-tracker``, ``rpc-proxy``, ``query-tracker``.
"""
