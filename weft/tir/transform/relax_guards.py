"""RelaxGuards: a guard around a store into scratch memory goes where everything the store reads exists anyway.

The last column tile of a product may be wider than the output. Its packed operand is padded and its sums are local, so
computing the columns that nobody writes out costs less than a condition (or a masked load) in the innermost loop.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.structure import conjuncts, knowing_dimensions, stmt_children, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt
from weft.tir.transform.compact_buffer import boxes_of


@ir.function_pass(kind=PrimFunc)
def relax_guards(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Drop conditions on stores to local buffers when all loads of the stored value are in bounds without them.

    Only those go that say, at every store, which elements are stored; what data or a count decides has a meaning.

    In a vectorised loop the loads that are not keep the condition, and the store is whole: a masked one would keep the
    loads that follow waiting, and a masked sum could not stay in a register. Many machines have no masks for less than
    32 bits: what loads so keeps its condition, which LoopPartition asks once for a whole tile.

    Requires: No blocks; buffers with their dimensions, before CompactBuffer, which then makes room for what is stored:
        what it cannot bound keeps its conditions.
    Ensures: The same form.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
            t = T.alloc_buffer((16,), "float32", scope="local")
            for i in range(16):
                if i < n:
                    t[i] = A[i]
            for i in range(16):
                if i < n:
                    B[i] = t[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
            t = T.alloc_buffer((16,), "float32", scope="local")
            for i in range(16):
                t[i] = A[i]
            for i_1 in range(16):
                if i_1 < n:
                    B[i_1] = t[i_1]
    Cost: Linear, two proofs for each index of a guarded store.
    Source: None; TVM keeps such conditions.
    """
    analyzer = knowing_dimensions(func.buffer_map)
    return func.replace(body=_Relax(analyzer, _stores(func.body)).visit(func.body))


_MASKED_BITS = 32
"""Elements from which on machines load vectors under a mask; of narrower ones each lane would ask."""


_Around = tuple[tuple[For, ...], tuple[ir.PrimExpr, ...]]
"""The loops and the tests around a store inside the allocation of its buffer."""
_Stores = dict[Buffer, list[tuple[BufferStore, _Around]]]


def _stores(body: Stmt) -> _Stores:
    """Return the stores of each buffer that is allocated, and what is around them."""
    found: _Stores = {}
    stack: list[tuple[Stmt, dict[Buffer, _Around]]] = [(body, {})]
    while stack:
        stmt, around = stack.pop()
        if isinstance(stmt, BufferStore) and stmt.buffer in around:
            found.setdefault(stmt.buffer, []).append((stmt, around[stmt.buffer]))
        if isinstance(stmt, AllocBuffer):
            around = {**around, stmt.buffer: ((), ())}
        elif isinstance(stmt, For):
            around = {b: ((*loops, stmt), tests) for b, (loops, tests) in around.items()}
        elif isinstance(stmt, IfThenElse):
            held = conjuncts(stmt.condition)
            stack.append((stmt.then_case, {b: (loops, (*tests, *held)) for b, (loops, tests) in around.items()}))
        stack.extend((s, around) for s in stmt_children(stmt)[isinstance(stmt, IfThenElse) :])
    return found


class _Relax:
    def __init__(self, analyzer: Analyzer, stores: _Stores) -> None:
        self.analyzer, self.stores = analyzer, stores
        self.local: dict[Buffer, int] = {}  # a buffer -> how many variables were bound where it is allocated
        self.roomy: set[Buffer] = set()  # those with room for all elements that conditions keep from being stored
        self.bound: list[ir.Var] = []
        self.lanes: set[Any] = set()

    def visit(self, node: ir.Node) -> Any:
        """Visit statements top-down."""
        if isinstance(node, AllocBuffer) and node.buffer.scope == "local":
            self.local[node.buffer] = len(self.bound)
            if None not in boxes_of(node, self.analyzer):
                self.roomy.add(node.buffer)
        if isinstance(node, LetStmt):
            self.bound.append(node.var)
        if isinstance(node, For):
            self.bound.append(node.loop_var)
            self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
            if node.kind == ForKind.VECTORIZED:
                self.lanes.add(node.loop_var)
        if isinstance(node, IfThenElse) and node.else_case is None and self._scratch(node.then_case):
            return self.guard(node)
        return ir.rebuild(node, self.visit) if isinstance(node, Stmt) else node

    def _scratch(self, stmt: Stmt) -> bool:
        return isinstance(stmt, BufferStore) and stmt.buffer in self.roomy

    def guard(self, node: IfThenElse) -> Stmt:
        """Keep only those conjuncts that a load needs."""
        store = node.then_case
        assert isinstance(store, BufferStore)
        parts = conjuncts(node.condition)
        kept = list(parts)
        free = [c for c in parts if self._protects_only(store, c) and self._is_of_all(store, c)]
        for c in free:
            rest = [k for k in kept if k is not c]
            if self._safe(store, rest):
                kept = rest
        of_lanes = [c for c in kept if any(v in self.lanes for v in ir.walk(c))]
        reduction = any(isinstance(n, BufferLoad) and n.buffer is store.buffer for n in ir.walk(store.value))
        chosen = self._choice(store, of_lanes) if reduction else None
        alone = all(any(c is f for f in free) for c in of_lanes)
        asking = self._asking(store, reduction and not alone)
        maskable = all(ir.DataType(load.dtype).bits >= _MASKED_BITS for load in asking)
        if of_lanes and maskable and (alone or chosen is not None or self._adds_zero(store, of_lanes)):
            store = _guarded_loads(store, of_lanes, asking, chosen)
            kept = [c for c in kept if all(c is not x for x in of_lanes)]
        elif len(kept) == len(parts):
            return node
        condition = _all(kept)
        return store if condition is None else IfThenElse(condition, store, span=node.span)

    def _is_of_all(self, store: BufferStore, condition: ir.PrimExpr) -> bool:
        """Whether no store without this condition reaches the elements of this one: a failing test keeps no value."""
        inner, mine = self.bound[self.local[store.buffer] :], (*store.indices, condition)
        for other, (loops, tests) in self.stores[store.buffer]:
            pairs = {(a, f.loop_var) for a in inner for f in loops}
            if any(ir.structural_equal(mine, (*other.indices, t), partial(_alike, pairs)) for t in tests):
                continue
            own: dict[ir.Var, ir.PrimExpr] = {}
            for f in loops:
                own[f.loop_var] = var = ir.Var(f.loop_var.name, f.loop_var.dtype)
                dom = ir.Range.from_min_extent(ir.substitute(f.min, own), ir.substitute(f.extent, own))
                self.analyzer.bind(var, dom)
            steps = [a - ir.substitute(b, own) for a, b in zip(store.indices, other.indices, strict=True)]
            if not any(self.analyzer.can_prove(d > 0) or self.analyzer.can_prove(d < 0) for d in steps):
                return False
        return True

    def _protects_only(self, store: BufferStore, condition: ir.PrimExpr) -> bool:
        """Whether a condition tells only which elements are stored, the same at each store of an element.

        One that reads data, or counts something else than elements, decides what an element becomes.
        """
        inner = set(self.bound[self.local[store.buffer] :])
        reads = bool(ir.find(condition, BufferLoad))
        return not reads and used_vars(condition) & inner <= used_vars(store.indices)

    def _adds_zero(self, store: BufferStore, conditions: list[ir.PrimExpr]) -> bool:
        """Whether a sum of products adds nothing where all its loads give zero.

        The conditions must say the same of an element at each addition, and each load must be of a lane of its own.
        """
        value, element = store.value, used_vars(store.indices)
        if not isinstance(value, ir.Add) or not used_vars(*conditions) <= element:
            return False
        added = value.b if isinstance(value.a, BufferLoad) and value.a.buffer is store.buffer else value.a
        factors = (added.a, added.b) if isinstance(added, ir.Mul) else (added,)
        lanes = self.lanes & element
        return all(
            isinstance(f, BufferLoad) and f.buffer not in self.local and bool(lanes & used_vars(f.indices))
            for f in factors
        )

    def _choice(self, store: BufferStore, conditions: list[ir.PrimExpr]) -> BufferLoad | None:
        """Return the element itself where the greater or lesser of it and one load is stored, as a maximum does.

        Chosen of itself it stays. The conditions must say the same of an element each time, as for a sum.
        """
        v = store.value
        if isinstance(v, ir.Select) and isinstance(v.condition, (ir.GT, ir.GE, ir.LT, ir.LE)):
            pair, compared = (v.true_value, v.false_value), (v.condition.a, v.condition.b)
            if not any(ir.structural_equal(compared, p) for p in (pair, pair[::-1])):
                return None
        elif isinstance(v, (ir.Max, ir.Min)):
            pair = v.a, v.b
        else:
            return None
        own = [x for x in pair if isinstance(x, BufferLoad) and x.buffer is store.buffer]
        others = [x for x in pair if isinstance(x, BufferLoad) and x.buffer not in self.local]
        element = used_vars(store.indices)
        if len(own) != 1 or len(others) != 1 or not used_vars(*conditions) <= element:
            return None
        return own[0] if self.lanes & element & used_vars(others[0].indices) else None

    def _asking(self, store: BufferStore, everything: bool) -> list[BufferLoad]:
        """List the loads of a stored value that need its condition, or all that are of no scratch memory."""
        loads = (n for n in ir.walk(store.value) if isinstance(n, BufferLoad) and n.buffer not in self.roomy)
        return [n for n in loads if everything or not self._within(n)]

    def _safe(self, store: BufferStore, conditions: list[ir.PrimExpr]) -> bool:
        condition = _all(conditions)
        if condition is None:
            return self._in_bounds(store)
        with self.analyzer.constraint_scope(condition):
            return self._in_bounds(store)

    def _in_bounds(self, store: BufferStore) -> bool:
        for n in ir.walk(store.value):
            if isinstance(n, BufferLoad) and not (n.buffer is store.buffer and n.indices is store.indices):
                if n.buffer in self.roomy:
                    continue  # scratch, sized for what is accessed
                if not self._within(n):
                    return False
        return True

    def _within(self, load: BufferLoad) -> bool:
        return all(
            ir.DataType(i.dtype).is_integer and self.analyzer.can_prove(i >= 0) and self.analyzer.can_prove(i < d)
            for i, d in zip(load.indices, load.buffer.shape, strict=True)
        )


def _guarded_loads(
    store: BufferStore, parts: list[ir.PrimExpr], asking: list[BufferLoad], other: BufferLoad | None
) -> BufferStore:
    """Put a condition on each load that asks for it; what the other lanes compute is never read.

    Where it fails, a load is `other`, by default 0.
    """
    condition, loads = _all(parts), set(asking)
    assert condition is not None

    def rule(node: ir.Node) -> Any:
        if not isinstance(node, BufferLoad) or node not in loads:
            return node
        return ir.if_then_else(condition, node, ir.const(0, node.dtype) if other is None else other)

    return BufferStore(store.buffer, ir.rewrite(store.value, rule), store.indices, store.predicate, span=store.span)


def _alike(pairs: set[tuple[Any, Any]], a: ir.Var, b: ir.Var) -> bool:
    return a is b or (a, b) in pairs


def _all(conditions: list[ir.PrimExpr]) -> ir.PrimExpr | None:
    """All conditions in one; None where there is none."""
    return reduce(ir.logical_and, conditions) if conditions else None
