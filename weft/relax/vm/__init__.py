"""From Relax to executables of the virtual machine.

``codegen`` walks functions, ``exec_builder`` assembles bytecode.
"""

from weft.relax.vm.codegen import vm_codegen
from weft.relax.vm.exec_builder import ExecBuilder

__all__ = ["ExecBuilder", "vm_codegen"]
