"""The compiler of the virtual machine, under TVM's names."""

from weft.relay.vm import VMCompiler, compile

__all__ = ["VMCompiler", "compile"]
