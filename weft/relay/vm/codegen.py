"""From lowered Relay in A-normal form to instructions of the Relay machine."""

from weft.ir.deep import with_deep_stack
from weft.relay.adt import Constructor
from weft.relay.vm.constants import placed
from weft.relay.vm.function_code import FunctionCode, I, ModuleCode
from weft.relay.vm.values import value_code
from weft.runtime.relay_vm import VMFunction


class CodeUnit(ModuleCode):
    """Code of a module.

    Parameters
    ----------
    mod : IRModule
        Lowered Relay functions and the TIR functions that they call.
    """

    def compile(self) -> list[VMFunction]:
        """Compile all functions; constants get their places."""
        codes = [FunctionCode(self, name, f, value_code) for name, f in self.functions.items()]
        made = [with_deep_stack(code.compile) for code in codes]
        made += [_constructor_function(n, c) for n, c in self._wrapped.items()]
        places = self.constants.layout()
        return [f._replace(instructions=[placed(i, places) for i in f.instructions]) for f in made]


def _constructor_function(name: str, c: Constructor) -> VMFunction:
    n = len(c.inputs)
    code = [I.alloc_adt(c.tag, range(n), n), I.ret(n)]
    return VMFunction(name, [f"x{i}" for i in range(n)], n + 1, code)
