"""HoistExpression: conditions and bindings leave the loops that they do not depend on; what is left has branches."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import InvalidArgument
from weft.tir import stmt as stmts
from weft.tir.analysis.access import is_pure
from weft.tir.analysis.structure import is_condition
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc


class HoistedConditionals(IntFlag):
    """Which conditions leave loops; ``BooleanExpression`` are parts of one, ``UsingBlockVar`` those of threads."""

    Never = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    All = 15


class HoistedLetBindings(IntFlag):
    """Which bindings leave loops; ``RequiredByConditional`` are those that conditions to hoist use."""

    Never = 0
    RequiredByConditional = 1
    LetStmt = 2
    LetExpr = 4
    All = 7


@ir.function_pass(kind=PrimFunc)
def hoist_expression(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Move conditions and bindings out of loops, with a loop in each branch.

    Those that follow other statements of a loop stay. ``PassContext(config={"tir.HoistExpression": {...}})`` says
    which, by ``hoisted_conditionals`` and ``hoisted_let_bindings``.

    Requires: Any form.
    Ensures: The same form.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4, 4), "float32")):
            for i in range(4):
                for j in range(4):
                    A[i, j] = T.if_then_else(i < 2, T.float32(1), T.float32(2))

    After::

        @T.prim_func
        def f(A: T.Buffer((4, 4), "float32")):
            for i in range(4):
                if i < 2:
                    for j in range(4):
                        A[i, j] = T.float32(1)
                else:
                    for j in range(4):
                        A[i, j] = T.float32(2)
    Cost: Linear in statements for each condition that leaves a loop; conditions of both branches double the code.
    Source: TVM's ``HoistExpression``.
    """
    given = ir.PassContext.current().config.get("tir.HoistExpression", {})
    conditionals = HoistedConditionals(int(given.get("hoisted_conditionals", HoistedConditionals.All)))
    return _hoisted(func, conditionals, HoistedLetBindings(int(given.get("hoisted_let_bindings", 7))))


def hoist_tests(variant: str | None = None) -> ir.Pass:
    """Make the pass that moves the tests of ``if`` statements out of loops, as TVM's ``HoistIfThenElse`` does.

    Parameters
    ----------
    variant : str, optional
        ``"basic"`` leaves the loops over threads alone; otherwise ``PassContext(config={"tir.HoistIfThenElse":
        {"support_block_scope_hoisting": True}})`` says whether tests leave those, too.
    """
    if variant not in (None, "basic"):
        raise InvalidArgument("unknown variant of HoistIfThenElse", expected="'basic' or None", found=repr(variant))

    def run(mod: ir.IRModule) -> ir.IRModule:
        given = ir.PassContext.current().config.get("tir.HoistIfThenElse", {})
        conditionals = HoistedConditionals.IfElseStmt
        if variant is None and given.get("support_block_scope_hoisting"):
            conditionals |= HoistedConditionals.UsingBlockVar
        lets = HoistedLetBindings.RequiredByConditional
        return mod.with_functions(
            {v: _hoisted(f, conditionals, lets) if isinstance(f, PrimFunc) else f for v, f in mod.items()}
        )

    return ir.Pass("tir.HoistIfThenElse", run, 0, hoist_tests.__doc__)


def _hoisted(func: PrimFunc, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> PrimFunc:
    return func.replace(body=_Hoister(conditionals, lets).visit(func.body))


class _Hoister:
    def __init__(self, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> None:
        self.conditionals, self.lets = conditionals, lets
        self.threads: set[ir.Var] = set()  # variables of threads around this place

    def visit(self, node: Any) -> Any:
        """Hoist out of the loops below a statement, the outermost first."""
        if not isinstance(node, stmts.Stmt):
            return node
        var = _loop_var(node)
        if var is None:
            return ir.rebuild(node, self.visit)
        on_threads = not isinstance(node, stmts.For) or node.kind is stmts.ForKind.THREAD_BINDING
        if not isinstance(node, stmts.For) and not self.conditionals & HoistedConditionals.UsingBlockVar:
            self.threads.add(var)
            return ir.rebuild(node, self.visit)
        found = self.candidate(node)
        if found is None:
            self.threads |= {var} if on_threads else set()
            return ir.rebuild(node, self.visit)
        if isinstance(found, (stmts.LetStmt, ir.Let)):
            return stmts.LetStmt(
                found.var, found.value, self.visit(ir.rewrite(node, lambda n: n.body if n is found else n))
            )
        then, other = (_assuming(node, found, holds) for holds in (True, False))
        if then is None:
            return stmts.IfThenElse(ir.logical_not(found), self.visit(other))
        return stmts.IfThenElse(found, self.visit(then), None if other is None else self.visit(other))

    def candidate(self, loop: Any) -> Any:
        """Find the first condition or binding in a loop that depends on nothing defined in it."""
        inside = _defined(loop)
        found = list(self.inside(loop.body))
        for node in found:
            is_let = isinstance(node, (stmts.LetStmt, ir.Let))
            value = node.value if is_let else node
            if not self.is_free(value, inside):
                continue
            if not is_let or self.wants(node, [c for c in found if not isinstance(c, (stmts.LetStmt, ir.Let))]):
                return node
        return None

    def wants(self, let: Any, conditions: list[Any]) -> bool:
        """Whether a binding is to be hoisted."""
        kind = HoistedLetBindings.LetStmt if isinstance(let, stmts.LetStmt) else HoistedLetBindings.LetExpr
        if self.lets & kind:
            return True
        required = self.lets & HoistedLetBindings.RequiredByConditional
        return bool(required) and any(n is let.var for c in conditions for n in ir.walk(c))

    def is_free(self, value: Any, inside: set[ir.Var]) -> bool:
        """Whether an expression is the same in each iteration, and may be evaluated where there is none."""
        if isinstance(value, ir.IntImm) or not is_pure(value):
            return False
        used = set(ir.find(value, ir.Var))
        if not self.conditionals & HoistedConditionals.UsingBlockVar and used & self.threads:
            return False
        return used.isdisjoint(inside) and not ir.find(value, BufferLoad)

    def inside(self, node: ir.Node) -> Iterator[Any]:
        """Yield the conditions and bindings of a loop's body in order, up to where statements follow each other."""
        if isinstance(node, (stmts.SeqStmt, stmts.Block)):
            return
        flags, kind = self.conditionals, HoistedConditionals
        if isinstance(node, stmts.IfThenElse):
            yield from self.parts(node.condition) if flags & kind.IfElseStmt else ()
            yield from self.inside(node.then_case)
            yield from self.inside(node.else_case) if node.else_case is not None else ()
            return
        if isinstance(node, (stmts.LetStmt, ir.Let)):
            yield node
        elif flags & kind.IfElseExpr and is_condition(node):
            yield from self.parts(_choice(node)[0])
        for child in ir.children(node):
            yield from self.inside(child)

    def parts(self, condition: ir.PrimExpr) -> Iterator[ir.PrimExpr]:
        """Yield a condition, and what it joins."""
        yield condition
        if self.conditionals & HoistedConditionals.BooleanExpression and isinstance(condition, (ir.And, ir.Or)):
            yield from self.parts(condition.a)
            yield from self.parts(condition.b)


def _loop_var(node: ir.Node) -> ir.Var | None:
    """Return the variable of a loop or of threads; None for other statements."""
    if isinstance(node, stmts.For):
        return node.loop_var
    if isinstance(node, stmts.AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread"):
        return node.node.var if isinstance(node.node, ir.IterVar) else None
    return None


def _defined(node: ir.Node) -> set[ir.Var]:
    """Return the variables that a statement and what is inside define."""
    found: set[ir.Var] = set()
    for n in ir.walk(node):
        var = _loop_var(n)
        if var is not None:
            found.add(var)
        elif isinstance(n, (stmts.LetStmt, ir.Let, ir.IterVar)):
            found.add(n.var)
        elif isinstance(n, (stmts.AllocBuffer, stmts.DeclBuffer)):
            found.add(n.buffer.data)
    return found


def _choice(node: Any) -> tuple[Any, Any, Any]:
    """Return the condition and both values of a choice."""
    return (node.condition, node.true_value, node.false_value) if isinstance(node, ir.Select) else node.args


def _assuming(node: stmts.Stmt, condition: ir.PrimExpr, holds: bool) -> stmts.Stmt | None:
    """Return a statement where a condition is known; None where nothing remains of it."""
    analyzer = Analyzer()
    with analyzer.constraint_scope(condition if holds else ir.logical_not(condition)):
        return _Resolver(condition, holds, analyzer).visit(node)


class _Resolver:
    def __init__(self, condition: ir.PrimExpr, holds: bool, analyzer: Analyzer) -> None:
        self.condition, self.holds, self.analyzer = condition, holds, analyzer

    def truth(self, c: ir.PrimExpr) -> Any:
        """Return a condition as far as it is not known: True, False, or what remains."""
        if ir.structural_equal(c, self.condition):
            return self.holds
        if isinstance(c, ir.CallIntrin) and c.op.name == "tir.likely":
            inner = self.truth(c.args[0])
            return c if inner is c.args[0] else inner
        if isinstance(c, (ir.And, ir.Or)):
            wins = isinstance(c, ir.Or)
            a, b = self.truth(c.a), self.truth(c.b)
            if a is wins or b is wins:
                return wins
            if isinstance(a, bool) or isinstance(b, bool):
                return b if isinstance(a, bool) else a
            return c if a is c.a and b is c.b else type(c)(a, b)
        if self.analyzer.can_prove(c):
            return True
        return False if self.analyzer.can_prove(ir.logical_not(c)) else c

    def branches(self, node: stmts.IfThenElse) -> stmts.Stmt | None:
        """Rewrite a test: the branch that is taken, or those that may be."""
        known = self.truth(node.condition)
        if isinstance(known, bool):
            case = node.then_case if known else node.else_case
            return None if case is None else self.visit(case)
        then = self.visit(node.then_case)
        other = None if node.else_case is None else self.visit(node.else_case)
        if then is None:
            return None if other is None else stmts.IfThenElse(ir.logical_not(known), other)
        return stmts.IfThenElse(known, then, other)

    def visit(self, node: Any) -> Any:
        """Rewrite a statement or expression; None for a statement of which nothing remains."""
        if isinstance(node, stmts.IfThenElse):
            return self.branches(node)
        if isinstance(node, stmts.SeqStmt):
            kept = [s for s in map(self.visit, node.seq) if s is not None]
            return stmts.seq(*kept) if kept else None
        known: dict[Any, Any] = {}
        if is_condition(node):
            condition, yes, no = _choice(node)
            truth = self.truth(condition)
            if isinstance(truth, bool):
                return self.visit(yes if truth else no)
            known = {condition: truth}
        body = getattr(node, "body", None)
        if isinstance(body, stmts.Stmt) and not isinstance(node, stmts.Block):
            known = {body: self.visit(body)}
            if known[body] is None:
                return None

        def child(x: Any) -> Any:
            return known[x] if isinstance(x, ir.Node) and x in known else self.visit(x)

        return ir.rebuild(node, child) if isinstance(node, ir.Node) else node
