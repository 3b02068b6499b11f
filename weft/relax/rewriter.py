"""Rewriting functions binding by binding: the loop that most Relax passes share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Any

from weft.ir import Constant, Expr, ExprVar, Function, If, IRModule, PrimValue, ShapeExpr, structural_equal
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.rename import rename_vars, replace_value, variables, with_sequences

Rule = Callable[[Any, Expr, BlockBuilder], "Expr | None"]
_RESULT_ATOMS = (ExprVar, Constant, ShapeExpr, PrimValue)


def rewrite_bindings(func: Function, mod: IRModule, rule: Rule, bb: BlockBuilder | None = None) -> Function:
    """Rewrite each binding of a function in normal form.

    Parameters
    ----------
    rule : callable
        ``rule(binding, value, bb) -> Expr or None``: `value` is the binding's value with earlier replacements
        applied. None keeps it; another expression replaces it (an atom replaces the variable itself); ``bb.emit``
        adds bindings before it.
    bb : BlockBuilder, optional
        The builder to emit through, when the rule adds functions to its module.

    Returns
    -------
    Function
        `func` itself when nothing changed.
    """
    state = _State(rule, bb or BlockBuilder(mod))
    return func.replace(body=state.seq(func.body) if isinstance(func.body, SeqExpr) else func.body)


class _State:
    """One rewrite: the variables replaced so far."""

    def __init__(self, rule: Rule, bb: BlockBuilder) -> None:
        self.rule, self.bb = rule, bb
        self.renamed: dict[Expr, Expr] = {}

    def seq(self, seq: SeqExpr) -> SeqExpr:
        """Rewrite a sequence; the same object if nothing changed."""
        changed = False
        with self.bb.scope() as inner:
            for block in seq.blocks:
                self.bb.open_block(inner, dataflow=isinstance(block, DataflowBlock))
                for binding in block.bindings:
                    changed |= self.binding(binding)
            body = rename_vars(seq.body, self.renamed)
            if not changed and body is seq.body:
                return seq
            return self.bb.finish(inner, body)

    def binding(self, binding: Binding) -> bool:
        """Rewrite one binding into the builder; whether anything changed."""
        before = len(self.bb.bindings())
        value = rename_vars(binding.value, self.renamed) if self.renamed else binding.value
        value = with_sequences(value, lambda s: self.seq(s) if isinstance(s, SeqExpr) else s)
        self.bb.span = binding.span  # what the rule emits comes from where the binding comes from
        replaced = self.rule(binding, value, self.bb)
        if replaced is None or replaced is binding.value:
            replaced = value
        if replaced is binding.value and len(self.bb.bindings()) == before:
            self.bb.emit_normalized(binding)
            return False
        checked = any(isinstance(b, MatchCast) for b in self.bb.bindings()[before:])
        self._emit(binding, replaced, checked)
        return True

    def _emit(self, binding: Binding, replaced: Expr, checked: bool) -> None:
        var = binding.var
        if isinstance(binding, MatchCast) and not checked:  # whatever becomes of the value, it is checked
            self.bb.emit_normalized(MatchCast(var, self.bb.atom(replaced), binding.ty, span=binding.span))
            return
        outer_span, self.bb.span = self.bb.span, binding.span
        new = self.bb.normalize(replaced)
        escapes = not isinstance(var, DataflowVar)
        if isinstance(new, _RESULT_ATOMS) and not (escapes and isinstance(new, DataflowVar)):
            self.renamed[var] = new
        else:
            ty = new.ty  # type: ignore[attr-defined]
            if ty is var.ty or structural_equal(ty, var.ty):
                target = var
            else:
                target = type(var)(var.name_hint, ty, span=var.span)
                self.renamed[var] = target
            self.bb.emit_normalized(VarBinding(target, new, span=binding.span))
        self.bb.span = outer_span


def localize(bindings: Iterable[Any], outside: Container[Expr], renamed: dict[Expr, Expr]) -> list[Any]:
    """Make the variables of a block that nothing uses `outside` dataflow variables, which `renamed` gets."""
    out: list[Any] = []
    for b in bindings:
        var = b.var
        if var not in outside and not isinstance(var, DataflowVar):
            var = renamed[b.var] = DataflowVar(var.name_hint, var.ty, span=var.span)
        out.append(replace_value(b, rename_vars(b.value, renamed), var))
    return out


def all_bindings(func: Function) -> list[Any]:
    """List the bindings of a function in order, those inside branches included."""
    out: list[Any] = []

    def visit(seq: Any) -> None:
        if not isinstance(seq, SeqExpr):
            return
        for block in seq.blocks:
            for b in block.bindings:
                if isinstance(b.value, If):
                    visit(b.value.true_branch)
                    visit(b.value.false_branch)
                elif isinstance(b.value, Function):
                    visit(b.value.body)
                out.append(b)

    visit(func.body)
    return out


def use_counts(func: Function) -> dict[Expr, int]:
    """Count how often each variable is used."""
    return dict(Counter(variables(func.body)))
