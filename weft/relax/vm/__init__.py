"""From Relax to executables of the virtual machine.

``codegen`` walks functions, ``exec_builder`` assembles bytecode, ``vmtir`` writes bytecode as TIR functions.
"""

from weft.relax.vm.codegen import vm_codegen
from weft.relax.vm.exec_builder import ExecBuilder
from weft.relax.vm.vmtir import vmtir_codegen
