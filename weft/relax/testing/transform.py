"""What lies inside of passes, for tests that look there (``tvm.relax.testing.transform``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir import Call, Expr, ExprVar, IRModule
from weft.relax.analysis.memory import MemorySets
from weft.relax.analysis.memory import live_ranges as dataflow_liveness_analysis
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import BindingBlock
from weft.relax.transform import Normalize as ApplyEmptyCppMutator
from weft.relax.transform.use_inplace_calls import inplace_call
from weft.relax.transform.use_inplace_calls import inplace_opportunities as dataflow_inplace_analysis

__all__ = [
    "ApplyEmptyCppMutator",
    "dataflow_alias_analysis",
    "dataflow_inplace_analysis",
    "dataflow_liveness_analysis",
    "dataflow_single_inplace_call",
]


def dataflow_alias_analysis(
    block: BindingBlock, inputs: Iterable[ExprVar]
) -> tuple[dict[Expr, set[int]], dict[int, list[set[int]]]]:
    """Return the numbers of what memory each variable may lie in, and those of the elements of tuples."""
    found = MemorySets(inputs)
    found.bind(block)
    return found.sets, found.parts


def dataflow_single_inplace_call(mod: IRModule, call: Call, inplace_indices: Sequence[int]) -> tuple[Call, IRModule]:
    """Return the call that writes over an operand, and the module with its kernel."""
    bb = BlockBuilder(mod)
    return inplace_call(bb, call, inplace_indices), bb.get()
