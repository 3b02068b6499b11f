"""``relay.nn``: the constructors of the operators whose names begin with ``nn.``."""

from weft.relay.op.construct import namespace

__getattr__, __dir__ = namespace("nn.")
