"""Names of TVM's package of the same name: the interpreter's values and the virtual machine."""

from weft.relay.backend import interpreter, vm

__all__ = ["interpreter", "vm"]
