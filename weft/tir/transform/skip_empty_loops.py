"""SkipEmptyLoops: loops around a loop without iterations are not run."""

from __future__ import annotations

import functools
from typing import Any

from weft import ir
from weft.tir import stmt as stmts
from weft.tir.analysis.access import is_pure
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc

_Extents = list[ir.PrimExpr]  # all of them positive
_Cases = list[_Extents]  # one of them: none says never, an empty one always
_MOST = 8  # cases that are told apart
_DIVISIONS = (ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod)


@ir.function_pass(kind=PrimFunc)
def skip_empty_loops(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Test before a loop whether the loops in it have iterations, where that is the same in each of its own.

    A tensor of 2^40 rows without columns is legal and takes no memory; counting its rows would take an hour.

    Requires: No blocks.
    Ensures: The same form. A loop runs only where it stores something that is read after it.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int64, m: T.int64):
            for i in range(n):
                for j in range(m):
                    A[j] = A[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int64, m: T.int64):
            if 0 < m:
                for i in range(n):
                    for j in range(m):
                        A[j] = A[i]
    Cost: Linear in statements, times the depth of loops.
    """
    body = _visit(func.body, [])
    return func if body is func.body else func.replace(body=body)


def _visit(node: Any, known: _Extents) -> Any:
    """Put tests before loops and allocations; the `known` extents are positive here."""
    if not isinstance(node, stmts.Stmt):
        return node
    cases: _Cases = [[]]
    if isinstance(node, (stmts.For, stmts.AllocBuffer)):
        own = [node.extent] if isinstance(node, stmts.For) else []
        cases = _joined([_without(c, own + known) for c in _cases(node, frozenset())])
        known = known + own + (cases[0] if len(cases) == 1 else [])
    new = ir.rebuild(node, lambda n: _visit(n, known))
    if not cases or not all(cases):
        return new
    tests = [functools.reduce(ir.logical_and, [e > 0 for e in c]) for c in cases]
    return stmts.IfThenElse(functools.reduce(ir.logical_or, tests), new, span=node.span)


def _cases(node: stmts.Stmt, local: frozenset[ir.Var]) -> _Cases:
    """List the cases in which a statement has an effect; stores into `local` memory, which ends with it, are none."""
    if isinstance(node, stmts.SeqStmt):
        return _joined([c for s in node.seq for c in _cases(s, local)])
    if isinstance(node, stmts.IfThenElse):
        branches = [b for b in (node.then_case, node.else_case) if b is not None]
        return _joined([c for b in branches for c in _cases(b, local)]) if is_pure(node.condition) else [[]]
    if isinstance(node, stmts.For):
        cases = _weakened(_cases(node.body, local), node.loop_var)
        own = [node.extent] if node.thread_binding is None and _is_test(node.extent) else []
        return [c + _without(own, c) for c in cases]
    if isinstance(node, stmts.LetStmt):
        return _weakened(_cases(node.body, local), node.var) if is_pure(node.value) else [[]]
    if isinstance(node, stmts.AllocBuffer):
        return _cases(node.body, local | {node.buffer.data})
    if isinstance(node, (stmts.AttrStmt, stmts.DeclBuffer)):
        return _cases(node.body, local)
    if isinstance(node, stmts.BufferStore):
        return [] if node.buffer.data in local and is_pure(node.value) and is_pure(node.indices) else [[]]
    return [] if isinstance(node, stmts.Evaluate) and is_pure(node.value) else [[]]


def _is_test(extent: ir.PrimExpr) -> bool:
    """Whether an extent is worth a test, and can be computed where its loop is not reached."""
    return not isinstance(extent, ir.IntImm) and is_pure(extent) and not any(
        isinstance(n, BufferLoad) or (isinstance(n, _DIVISIONS) and not isinstance(n.b, ir.IntImm))
        for n in ir.walk(extent)
    )  # fmt: skip


def _weakened(cases: _Cases, var: ir.Var) -> _Cases:
    """Drop what depends on a variable that is not there outside."""
    return _joined([[e for e in c if not any(n is var for n in ir.walk(e))] for c in cases])


def _joined(cases: _Cases) -> _Cases:
    """Drop cases that others contain; of too many, keep what they have in common."""
    kept: _Cases = []
    for case in sorted(cases, key=len):
        if all(_without(k, case) for k in kept):
            kept.append(case)
    if len(kept) <= _MOST:
        return kept
    return [[e for e in kept[0] if not any(_without([e], k) for k in kept[1:])]]


def _without(extents: _Extents, others: _Extents) -> _Extents:
    return [e for e in extents if not any(ir.structural_equal(e, o) for o in others)]
