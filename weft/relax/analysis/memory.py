"""What memory the values of a function may lie in: which share it, and which must not be written.

Places are numbers. A tuple is a place that holds others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft import ir
from weft.relax.core_ops import is_op
from weft.relax.effects import VIEWS
from weft.relax.expr import BindingBlock, DataflowVar, SeqExpr
from weft.relax.rename import variables

_CALLS = {"call_inplace_packed", "call_tir_inplace", "invoke_closure", "invoke_pure_closure"}
_SHARING = {*VIEWS, *_CALLS, "expand_dims", "flatten", "nn.batch_flatten", "permute_dims", "squeeze"}
"""Operators whose result may be, or hold, the memory of an operand, also where the machine makes views of them."""


def is_function_call(call: ir.Call) -> bool:
    """Whether a call is of a function of the module, or of a closure."""
    closures = ("invoke_closure", "invoke_pure_closure")
    return isinstance(call.op, (ir.GlobalVar, ir.ExprVar)) or any(is_op(call, name) for name in closures)


class MemorySets:
    """What places the variables may lie in (``sets``), and those of the elements of tuples (``parts``).

    Memory of which nothing is known is -1. What is ``lasting`` outlives the call, as constants do.

    Parameters
    ----------
    inputs : iterable of ExprVar
        Variables each of which has memory of its own; other unknown ones lie in -1.
    """

    def __init__(self, inputs: Iterable[ir.ExprVar] = ()) -> None:
        self.parts: dict[int, list[set[int]]] = {}
        self.lasting = {-1}
        self._opaque = {-1}  # of which nobody knows whether it is a tuple
        self._count = 0
        self.sets: dict[ir.Expr, set[int]] = {v: self.fresh(v.ty) for v in inputs}

    def bind(self, block: BindingBlock) -> None:
        """Enter the variables of a block."""
        for b in block.bindings:
            self.sets[b.var] = self.of(b.value)

    def within(self, places: Iterable[int]) -> set[int]:
        """Return places and what the tuples that lie there hold."""
        return set(ir.reached(places, lambda i: [j for part in self.parts.get(i, ()) for j in part]))

    def fresh(self, ty: ir.Type | None) -> set[int]:
        """Return a place of its own, and in it places for the elements of a tuple."""
        place = self._count
        self._count += 1
        if isinstance(ty, ir.TupleType):
            self.parts[place] = [self.fresh(t) for t in ty.fields]
        elif not isinstance(ty, ir.TensorType):
            self._opaque.add(place)
        return {place}

    def tuple_of(self, parts: Sequence[set[int]]) -> set[int]:
        """Return the place of a tuple of these elements."""
        (place,) = own = self.fresh(ir.TupleType(()))
        self.parts[place] = list(parts)
        return own

    def item(self, held: set[int], index: int) -> set[int]:
        """Return where an element of a tuple may lie."""
        known = [self.parts[i][index] for i in held if len(self.parts.get(i, ())) > index]
        return set().union(*known, self.within(held) | {-1} if held & self._opaque or not known else ())

    def of(self, value: Any) -> set[int]:
        """Return where a value may lie; of a sequence, its result."""
        if isinstance(value, ir.ExprVar):
            return self.sets.get(value, {-1})
        if isinstance(value, ir.TupleGetItem):
            return self.item(self.of(value.tuple_value), value.index)
        if isinstance(value, ir.If):
            return self.of(value.true_branch) | self.of(value.false_branch)
        if isinstance(value, SeqExpr):
            for block in value.blocks:
                self.bind(block)
            return self.of(value.body)
        if isinstance(value, ir.Call):
            return self.of_call(value)
        if isinstance(value, ir.Tuple):
            (place,) = own = self.tuple_of(())
            self.parts[place] = [self.of(f) for f in value.fields]
            return own
        return self.unknown(value, lasting=isinstance(value, ir.Constant))

    def of_call(self, call: ir.Call) -> set[int]:
        """Return where the result of a call may lie."""
        if isinstance(call.op, ir.Op) and call.op.name.removeprefix("relax.") not in _SHARING:
            return self.fresh(call.ty)
        return self.unknown(call)

    def unknown(self, value: ir.Expr, *, lasting: bool = False) -> set[int]:
        """Return where a value may lie that may be, or hold, all that it is made of."""
        own = self.fresh(value.ty)
        if lasting or (isinstance(value, ir.Call) and (is_function_call(value) or _mentions_constant(value))):
            self.lasting |= self.within(own)
        (place,) = own
        own = own.union(*(self.within(self.of(v)) for v in variables(value)))
        if place in self.parts:  # any element may be anything
            own = self.within(own)
            self.parts[place] = [own] * len(self.parts[place])
        return own


def _mentions_constant(call: ir.Call) -> bool:
    operands = [a for arg in call.args for a in (arg.fields if isinstance(arg, ir.Tuple) else (arg,))]
    return any(isinstance(a, ir.Constant) for a in operands)


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
