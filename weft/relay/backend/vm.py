"""The compiler and the executor of the virtual machine, under TVM's names."""

from weft.relay.executor import VMExecutor
from weft.relay.vm import VMCompiler, compile

__all__ = ["VMCompiler", "VMExecutor", "compile"]
