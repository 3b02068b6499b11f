"""LowerCrossThreadReduction: threads that accumulate into one element reduce in shared memory instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import is_
from typing import Any, NamedTuple

from weft import ir
from weft.tir.analysis.structure import around, conjuncts
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.intrin import max_value, min_value
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, seq
from weft.tir.transform.thread_allreduce import all_reduce_threads, has_blocks

_IDENTITY: dict[type, Callable[[str], ir.PrimExpr]] = {
    ir.Add: lambda dtype: ir.const(0, dtype),
    ir.Mul: lambda dtype: ir.const(1, dtype),
    ir.Max: min_value,
    ir.Min: max_value,
}


@ir.function_pass(kind=PrimFunc, name="LowerCrossThreadReduction")
def lower_cross_thread_reduction(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Let each thread accumulate on its own, add up what they have in a tree, and let the first thread store it.

    It applies to ``B[i] = B[i] op x`` (sum, product, minimum, maximum) inside a loop that is bound to ``threadIdx`` and
    that ``i`` does not depend on. Extents of the block's axes have to be constant.

    Requires: Any form; reductions in blocks become calls of ``tvm_thread_allreduce`` (``thread_allreduce``).
    Ensures: The same form, without such updates but those of one thread alone. A store of the initial value right
        before the loop, or inside it, becomes part of the final one. Barriers are not there yet (``ThreadSync``).
    Before::

        @T.prim_func
        def f(A: T.Buffer((4, 2), "float32"), B: T.Buffer((4,), "float32")):
            for b in T.thread_binding(4, thread="blockIdx.x"):
                B[b] = 0.0
                for t in T.thread_binding(2, thread="threadIdx.x"):
                    B[b] = B[b] + A[b, t]

    After::

        @T.prim_func
        def f(A: T.Buffer((4, 2), "float32"), B: T.Buffer((4,), "float32")):
            for b in T.thread_binding(4, thread="blockIdx.x"):
                for t in T.thread_binding(2, thread="threadIdx.x"):
                    B_parts = T.alloc_buffer((2,), scope="shared")
                    B_part = T.alloc_buffer((1,), scope="local")
                    B_part[0] = 0.0
                    B_part[0] = B_part[0] + A[b, t]
                    B_parts[t] = B_part[0]
                    if t < 1:
                        B_parts[t] = B_parts[t] + B_parts[t + 1]
                    if t == 0:
                        B[b] = B_parts[0]
    Cost: Linear for each nest of loops.
    Source: TVM's ``LowerCrossThreadReduction`` and ``LowerThreadAllreduce``.
    """
    if has_blocks(func):
        return all_reduce_threads(func)
    return func.replace(body=_Lower().visit(func.body))


class _Combiner(NamedTuple):
    """How an update combines what is there with another value; `kind` is the operation whose identity it has."""

    other: ir.PrimExpr
    kind: type
    make: Callable[[Any, Any], ir.PrimExpr]


class _Plan(NamedTuple):
    """A reduction: its update, the loops of threads that share it, and what must hold for it to count."""

    update: BufferStore
    combiner: _Combiner
    threads: tuple[For, ...]
    guards: tuple[ir.PrimExpr, ...]


class _Lower:
    def __init__(self) -> None:
        self.around: list[For] = []  # loops over threads of the block around this place

    def visit(self, node: ir.Node) -> Any:
        """Rewrite reductions below a statement."""
        if isinstance(node, SeqStmt):
            return self.sequence(node)
        if isinstance(node, For):
            plan = _plan(node)
            if plan is not None:
                return self.lower(node, plan, None)
            if _is_thread(node):
                self.around.append(node)
                out = ir.rebuild(node, self.visit)
                self.around.pop()
                return out
        return ir.rebuild(node, self.visit) if isinstance(node, Stmt) else node

    def sequence(self, node: SeqStmt) -> Stmt:
        """Rewrite a sequence, where the store of an initial value may come right before its reduction."""
        out: list[Stmt] = []
        for x in node.seq:
            plan = _plan(x) if isinstance(x, For) else None
            if plan is None or not isinstance(x, For):
                out.append(self.visit(x))
                continue
            init = _initial(out[-1], plan.update) if out else None
            if init is not None:
                out.pop()
            out.append(self.lower(x, plan, init))
        return node if len(out) == len(node.seq) and all(map(is_, out, node.seq)) else seq(*out)

    def lower(self, node: For, plan: _Plan, init: ir.PrimExpr | None) -> Stmt:
        """Make the reduction of one nest of loops."""
        update, threads = plan.update, plan.threads
        target, dtype = update.buffer, update.buffer.dtype
        _, kind, make = plan.combiner
        extents = [ir.as_int(t.extent) for t in (*threads, *self.around)]
        if None in extents or not all(ir.as_int(t.min) == 0 for t in (*threads, *self.around)):
            return ir.rebuild(node, self.visit)
        own = math.prod(e for e in extents[: len(threads)] if e)
        me, rank = _linear(threads), _linear(self.around)
        part = decl_buffer((1,), dtype, f"{target.name}_part", scope="local")
        parts = decl_buffer((math.prod(e or 0 for e in extents),), dtype, f"{target.name}_parts", scope="shared")

        def slot(i: ir.PrimExpr) -> ir.PrimExpr:
            return i if not self.around else rank * own + i

        zero, found = ir.const(0, "int32"), _Found(init)
        body = _accumulate(node, plan, part, found)
        steps: list[Stmt] = [
            BufferStore(part, _IDENTITY[kind](dtype), (zero,)),
            body,
            BufferStore(parts, part[zero], (slot(me),)),
        ]
        width = 1 << max(0, (own - 1).bit_length() - 1)
        while width and own > 1:
            inside: ir.PrimExpr = me < width
            if 2 * width > own:
                inside = ir.And(inside, me < own - width)
            joined = make(parts[slot(me)], parts[slot(me + width)])
            steps.append(IfThenElse(inside, BufferStore(parts, joined, (slot(me),))))
            width //= 2
        first = found.init if found.init is not None else BufferLoad(target, update.indices)
        whole: ir.PrimExpr = parts[slot(zero)]
        if not ir.structural_equal(first, _IDENTITY[kind](dtype)):
            whole = make(first, whole)
        last = reduce(ir.And, (*(t.loop_var == 0 for t in threads), *plan.guards))
        steps.append(IfThenElse(last, BufferStore(target, whole, update.indices)))
        return around(threads, AllocBuffer(parts, AllocBuffer(part, seq(*steps))))


class _Found:
    """The initial value, once it is found."""

    def __init__(self, init: ir.PrimExpr | None) -> None:
        self.init = init


def _accumulate(node: For, plan: _Plan, part: Buffer, found: _Found) -> Stmt:
    """Return the nest for one thread, which accumulates in memory of its own."""
    zero = ir.const(0, "int32")
    threads = set(plan.threads)

    def visit(n: Any) -> Any:
        if n in threads:
            return visit(n.body)
        if n is plan.update:
            return BufferStore(part, plan.combiner.make(part[zero], plan.combiner.other), (zero,))
        if isinstance(n, SeqStmt):
            kept: list[Stmt] = []
            for x in n.seq:
                init = _initial(x, plan.update)
                if init is not None:
                    found.init = init
                else:
                    kept.append(visit(x))
            return n if len(kept) == len(n.seq) and all(map(is_, kept, n.seq)) else seq(*kept)
        return ir.rebuild(n, visit) if isinstance(n, Stmt) else n

    return visit(node)


def _is_thread(node: ir.Node) -> bool:
    return (
        isinstance(node, For)
        and node.kind is ForKind.THREAD_BINDING
        and node.thread_binding is not None
        and node.thread_binding.thread_tag.startswith("threadIdx")
    )


def _linear(loops: Any) -> ir.PrimExpr:
    """The number of a thread among those of some loops."""
    out: ir.PrimExpr = ir.const(0, "int32")
    for i, loop in enumerate(loops):
        out = loop.loop_var if i == 0 else out * loop.extent + loop.loop_var
    return out


def _plan(node: For) -> _Plan | None:
    """Find the reduction that a nest of loops is, if the threads of one of them share it."""
    threads: list[For] = []
    chain: list[For] = []
    inner: Any = node
    guards: list[ir.PrimExpr] = []
    while True:  # loops over reductions, down to the innermost bound one
        if isinstance(inner, For):
            if inner.kind is ForKind.THREAD_BINDING and not _is_thread(inner):
                return None
            chain.append(inner)
            threads += [inner] if _is_thread(inner) else []
        elif isinstance(inner, IfThenElse) and inner.else_case is None and any(map(_is_thread, ir.walk(inner))):
            guards += conjuncts(inner.condition)
            inner = inner.then_case
            continue
        else:
            break
        if not any(_is_thread(n) for n in ir.walk(inner.body)):
            break
        inner = inner.body
    if not threads:
        return None
    variables = {loop.loop_var for loop in chain}
    inside = {n.buffer.data for n in ir.find(node, AllocBuffer)}
    found = [u for u in _updates(chain[-1].body, (), variables) if u[0].buffer.data not in inside]
    if len(found) != 1:
        return None
    update, conditions = found[0]
    if all(any(_is_one(c, t.loop_var) for c in (*guards, *conditions)) for t in threads):
        return None
    if any(isinstance(n, BufferLoad) and n.buffer is update.buffer for s in _others(node, update) for n in ir.walk(s)):
        return None
    combiner = _combiner(update)
    assert combiner is not None  # what _updates asks for
    return _Plan(update, combiner, tuple(threads), tuple(g for g in (*guards, *conditions) if not _uses(g, node)))


def _updates(node: ir.Node, conditions: tuple[ir.PrimExpr, ...], bound: set[ir.Var]) -> list[tuple[BufferStore, Any]]:
    """List the accumulating stores to one element for all values of some variables, and the conditions around each."""
    if isinstance(node, BufferStore):
        fits = node.predicate is None and not any(v in bound for v in ir.walk(node.indices))
        return [(node, conditions)] if fits and _combiner(node) is not None else []
    if isinstance(node, For):
        return _updates(node.body, conditions, bound | {node.loop_var})
    if isinstance(node, LetStmt):
        return _updates(node.body, conditions, bound | {node.var})
    if isinstance(node, IfThenElse):
        return _updates(node.then_case, (*conditions, *conjuncts(node.condition)), bound)
    if isinstance(node, SeqStmt):
        return [u for x in node.seq for u in _updates(x, conditions, bound)]
    body: Any = getattr(node, "body", None)
    return _updates(body, conditions, bound) if isinstance(body, Stmt) else []


def _combiner(node: BufferStore) -> _Combiner | None:
    """Find how a store combines what is there with another value: ``a + x``, or ``a > x ? a : x``."""
    value: Any = node.value
    if type(value) in _IDENTITY and _is_load(value.a, node) != _is_load(value.b, node):
        return _Combiner(value.b if _is_load(value.a, node) else value.a, type(value), type(value))
    if not isinstance(value, ir.Select) or not isinstance(value.condition, (ir.GT, ir.GE, ir.LT, ir.LE)):
        return None
    test, first = value.condition, _is_load(value.condition.a, node)
    sides, kept = (test.a, test.b), _is_load(value.true_value, node)
    here, other = sides if first else sides[::-1]
    values = (value.true_value, value.false_value) if kept else (value.false_value, value.true_value)
    if not _is_load(here, node) or _is_load(other, node) or not ir.structural_equal(values, (here, other)):
        return None

    def make(a: Any, b: Any) -> ir.PrimExpr:
        return ir.Select(type(test)(*((a, b) if first else (b, a))), *((a, b) if kept else (b, a)))

    larger = isinstance(test, (ir.GT, ir.GE)) == (first == kept)
    return _Combiner(other, ir.Max if larger else ir.Min, make)


def _others(node: ir.Node, update: BufferStore) -> list[Any]:
    """List the stores of a nest but for an update and its initial value."""
    stores = [n for n in ir.find(node, BufferStore) if n is not update]
    return [s for s in stores if _initial(s, update) is None]


def _is_one(condition: ir.PrimExpr, thread: ir.Var) -> bool:
    """Whether a condition lets one thread pass: ``t == e``, ``t < 1``."""
    if isinstance(condition, ir.LT):
        return condition.a is thread and ir.as_int(condition.b) == 1
    return isinstance(condition, ir.EQ) and (condition.a is thread or condition.b is thread)


def _uses(condition: ir.PrimExpr, nest: For) -> bool:
    """Whether a condition depends on what a nest defines."""
    own = {n.loop_var for n in ir.find(nest, For)}
    own |= {n.var for n in ir.find(nest, LetStmt, ir.Let)}
    return any(isinstance(n, BufferLoad) or n in own for n in ir.walk(condition))


def _is_load(e: ir.PrimExpr, store: BufferStore) -> bool:
    return isinstance(e, BufferLoad) and e.buffer is store.buffer and ir.structural_equal(e.indices, store.indices)


def _initial(node: ir.Node, update: BufferStore) -> ir.PrimExpr | None:
    """Return the value that a statement stores where a reduction goes, if that is all it does."""
    while isinstance(node, IfThenElse) and node.else_case is None:
        node = node.then_case
    if not (isinstance(node, BufferStore) and node.buffer is update.buffer and node is not update):
        return None
    constant = not ir.find(node.value, BufferLoad, ir.Var, ir.CallIntrin)
    return node.value if constant and ir.structural_equal(node.indices, update.indices) else None
