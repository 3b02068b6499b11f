"""``relay.dyn``: the constructors of the operators whose names begin with ``dyn.``."""

from weft.relay.op.construct import namespace

__getattr__, __dir__ = namespace("dyn.")
