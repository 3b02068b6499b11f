"""EliminateCommonSubexpr for programs: what is computed again becomes another name of what is there.

The names stay, so that whoever looks for a binding finds it, and what was computed is known in branches and in the
blocks that follow, where its variable is visible. The default pipeline's ``eliminate_common_subexpr`` drops the names.
"""

from typing import Any

from weft import ir
from weft.arith.context import structural_key
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import Binding, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.rename import rename_vars, with_sequences
from weft.relax.rewriter import replace_value
from weft.relax.transform.block_pass import over_functions


def EliminateCommonSubexpr(call_only: bool = False) -> ir.Pass:
    """Make the pass that computes equal pure operations once.

    Parameters
    ----------
    call_only : bool
        Whether only calls are looked at, not tuples, their elements and casts.
    """
    return over_functions(EliminateCommonSubexpr, lambda f, mod: Eliminator(f, mod, call_only).function(f), 1)


class Eliminator:
    """Walks a function with what is computed so far: the variables of each operation, the first of them first."""

    def __init__(self, func: ir.Function, mod: ir.IRModule, call_only: bool, names: bool = True) -> None:
        self.mod, self.mutable = mod, mutable_variables(func, mod)
        self.kinds = (ir.Call,) if call_only else (ir.Call, ir.Tuple, ir.TupleGetItem)
        self.casts, self.names = not call_only, names
        self.known: dict[Any, list[Any]] = {}
        self.renamed: dict[ir.Expr, ir.Expr] = {}

    def function(self, func: ir.Function) -> ir.Function:
        """Return a function with its operations computed once."""
        return func.replace(body=self.apart(func.body))

    def apart(self, seq: Any) -> Any:
        """Rewrite a sequence that sees what is known, of which nothing is known behind it."""
        if not isinstance(seq, SeqExpr):
            return seq
        saved = {k: list(v) for k, v in self.known.items()}, dict(self.renamed)
        blocks = []
        for block in seq.blocks:
            bindings = tuple(new for b in block.bindings if (new := self.binding(b)) is not None)
            blocks.append(ir.with_fields(block, bindings=bindings))
            self.leave_block()
        body = rename_vars(seq.body, self.renamed)
        self.known, self.renamed = saved
        return ir.with_fields(seq, blocks=tuple(blocks), body=body)

    def leave_block(self) -> None:
        """Forget the variables that are visible inside of the block only."""
        self.known = {k: [v for v in vs if not isinstance(v, DataflowVar)] for k, vs in self.known.items()}
        self.renamed = {a: b for a, b in self.renamed.items() if not isinstance(b, DataflowVar)}

    def binding(self, b: Binding) -> Any:
        """Rewrite a binding."""
        value = with_sequences(rename_vars(b.value, self.renamed), self.apart)
        key = self.key(b, value)
        if key is None:
            return replace_value(b, value)
        found = self.known.setdefault(key, [])
        found.append(b.var)
        if len(found) == 1:
            return replace_value(b, value)
        self.renamed[b.var] = found[0]
        if not self.names and (isinstance(b.var, DataflowVar) or not isinstance(found[0], DataflowVar)):
            return None
        return VarBinding(b.var, found[0], span=b.span)

    def key(self, b: Binding, value: ir.Expr) -> Any:
        """What equal operations have in common; None where each is computed for itself."""
        if isinstance(b, MatchCast):
            return ("cast", value, hashable(b.ty)) if self.casts else None
        if not isinstance(value, self.kinds) or not is_mergeable(value, b.var, self.mutable, self.mod):
            return None
        return hashable(value)


def hashable(expr: ir.Node) -> Any:
    """Return a key, equal for equal operations on identical variables."""
    if isinstance(expr, ir.Call):
        return ("call", expr.op, tuple(hashable(a) for a in expr.args), structural_key((expr.attrs, expr.ty_args)))
    if isinstance(expr, ir.TupleGetItem):
        return ("item", hashable(expr.tuple_value), expr.index)
    if isinstance(expr, ir.Tuple):
        return ("tuple", tuple(hashable(f) for f in expr.fields))
    if isinstance(expr, (ir.ShapeExpr, ir.PrimValue)):
        return ("scalar", structural_key(expr.values if isinstance(expr, ir.ShapeExpr) else expr.value))
    if isinstance(expr, ir.Constant):
        return ("constant", expr.data)
    return structural_key(expr) if isinstance(expr, ir.Type) else expr
