"""Dropping bindings whose variables nothing uses."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.ir import Expr, Function, IRModule, with_fields
from weft.relax.effects import is_foreign, is_removable
from weft.relax.expr import Binding, DataflowBlock, MatchCast, SeqExpr
from weft.relax.rename import replace_value, variables, with_sequences
from weft.relax.rewriter import use_counts


def remove_all_unused(func: Function | SeqExpr, mod: IRModule | None = None) -> Any:
    """Drop the bindings of operations without effects whose variables nothing uses, those inside of branches included.

    Outside of dataflow blocks calls into functions that are not the module's stay, whatever is said of them.

    Parameters
    ----------
    func : Function or SeqExpr
    mod : IRModule, optional
        Where the functions that `func` calls are found; calls of others stay.

    Returns
    -------
    Function or SeqExpr
        `func` itself when everything is used.
    """
    if isinstance(func, SeqExpr):
        return _prune(func, dict(Counter(variables(func))), mod)
    if not isinstance(func.body, SeqExpr):
        return func
    return func.replace(body=_prune(func.body, use_counts(func), mod))


def _prune(seq: SeqExpr, counts: dict[Expr, int], mod: IRModule | None) -> SeqExpr:
    blocks: list[Any] = []
    for block in reversed(seq.blocks):
        kept: list[Any] = []
        anywhere = isinstance(block, DataflowBlock)
        for b in reversed(block.bindings):
            droppable = not counts.get(b.var) and not isinstance(b, MatchCast) and is_removable(b.value, mod)
            if droppable and (anywhere or not is_foreign(b.value)):
                for v in variables(b.value):
                    counts[v] -= 1
            else:
                kept.append(_inside(b, counts, mod))
        kept.reverse()
        if kept or not block.bindings:
            blocks.append(with_fields(block, bindings=tuple(kept)))
    return with_fields(seq, blocks=tuple(reversed(blocks)))


def _inside(binding: Binding, counts: dict[Expr, int], mod: IRModule | None) -> Any:
    value = with_sequences(binding.value, lambda s: _prune(s, counts, mod) if isinstance(s, SeqExpr) else s)
    return replace_value(binding, value)
