"""SkipEmptyLoops: loops around a loop without iterations are not run."""

import functools
from typing import Any

from weft import ir
from weft.tir import stmt as stmts
from weft.tir.analysis.access import is_pure
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc

_Extents = list[ir.PrimExpr]  # all of them positive
_Case = tuple[Any, _Extents]  # the pointer to what is stored to then, None for other effects
_Cases = list[_Case]  # one of them: none says never, one without extents always
_MOST = 8  # cases of one buffer that are told apart
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
            if m > 0:
                for i in range(n):
                    for j in range(m):
                        A[j] = A[i]
    Cost: Linear in statements, and in the cases of each that are told apart.
    Source: Our own; what HoistIfThenElse does for tests that are there.
    """
    skipping = _Skipping()
    body = skipping.visit(func.body, []) if skipping.looks_at(func.body) else func.body
    return func if body is func.body else func.replace(body=body)


class _Skipping:
    def __init__(self) -> None:
        self.found: dict[stmts.Stmt, _Cases] = {}
        self.around: set[stmts.Stmt] = set()  # what is around loops that nobody knows to run
        self.local: set[ir.Var] = set()  # pointers to allocated memory

    def looks_at(self, node: stmts.Stmt) -> bool:
        """Whether a loop that may be worth a test is in a statement, or in another that is in it."""
        inside = [self.looks_at(n) for n in ir.children(node) if isinstance(n, stmts.Stmt)]
        if any(inside) or (isinstance(node, stmts.For) and _is_test(node.extent)):
            self.around.add(node)
        if isinstance(node, stmts.AllocBuffer):
            self.local.add(node.buffer.data)
        return node in self.around

    def visit(self, node: ir.Node, known: _Extents) -> Any:
        """Put tests before loops and allocations; the `known` extents are positive here."""
        if node not in self.around:
            return node
        if isinstance(node, (stmts.For, stmts.AllocBuffer)):
            own = [node.extent] if isinstance(node, stmts.For) else []
            needed = [e for _, e in _joined([(None, _without(e, own + known)) for _, e in self.cases(node)])]
            known = known + own + (needed[0] if len(needed) == 1 else [])
            new = ir.rebuild(node, lambda n: self.visit(n, known))
            if not needed or not all(needed):  # there may be no case at all: what is stored is empty
                return new
            tests = [functools.reduce(ir.logical_and, [e > 0 for e in extents]) for extents in needed]
            return stmts.IfThenElse(functools.reduce(ir.logical_or, tests), new, span=node.span)
        return ir.rebuild(node, lambda n: self.visit(n, known))

    def cases(self, node: stmts.Stmt) -> _Cases:
        """List the cases in which a statement has an effect that is seen outside of it."""
        found = self.found.get(node)
        if found is None:
            found = self.found[node] = self.computed(node)
        return found

    def computed(self, node: stmts.Stmt) -> _Cases:
        if isinstance(node, stmts.BufferStore):
            local = node.buffer.data in self.local and is_pure(node.value) and is_pure(node.indices)
            return [(node.buffer.data if local else None, [])]
        if isinstance(node, stmts.SeqStmt):
            return _joined([c for s in node.seq for c in self.cases(s)])
        if isinstance(node, stmts.IfThenElse):
            branches = [b for b in (node.then_case, node.else_case) if b is not None]
            return _joined([c for b in branches for c in self.cases(b)]) if is_pure(node.condition) else [(None, [])]
        if isinstance(node, stmts.For):
            own = [node.extent] if node.thread_binding is None and _is_test(node.extent) else []
            return [(to, e + _without(own, e)) for to, e in _weakened(self.cases(node.body), node.loop_var)]
        if isinstance(node, stmts.LetStmt):
            return _weakened(self.cases(node.body), node.var) if is_pure(node.value) else [(None, [])]
        if isinstance(node, stmts.AllocBuffer):  # what is stored there is gone with it
            return [c for c in self.cases(node.body) if c[0] is not node.buffer.data]
        if isinstance(node, (stmts.AttrStmt, stmts.DeclBuffer)):
            return self.cases(node.body)
        return [] if isinstance(node, stmts.Evaluate) and is_pure(node.value) else [(None, [])]


def _is_test(extent: ir.PrimExpr) -> bool:
    """Whether an extent is worth a test, and can be computed where its loop is not reached."""
    return (
        not isinstance(extent, ir.IntImm)
        and is_pure(extent)
        and not any(
            isinstance(n, BufferLoad) or (isinstance(n, _DIVISIONS) and not isinstance(n.b, ir.IntImm))
            for n in ir.walk(extent)
        )
    )


def _weakened(cases: _Cases, var: ir.Var) -> _Cases:
    """Drop what depends on a variable that is not there outside."""
    return _joined([(to, [e for e in case if not any(n is var for n in ir.walk(e))]) for to, case in cases])


def _joined(cases: _Cases) -> _Cases:
    """Drop cases that others contain; of too many, keep what they have in common."""
    kept: dict[Any, list[_Extents]] = {}
    for to, case in sorted(cases, key=lambda c: len(c[1])):
        others = kept.setdefault(to, [])
        if all(_without(k, case) for k in others):
            others.append(case)
    for others in kept.values():
        if len(others) > _MOST:
            others[:] = [[e for e in others[0] if not any(_without([e], k) for k in others[1:])]]
    return [(to, case) for to, others in kept.items() for case in others]


def _without(extents: _Extents, others: _Extents) -> _Extents:
    return [e for e in extents if not any(ir.structural_equal(e, o) for o in others)]
