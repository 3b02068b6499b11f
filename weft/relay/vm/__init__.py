"""The compiler for Relay's virtual machine.

Read in this order: ``compiler``, ``codegen``, ``function_code``, ``values``, ``operators``, ``match_tree``,
``assembly``, ``liveness``, ``constants``.
"""

from weft.relay.vm.compiler import VMCompiler, bind_params, compile
from weft.runtime.relay_vm import Executable, VirtualMachine
