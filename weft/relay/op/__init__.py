"""Relay's operators, in the order of reading: ``registry``, then a family a file."""

from weft.relay.op import memory as _memory
from weft.relay.op import tensor as _tensor
from weft.relay.op import vm as _vm
from weft.relay.op.registry import RelayOp, declare, expand, get, has, infer_call, list_ops, op_call, relay_type, shared

__all__ = ["RelayOp", "declare", "expand", "get", "has", "infer_call", "list_ops", "op_call", "relay_type", "shared"]
