"""``relay.vision``: the constructors of the operators whose names begin with ``vision.``."""

from weft.relay.op.construct import namespace

__getattr__, __dir__ = namespace("vision.")
