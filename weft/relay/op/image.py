"""``relay.image``: the constructors of the operators whose names begin with ``image.``."""

from weft.relay.op.construct import namespace

__getattr__, __dir__ = namespace("image.")
