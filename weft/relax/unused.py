"""Dropping bindings whose variables nothing uses."""

from __future__ import annotations

from typing import Any

from weft.ir import Call, Function, If
from weft.relax.expr import MatchCast, SeqExpr, VarBinding
from weft.relax.infer import is_pure_call
from weft.relax.rename import variables
from weft.relax.rewriter import use_counts

__all__ = ["remove_all_unused"]


def remove_all_unused(func: Function) -> Function:
    """Drop the bindings of pure operations whose variables nothing uses, those inside of branches included.

    Returns
    -------
    Function
        `func` itself when everything is used.
    """
    if not isinstance(func.body, SeqExpr):
        return func
    body = _prune(func.body, use_counts(func))
    return func if body is func.body else func.replace(body=body)


def _prune(seq: SeqExpr, counts: dict[int, int]) -> SeqExpr:
    blocks: list[Any] = []
    for block in reversed(seq.blocks):
        kept: list[Any] = []
        for b in reversed(block.bindings):
            if not counts.get(id(b.var)) and _removable(b):
                for v in variables(b.value):
                    counts[id(v)] -= 1
            else:
                kept.append(_inside(b, counts))
        kept.reverse()
        if len(kept) == len(block.bindings) and all(a is b for a, b in zip(kept, block.bindings, strict=True)):
            blocks.append(block)
        elif kept:
            blocks.append(type(block)(tuple(kept), span=block.span))
    blocks.reverse()
    if len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
        return seq
    return SeqExpr(tuple(blocks), seq.body, span=seq.span, ty=seq.ty)


def _inside(binding: Any, counts: dict[int, int]) -> Any:
    value = binding.value
    if isinstance(value, If):
        old = (value.true_branch, value.false_branch)
        new = tuple(_prune(b, counts) if isinstance(b, SeqExpr) else b for b in old)
        changed = new[0] is not old[0] or new[1] is not old[1]
        value = If(value.cond, *new, span=value.span, ty=value.ty) if changed else value
    elif isinstance(value, Function) and isinstance(value.body, SeqExpr):
        body = _prune(value.body, counts)
        value = value if body is value.body else value.replace(body=body)
    return binding if value is binding.value else VarBinding(binding.var, value, span=binding.span)


def _removable(binding: Any) -> bool:
    if isinstance(binding, MatchCast):
        return False
    return _is_pure(binding.value)


def _is_pure(value: Any) -> bool:
    if isinstance(value, Call):
        return is_pure_call(value)
    if isinstance(value, If):
        branches = [value.true_branch, value.false_branch]
        seqs = [b for b in branches if isinstance(b, SeqExpr)]
        inner = [b for seq in seqs for block in seq.blocks for b in block.bindings]
        return all(_removable(b) for b in inner) and all(_is_pure(b) for b in branches if not isinstance(b, SeqExpr))
    return True
