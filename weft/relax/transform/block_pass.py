"""Passes over dataflow blocks, as TVM's programs write them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import Function, IRModule, Pass, PassContext, with_fields
from weft.relax.expr import DataflowBlock, SeqExpr


def dataflowblock_pass(
    pass_func: Callable[..., DataflowBlock] | type | None = None, opt_level: int = 0, name: str | None = None,
    required: Sequence[str] | None = None, traceable: bool = False,
) -> Any:  # fmt: skip
    """Make a pass of ``fn(block, mod, ctx) -> DataflowBlock``, or of a class with ``transform_dataflowblock``.

    Variables that leave a block (``R.output``) must stay the same variables.
    """

    def make(fn: Any) -> Any:
        def as_pass(body: Callable[..., DataflowBlock]) -> Pass:
            return Pass(name or fn.__name__, functools.partial(_over_blocks, body), opt_level, fn.__doc__)

        if not isinstance(fn, type):
            return as_pass(fn)

        @functools.wraps(fn, updated=())
        def construct(*args: Any, **options: Any) -> Pass:
            instance: Any = fn(*args, **options)
            return as_pass(instance.transform_dataflowblock)

        return construct

    return make if pass_func is None else make(pass_func)


def _over_blocks(fn: Callable[..., DataflowBlock], mod: IRModule) -> IRModule:
    context = PassContext.current()

    def over(func: Any) -> Any:
        return over_blocks(func, lambda b: fn(b, mod, context)) if isinstance(func, Function) else func

    return mod.with_functions({v: over(f) for v, f in mod.items()})


def over_blocks(func: Function, fn: Callable[[DataflowBlock], DataflowBlock]) -> Function:
    """Return a function with other dataflow blocks; the function itself where none changed."""
    seq: Any = func.body
    if not isinstance(seq, SeqExpr):
        return func
    blocks = tuple(fn(b) if isinstance(b, DataflowBlock) else b for b in seq.blocks)
    return func.replace(body=with_fields(seq, blocks=blocks))
