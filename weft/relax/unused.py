"""Dropping bindings whose variables nothing uses."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.ir import Expr, Function, If, IRModule
from weft.relax.effects import is_foreign, is_removable
from weft.relax.expr import DataflowBlock, MatchCast, SeqExpr, VarBinding
from weft.relax.rename import variables
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
        if len(kept) == len(block.bindings) and all(a is b for a, b in zip(kept, block.bindings, strict=True)):
            blocks.append(block)
        elif kept:
            blocks.append(type(block)(tuple(kept), span=block.span))
    blocks.reverse()
    if len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
        return seq
    return SeqExpr(tuple(blocks), seq.body, span=seq.span, ty=seq.ty)


def _inside(binding: Any, counts: dict[Expr, int], mod: IRModule | None) -> Any:
    value = binding.value
    if isinstance(value, If):
        old = (value.true_branch, value.false_branch)
        new = tuple(_prune(b, counts, mod) if isinstance(b, SeqExpr) else b for b in old)
        changed = new[0] is not old[0] or new[1] is not old[1]
        value = If(value.cond, *new, span=value.span, ty=value.ty) if changed else value
    elif isinstance(value, Function) and isinstance(value.body, SeqExpr):
        body = _prune(value.body, counts, mod)
        value = value.replace(body=body)
    return binding if value is binding.value else VarBinding(binding.var, value, span=binding.span)
