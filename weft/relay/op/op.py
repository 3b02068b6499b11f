"""``relay.op.op``: operators by name, as nodes."""

from __future__ import annotations

from weft.ir import Op
from weft.relay.op import registry
from weft.relay.op.pattern import OpPattern, register_pattern

__all__ = ["OpPattern", "get", "register_pattern"]


def get(name: str) -> Op:
    """Return the node of an operator, which calls refer to: ``relay.op.get("nn.dense")``.

    Raises
    ------
    UnsupportedOperator
        When there is no such operator; the message lists near names.
    """
    return registry.get(name).op
