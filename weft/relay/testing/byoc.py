"""An annotator for tests of external compilers."""

from typing import Any

from weft.relay.expr import Call, Var
from weft.relay.expr_functor import ExprMutator
from weft.relay.op.annotation import compiler_begin, compiler_end

_CHAIN = ("add", "subtract", "multiply")


class CcompilerAnnotator(ExprMutator):
    """Gives each ``multiply(subtract(add(a, b), c), d)`` to the compiler ``ccompiler``, as one region."""

    def visit_call(self, call: Any) -> Any:
        """Enclose a chain that ends here; what is no chain stays."""
        chain = [call]
        while len(chain) < len(_CHAIN) and isinstance(chain[-1].args[0] if chain[-1].args else None, Call):
            chain.append(chain[-1].args[0])
        if tuple(getattr(c.op, "name", "") for c in reversed(chain)) != _CHAIN:
            base: Any = super()
            return base.visit_call(call)
        made: Any = self._begun(chain[-1].args[0])
        for link in reversed(chain):
            made = Call(link.op, (made, self._begun(link.args[1])), link.attrs)
        return compiler_end(made, "ccompiler")

    def _begun(self, value: Any) -> Any:
        return compiler_begin(value if isinstance(value, Var) else self.visit(value), "ccompiler")
