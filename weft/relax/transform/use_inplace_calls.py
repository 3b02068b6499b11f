"""DataflowUseInplaceCalls: element by element operators write over an operand that nothing needs any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from weft import arith, ir, op, tir
from weft.relax.analysis.memory import MemorySets, live_ranges
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir_inplace
from weft.relax.expr import BindingBlock, DataflowBlock, VarBinding
from weft.relax.infer import typed_call
from weft.relax.transform.block_pass import over_blocks
from weft.relax.transform.legalize_ops.common import legalized

Opportunity = tuple[int, set[int]]
"""The number of a binding, and the operands that its result may be written over."""


def inplace_opportunities(
    block: BindingBlock, inputs: Iterable[ir.ExprVar], mod: ir.IRModule | None = None
) -> tuple[list[Opportunity], list[Opportunity]]:
    """List the bindings that may write over operands of as many elements, and among them over those of its shape."""
    memory, live = MemorySets(inputs), live_ranges(block)
    memory.bind(block)
    found: tuple[list[Opportunity], list[Opportunity]] = ([], [])
    for i, b in enumerate(block.bindings):
        value: Any = b.value
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op) or value.op.name[6:] not in op.list_ops():
            continue
        if {"binary", "unary"} & op.get_op_def(value.op).tags:
            own = [(j, a) for j, a in enumerate(value.args) if isinstance(a, ir.ExprVar) and _ends(a, i, memory, live)]
            for chosen, measure in zip(found, (prod, tuple), strict=True):
                places = {j for j, a in own if _same(a.ty, value.ty, measure)}
                chosen += [(i, places)] if places else []
    return found


def _ends(arg: ir.ExprVar, at: int, memory: MemorySets, live: Mapping[ir.ExprVar, tuple[int, int]]) -> bool:
    """Whether a binding is the last that needs a value, and needs nothing else that may lie where it lies."""
    where = memory.of(arg)
    others = [v for v, (start, end) in live.items() if v is not arg and start < at <= end]
    return live[arg][1] == at and not where & memory.lasting.union(*(memory.within(memory.of(v)) for v in others))


def _same(a: Any, b: Any, measure: Any) -> bool:
    if not (isinstance(a, ir.TensorType) and isinstance(b, ir.TensorType) and a.shape and b.shape):
        return False
    pairs = zip(a.shape, b.shape, strict=False) if measure is tuple else [(prod(a.shape), prod(b.shape))]
    fits = a.dtype == b.dtype and (measure is prod or a.ndim == b.ndim)
    return fits and all(arith.Analyzer().can_prove(p - q == 0) for p, q in pairs)


def inplace_call(bb: BlockBuilder, call: ir.Call, indices: Sequence[int]) -> ir.Call:
    """Return the call of an operator's kernel that writes over the operand ``indices[0]``; the kernel goes to `bb`."""
    own = BlockBuilder()
    with own.testing_scope():
        plain: Any = legalized(own, call)
    operands = plain.args[1].fields
    kernel: Any = own.get()[plain.args[0]]
    place = indices[0] if len(operands) == len(call.args) else operands.index(call.args[indices[0]])
    buffers: Any = dict(kernel.buffer_map)
    old, new = buffers.pop(kernel.params[len(operands)]), buffers[kernel.params[place]]
    swapped = {old: new, old.data: new.data}

    def over(node: ir.Node) -> Any:
        return swapped[node] if node in swapped else ir.rebuild(node, over)

    params = (*kernel.params[: len(operands)], *kernel.params[len(operands) + 1 :])
    written = tir.PrimFunc(params, over(kernel.body), kernel.ret_type, buffers, kernel.attrs)
    gvar = bb.add_func(written, f"{plain.args[0].name_hint}_inplace")
    return call_tir_inplace(gvar, operands, [place], [call.ty], *plain.args[2:])


def DataflowUseInplaceCalls() -> ir.Pass:
    """Make the pass that lets operators in dataflow blocks write over an operand that nothing needs afterwards.

    The operand has the result's shape; the call is then a ``call_tir_inplace`` of a kernel of its own. Parameters, and
    what may share their memory, are never written. The cost is quadratic in the bindings of a block.
    """
    return ir.Pass("DataflowUseInplaceCalls", _run, 0, DataflowUseInplaceCalls.__doc__)


def _run(mod: ir.IRModule) -> ir.IRModule:
    bb = BlockBuilder(mod)

    def written(block: DataflowBlock, func: ir.Function) -> DataflowBlock:
        bindings = list(block.bindings)
        for i, places in inplace_opportunities(block, func.params)[1]:
            b: Any = bindings[i]
            bindings[i] = VarBinding(b.var, typed_call(inplace_call(bb, b.value, [max(places)])), span=b.span)
        return DataflowBlock(tuple(bindings), span=block.span) if bindings != list(block.bindings) else block

    for gvar, func in mod.items():
        if isinstance(func, ir.Function):
            bb.update_func(gvar, over_blocks(func, lambda b, func=func: written(b, func)))
    return bb.get()
