"""CheckRelations: what operators demand of their operands is proved, refuted, or checked at run time."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import arith, error, ir, op
from weft.arith.context import structural_key
from weft.op.relations import IndexRange, Relation, collect_relations, demand_at_least, demand_at_most, refused
from weft.relax.core_ops import CORE_OPS, bounds_of, index_bounds, is_op
from weft.relax.expr import BindingBlock, DataflowBlock, MatchCast, SeqExpr
from weft.relax.infer import infer_call
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.static_plan import LOWER, UPPER, declared_bounds

if TYPE_CHECKING:
    from weft.relax.block_builder import BlockBuilder
    from weft.relax.expr import Binding


@ir.function_pass(kind=ir.Function, opt_level=0)
def check_relations(func: ir.Function, mod: ir.IRModule, *, indices: bool = True) -> ir.Function:
    """Check what operators demand of their operands and types do not say.

    Requires: ``relax.normalized``, with the operators that the program was written in.
    Ensures: ``relax.normalized``. A relation between dimensions that cannot be proved is a ``match_cast`` of one scalar
        against another: at the beginning of the function where the dimensions of its parameters decide it, else
        before the call. What ``tir_var_upper_bound`` and ``tir_var_lower_bound`` say of sizes is checked, too; not a
        least size of 2, by which PyTorch only says that it has not looked at 0 and 1. Indices are data: their least
        and greatest are compared with the range that they are for.
        Idempotent: what has been checked is known.
    Before::

        @R.function
        def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("m", 4), "float32")):
            y = R.matmul(x, w)
            return y

    After::

        @R.function
        def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("m", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            k = T.int64()
            m = T.int64()
            check: R.Shape([k]) = R.match_cast(R.shape([m]), R.Shape([k]))
            y: R.Tensor((n, 4), "float32") = R.matmul(x, w)
            return y

    Options:
        ``indices``: whether the values of indices are checked, too.

    Raises
    ------
        ShapeMismatch, InvalidArgument
            When a relation cannot hold, outside of branches.
    Cost: Linear; one proof for each relation that constants do not decide.
    Source: None: TVM checks the shapes of kernels' arguments only.
    """
    with ExitStack() as facts:
        return _Checker(func, mod, facts, indices).run()


def refuted_relation(func: ir.Function, mod: ir.IRModule) -> error.WeftError | None:
    """Return the error of the first relation in a function that cannot hold, or None."""
    try:
        check_relations.transform(func, mod)
    except error.WeftError as e:
        return e
    return None


class _Checker:
    """Checks one function: what is known so far, and the checks for its beginning."""

    def __init__(self, func: ir.Function, mod: ir.IRModule, facts: ExitStack, indices: bool) -> None:
        self.func, self.mod, self.facts, self.indices = func, mod, facts, indices
        self.analyzer = arith.Analyzer()
        self.name = str(func.attrs.get("global_symbol", "function"))
        self.first: list[MatchCast] = []
        self.ranges: list[IndexRange] = []
        self.bounds: dict[tuple[ir.Expr, int, int | None], tuple[ir.Var, ...]] = {}
        self.held: set[Hashable] = set()  # relations that were proved or are checked
        self.given: set[ir.Var] = set()
        for p in func.params:
            self.given.update(v for d in _dims(p.ty) for v in ir.find(d, ir.Var))
        for v in self.given:
            self._is_size(v)
        self.inside = _inside_branches(func)
        upper, lower = (declared_bounds(func, key) for key in (UPPER, LOWER))
        self.limits = {v: (lower.get(v.name), upper.get(v.name)) for v in self.given}

    def run(self) -> ir.Function:
        """Return the function with its checks; itself where there is none to add."""
        func = rewrite_bindings(self.func, self.mod, self.rule)
        if not self.first:
            return func
        body: Any = func.body
        blocks = (BindingBlock(tuple(self.first)), *body.blocks)
        if body.blocks and not isinstance(body.blocks[0], DataflowBlock):
            blocks = (BindingBlock((*self.first, *body.blocks[0].bindings)), *body.blocks[1:])
        return func.replace(body=SeqExpr(blocks, body.body, span=body.span, ty=body.ty))

    def _is_size(self, v: ir.Var) -> None:
        if not isinstance(v, ir.SizeVar):
            self.analyzer.mark_global_non_neg(v)

    def rule(self, binding: Binding, value: ir.Expr, bb: BlockBuilder) -> None:
        """Emit the checks of one binding before it."""
        if isinstance(binding, MatchCast):
            self._learn(binding, value)
        else:
            self._declared(bb)
        if not (isinstance(value, ir.Call) and isinstance(value.op, ir.Op)):
            return
        if value.op.name.removeprefix("relax.") in CORE_OPS:
            return
        with collect_relations() as relations:
            infer_call(value, self.mod)
        place = _place(binding, self.name)
        for r in relations:
            if isinstance(r, IndexRange):
                if self.indices:
                    self._indices(r, binding, place, bb)
            else:
                self._relation(r, binding.var in self.inside, place, bb)

    def _declared(self, bb: BlockBuilder) -> None:
        """Emit the checks of the bounds that the function's attributes give its sizes, once."""
        limits, self.limits = self.limits, {}
        with collect_relations() as relations:
            for v, (low, high) in limits.items():
                if low is not None and low > 2:
                    demand_at_least(f"size '{v.name}'", v, low, self.name)
                if high is not None:
                    demand_at_most(f"size '{v.name}'", v, high, self.name)
        for r in relations:
            assert isinstance(r, Relation)
            self._relation(r, False, self.name, bb)

    def _learn(self, binding: MatchCast, value: ir.Expr) -> None:
        """Take a cast's new dimensions as sizes, and what it compares as equal."""
        found, wanted = _dims(getattr(value, "ty", None)), _dims(binding.ty)
        if isinstance(value, ir.ShapeExpr):
            found = list(value.values)
        for v in (d for d in wanted if isinstance(d, ir.Var) and isinstance(binding.ty, ir.TensorType)):
            self._is_size(v)
        if binding.var not in self.inside and len(found) == len(wanted):
            for f, w in zip(found, wanted, strict=True):
                self._assume(f, w)

    def _assume(self, a: ir.PrimExpr, b: ir.PrimExpr) -> None:
        if a is not b:
            self.facts.enter_context(self.analyzer.constraint_scope(ir.equal(a, b)))

    def _relation(self, r: Relation, inside: bool, place: str, bb: BlockBuilder, unknown: bool = False) -> None:
        """Prove, refute or check a relation; an `unknown` one is of what nothing can be proved about."""
        key = structural_key((r.found, r.expected))
        if key in self.held or (not unknown and self.analyzer.can_prove_equal(r.found, r.expected)):
            self.held.add(key)
            return
        found, expected = (self.analyzer.simplify(e) for e in (r.found, r.expected))
        if not unknown and self.analyzer.can_prove(ir.equal(found, expected)):
            self.held.add(key)
            return
        if not (inside or unknown) and (
            self.analyzer.can_prove_less(found, expected) or self.analyzer.can_prove_less(expected, found)
        ):
            raise refused(Relation(r.what, found, expected, r.where or place, r.kind))
        span = ir.Span(origin=place, check=(r.kind, r.what))
        variables = {v for e in (found, expected) for v in ir.find(e, ir.Var)}
        outer, bb.span = bb.span, span
        first = not inside and variables <= self.given
        with bb.scope() if first else nullcontext():
            bb.match_cast(ir.shape_expr((found,)), ir.ShapeType((expected,), 1), "check")
            self.first.extend(bb.bindings() if first else ())
        bb.span = outer
        if not inside:
            self.held.add(key)
            self._assume(found, expected)

    def _indices(self, r: IndexRange, binding: Binding, place: str, bb: BlockBuilder) -> None:
        r = r if len(r.ranges) > 1 else replace(r, indices=_unrepeated(r.indices, bb))
        if any(self._same(r, other) for other in self.ranges):
            return
        inside, n = binding.var in self.inside, len(r.ranges)
        if not inside:
            self.ranges.append(r)
        if isinstance(r.indices, ir.Constant):
            values = r.indices.data.numpy()
            bounds: Any = bounds_of(values if r.but is None else values[values != r.but], n)
        else:
            bounds = self.bounds.get((r.indices, n, r.but))
        fresh = bounds is None
        if fresh:
            bounds = tuple(ir.Var(f"{end}_index", "int64") for _ in range(n) for end in ("least", "greatest"))
            bb.match_cast(bb.emit(index_bounds(_without(r, bb), n), "bounds"), ir.ShapeType(bounds, 2 * n), "bounds")
            if not inside:
                self.bounds[r.indices, n, r.but] = bounds
        with collect_relations() as relations:
            for i, (low, high) in enumerate(r.ranges):
                what = r.what if n == 1 else f"{r.what}, place {i}"
                demand_at_least(what, bounds[2 * i], low, place, "IndexOutOfRange")
                demand_at_most(what, bounds[2 * i + 1], high - 1, place, "IndexOutOfRange")
        for relation in relations:
            assert isinstance(relation, Relation)
            self._relation(relation, inside, place, bb, unknown=fresh)

    def _same(self, a: IndexRange, b: IndexRange) -> bool:
        if a.indices is not b.indices or a.but != b.but or len(a.ranges) != len(b.ranges):
            return False
        return all(map(self.analyzer.can_prove_equal, chain(*a.ranges), chain(*b.ranges)))


def _unrepeated(indices: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    """Return what indices were made of by repeating all of it or giving it another shape: its bounds are theirs."""
    while isinstance(indices, ir.ExprVar) and isinstance(value := bb.lookup_binding(indices), ir.Call):
        repeated = is_op(value, "broadcast_to") and all((ir.as_int(d) or 0) > 0 for d in _dims(value.ty))
        if not (repeated or is_op(value, "reshape")):
            break
        indices = value.args[0]
    return indices


def _without(r: IndexRange, bb: BlockBuilder) -> ir.Expr:
    """Return the indices of a range, with zero in the place of those that may lie anywhere."""
    if r.but is None:
        return bb.emit(r.indices, "indices") if isinstance(r.indices, ir.Call) else r.indices
    dtype = r.indices.ty.dtype  # type: ignore[attr-defined]
    low, but = (ir.constant(np.array(v, dtype)) for v in (0, r.but))
    free = bb.emit(op.make_call("equal")(r.indices, but), "free")
    return bb.emit(op.make_call("where")(free, low, r.indices), "indices")


def _place(binding: Binding, function: str) -> str:
    span = binding.span
    if span is not None and (span.origin is not None or span.line):
        return str(span)
    return f"{function}: '{binding.var.name_hint}'"


def _dims(ty: Any) -> list[ir.PrimExpr]:
    if isinstance(ty, ir.TensorType):
        return list(ty.shape or ())
    if isinstance(ty, ir.ShapeType):
        return list(ty.values or ())
    return [d for f in ty.fields for d in _dims(f)] if isinstance(ty, ir.TupleType) else []


def _inside_branches(func: ir.Function) -> set[ir.Expr]:
    """Collect the variables that are bound inside of branches and nested functions."""
    blocks = func.body.blocks if isinstance(func.body, SeqExpr) else ()
    return {b.var for b in all_bindings(func)} - {b.var for block in blocks for b in block.bindings}
