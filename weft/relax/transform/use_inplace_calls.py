"""DataflowUseInplaceCalls: element by element operators write over an operand that nothing needs any more.

Memory is known by number: each value has the set of what it may lie in, -1 being memory from outside of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.op import get_op_def, list_ops
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir_inplace
from weft.relax.expr import BindingBlock, DataflowVar, SeqExpr, VarBinding
from weft.relax.infer import typed_call
from weft.relax.rename import variables
from weft.relax.transform.legalize_ops.common import legalized
from weft.tir import PrimFunc

_SHARING = {
    "call_builtin_with_ctx", "call_inplace_packed", "call_pure_packed", "call_tir_inplace", "expand_dims", "flatten",
    "invoke_pure_closure", "make_closure", "memory.ensure_zero_offset", "memory.view", "nn.batch_flatten", "reshape",
    "builtin.stop_lift_params", "permute_dims", "squeeze",
}  # fmt: skip
"""Operators whose result may be, or hold, the memory of an operand."""

Opportunity = tuple[int, set[int]]
"""The number of a binding, and the operands that its result may be written over."""


class AliasSets:
    """What memory the variables of a block may lie in (``sets``), and the elements of tuples (``parts``)."""

    def __init__(self, block: BindingBlock, inputs: Iterable[ir.ExprVar]) -> None:
        self.sets: dict[ir.ExprVar, set[int]] = {}
        self.parts: dict[int, list[set[int]]] = {}
        self._opaque: set[int] = {-1}  # of which nobody knows whether it is a tuple
        self._count = 0
        for v in inputs:
            self.sets[v] = self._fresh(v.ty)
        for b in block.bindings:
            self.sets[b.var] = self._of(b.value)

    def within(self, places: Iterable[int]) -> set[int]:
        """Return places and what the tuples that lie there hold."""
        found: set[int] = set()
        todo = list(places)
        while todo:
            i = todo.pop()
            todo += [] if i in found else [j for part in self.parts.get(i, ()) for j in part]
            found.add(i)
        return found

    def _fresh(self, ty: ir.Type | None) -> set[int]:
        place = self._count
        self._count += 1
        if isinstance(ty, ir.TupleType):
            self.parts[place] = [self._fresh(t) for t in ty.fields]
        elif not isinstance(ty, ir.TensorType):
            self._opaque.add(place)
        return {place}

    def _of(self, value: Any) -> set[int]:
        if isinstance(value, ir.ExprVar):
            return self.sets.get(value, {-1})
        if isinstance(value, ir.Tuple):
            made = self._fresh(ir.TupleType(()))
            self.parts[min(made)] = [self._of(f) for f in value.fields]
            return made
        if isinstance(value, ir.TupleGetItem):
            held = self._of(value.tuple_value)
            known = [self.parts[i][value.index] for i in held if len(self.parts.get(i, ())) > value.index]
            return set().union(*known, self.within(held) | {-1} if held & self._opaque or not known else ())
        if isinstance(value, ir.Call) and isinstance(value.op, ir.Op):
            if value.op.name.removeprefix("relax.") not in _SHARING:
                return self._fresh(value.ty)
        own = set().union(*(self.within(self._of(v)) for v in variables(value)), self._fresh(value.ty))
        for i in [i for i in own if i in self.parts and isinstance(value.ty, ir.TupleType)][-1:]:
            own = self.within(own)
            self.parts[i] = [own for _ in self.parts[i]]
        return own


def live_ranges(block: BindingBlock) -> dict[ir.ExprVar, tuple[int, int]]:
    """Say from and to which binding each variable is needed: from -1, or to the length, where it is outside too."""
    count = len(block.bindings)
    ranges: dict[ir.ExprVar, tuple[int, int]] = {}
    for i, b in enumerate(block.bindings):
        for v in variables(b.value):
            start, end = ranges.get(v, (-1, count))
            ranges[v] = (start, end if end == count else i)
        ranges[b.var] = (i, i if isinstance(b.var, DataflowVar) else count)
    return ranges


def inplace_opportunities(
    block: BindingBlock, inputs: Iterable[ir.ExprVar]
) -> tuple[list[Opportunity], list[Opportunity]]:
    """List the bindings that may write over operands of as many elements, and among them over those of its shape."""
    aliases, live = AliasSets(block, inputs), live_ranges(block)
    by_size: list[Opportunity] = []
    by_shape: list[Opportunity] = []
    for i, b in enumerate(block.bindings):
        if not _is_elementwise(b.value):
            continue
        own = {
            j: a.ty
            for j, a in enumerate(b.value.args)
            if isinstance(a, ir.ExprVar) and live[a][1] == i and _is_alone(a, i, aliases, live)
        }
        size = {j for j, ty in own.items() if _same(ty, b.value.ty, prod)}
        shape = {j for j in size if _same(own[j], b.value.ty, tuple)}
        by_size += [(i, size)] if size else []
        by_shape += [(i, shape)] if shape else []
    return by_size, by_shape


def _is_elementwise(value: Any) -> bool:
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op) or not isinstance(value.ty, ir.TensorType):
        return False
    name = value.op.name.removeprefix("relax.")
    return name in list_ops() and bool({"binary", "unary"} & set(get_op_def(name).tags))


def _is_alone(arg: ir.ExprVar, at: int, aliases: AliasSets, live: Mapping[ir.ExprVar, tuple[int, int]]) -> bool:
    """Whether nothing that a binding or one behind it needs may lie where `arg` lies."""
    where = aliases.sets.get(arg, {-1})
    others = (v for v, (start, end) in live.items() if v is not arg and start < at <= end)
    return -1 not in where and not any(aliases.within(aliases.sets.get(v, {-1})) & where for v in others)


def _same(a: Any, b: Any, measure: Any) -> bool:
    if not isinstance(a, ir.TensorType) or a.dtype != b.dtype or a.shape is None or b.shape is None:
        return False
    x, y = measure(a.shape), measure(b.shape)
    pairs = zip(x, y, strict=False) if isinstance(x, tuple) else [(x, y)]
    return (measure is prod or a.ndim == b.ndim) and all(Analyzer().can_prove(p - q == 0) for p, q in pairs)


def inplace_call(bb: BlockBuilder, call: ir.Call, indices: Sequence[int]) -> ir.Call:
    """Return the call of an operator's kernel that writes over the operand ``indices[0]``; the kernel goes to `bb`."""
    own = BlockBuilder()
    with own.testing_scope():
        plain: Any = legalized(own, call)
    gvar, operands = plain.args[0], plain.args[1].fields
    kernel: Any = own.get()[gvar]
    place = indices[0] if len(operands) == len(call.args) else operands.index(call.args[indices[0]])
    result = kernel.params[len(operands)]
    old, new = kernel.buffer_map[result], kernel.buffer_map[kernel.params[place]]
    swapped = {old: new, old.data: new.data}

    def over(node: Any) -> Any:
        return swapped[node] if node in swapped else ir.rebuild(node, over)

    written = PrimFunc(
        tuple(p for p in kernel.params if p is not result),
        over(kernel.body),
        kernel.ret_type,
        {p: b for p, b in kernel.buffer_map.items() if p is not result},
        kernel.attrs,
    )
    return call_tir_inplace(
        bb.add_func(written, f"{gvar.name_hint}_inplace"), operands, [place], [call.ty], *plain.args[2:]
    )


@ir.module_pass(name="DataflowUseInplaceCalls", opt_level=0)
def dataflow_use_inplace_calls(mod: ir.IRModule) -> ir.IRModule:
    """Let operators write over an operand of the result's shape that nothing needs afterwards.

    Requires: ``relax.as_written``.
    Ensures: ``relax.as_written``. What has such an operand in a dataflow block is a ``call_tir_inplace`` of a kernel of
        its own; parameters, and what may share their memory, are never written.
    Cost: quadratic in the bindings of a block.
    Source: TVM's DataflowUseInplaceCalls.
    """
    bb = BlockBuilder(mod)
    for gvar, func in mod.items():
        if not isinstance(func, ir.Function) or not isinstance(func.body, SeqExpr):
            continue
        seq = func.body
        blocks = tuple(_over_operands(b, func.params, bb) for b in seq.blocks)
        if any(a is not b for a, b in zip(blocks, seq.blocks, strict=True)):
            bb.update_func(gvar, func.replace(body=SeqExpr(blocks, seq.body, span=seq.span, ty=seq.ty)))
    return bb.get()


def _over_operands(block: BindingBlock, inputs: Sequence[ir.ExprVar], bb: BlockBuilder) -> BindingBlock:
    chosen = dict(inplace_opportunities(block, inputs)[1]) if type(block) is not BindingBlock else {}
    bindings = list(block.bindings)
    for i, places in chosen.items():
        b: Any = bindings[i]
        bindings[i] = VarBinding(b.var, typed_call(inplace_call(bb, b.value, [max(places)])), span=b.span)
    return type(block)(tuple(bindings), span=block.span) if chosen else block
