"""What lies inside of passes, for tests that look there (``tvm.relax.testing.transform``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir import Call, ExprVar, IRModule, Pass
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import BindingBlock
from weft.relax.transform import Normalize
from weft.relax.transform.use_inplace_calls import (
    AliasSets,
    Opportunity,
    inplace_call,
    inplace_opportunities,
    live_ranges,
)

dataflow_liveness_analysis = live_ranges


def ApplyEmptyCppMutator() -> Pass:
    """Make the pass that builds each expression again and so brings it to normal form."""
    return Normalize()


def dataflow_alias_analysis(
    block: BindingBlock, inputs: Iterable[ExprVar]
) -> tuple[dict[ExprVar, set[int]], dict[int, list[set[int]]]]:
    """Return the numbers of what memory each variable may lie in, and those of the elements of tuples."""
    found = AliasSets(block, inputs)
    return found.sets, found.parts


def dataflow_inplace_analysis(
    block: BindingBlock, inputs: Iterable[ExprVar], mod: IRModule
) -> tuple[list[Opportunity], list[Opportunity]]:
    """List the bindings and operands of the result's size, and of its shape, that it may be written over."""
    return inplace_opportunities(block, inputs)


def dataflow_single_inplace_call(mod: IRModule, call: Call, inplace_indices: Sequence[int]) -> tuple[Call, IRModule]:
    """Return the call that writes over an operand, and the module with its kernel."""
    bb = BlockBuilder(mod)
    return inplace_call(bb, call, inplace_indices), bb.get()
