"""What makes passes over the functions of a module, and over dataflow blocks, as TVM's programs write them."""

from collections.abc import Callable
from typing import Any

from weft.ir import Function, IRModule, Pass, PassContext, with_fields
from weft.ir.pass_decorators import pass_decorator
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import DataflowBlock, SeqExpr
from weft.relax.rewriter import Rule, rewrite_bindings
from weft.relax.unused import remove_all_unused


def over_functions(face: Callable[..., Pass], rewrite: Callable[[Any, IRModule], Any], opt_level: int = 0) -> Pass:
    """Make the pass that `face` returns, with its name and text: ``rewrite(function, mod)`` of each function."""

    def run(mod: IRModule) -> IRModule:
        return mod.with_functions({v: rewrite(f, mod) if isinstance(f, Function) else f for v, f in mod.items()})

    return Pass(face.__name__, run, opt_level, face.__doc__)


def over_bindings(face: Callable[..., Pass], rule_of: Callable[[Function, IRModule], Rule]) -> Pass:
    """Make the pass that `face` returns: each function's rule for its bindings, which may add functions."""

    def run(mod: IRModule) -> IRModule:
        bb = BlockBuilder(mod)
        for gvar, func in mod.items():
            if isinstance(func, Function):
                new = rewrite_bindings(func, mod, rule_of(func, mod), bb)
                bb.update_func(gvar, func if new is func else remove_all_unused(new, bb.module))
        return mod.with_functions(bb.get().functions)

    return Pass(face.__name__, run, 0, face.__doc__)


def over_blocks(func: Function, fn: Callable[[DataflowBlock], DataflowBlock]) -> Function:
    """Return a function with other dataflow blocks; the function itself where none changed."""
    seq: Any = func.body
    if not isinstance(seq, SeqExpr):
        return func
    blocks = tuple(fn(b) if isinstance(b, DataflowBlock) else b for b in seq.blocks)
    return func.replace(body=with_fields(seq, blocks=blocks))


def _over_blocks(fn: Callable[..., DataflowBlock], mod: IRModule) -> IRModule:
    context = PassContext.current()

    def over(func: Any) -> Any:
        return over_blocks(func, lambda b: fn(b, mod, context)) if isinstance(func, Function) else func

    return mod.with_functions({v: over(f) for v, f in mod.items()})


dataflowblock_pass = pass_decorator(_over_blocks, "transform_dataflowblock")
"""Make a pass of ``fn(block, mod, ctx) -> DataflowBlock``, or of a class with ``transform_dataflowblock``.

Variables that leave a block (``R.output``) must stay the same variables.
"""
