"""CommonSubexprElim: what is computed twice is computed once."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt, While
from weft.tir.transform.remove_no_op import is_pure


@ir.function_pass(kind=PrimFunc)
def common_subexpr_elim(func: PrimFunc, mod: ir.IRModule, enable_cse_tir: bool = True) -> PrimFunc:
    """Bind expressions that occur more than once to a variable around the smallest statement that has them all.

    Arithmetic without reads is shared by all statements below one; reads of buffers only within one store, which
    happens after them.

    Requires: No blocks.
    Ensures: The same form. What runs in one case only (a side of ``if_then_else``) is not moved out of it.
    Before::

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
            for i in range(8):
                B[i * n + 3] = A[i * n + 3] * A[i * n + 3]

    After::

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
            for i in range(8):
                cse_v2: T.let[T.int32] = i * n + 3
                cse_v1: T.let[T.float32] = A[cse_v2]
                B[cse_v2] = cse_v1 * cse_v1
    Cost: Quadratic in the depth of statements, times expressions.
    Source: TVM's ``CommonSubexprElimTIR``.
    """
    if not enable_cse_tir:
        return func
    return func.replace(body=_Eliminator().visit(func.body))


class _Eliminator:
    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: Stmt) -> Stmt:
        """Take common expressions out of a statement, then out of those in it."""
        found = self._candidate(node)
        if found is not None:
            self.count += 1
            var = ir.Var(f"cse_v{self.count}", found.dtype)

            def replaced(n: Any) -> Any:
                return var if isinstance(n, ir.PrimExpr) and ir.structural_equal(n, found) else None

            return self.visit(LetStmt(var, found, ir.rewrite(node, lambda n: n, pre=replaced)))
        return ir.rebuild(node, lambda n: self.visit(n) if isinstance(n, Stmt) else n)

    def _candidate(self, node: Stmt) -> ir.PrimExpr | None:
        """Return the largest expression that can be computed before a statement and that more than one part has."""
        leaf = isinstance(node, (BufferStore, Evaluate))
        bound = set(_bound(node))
        seen: dict[int, list[tuple[ir.PrimExpr, set[int]]]] = {}
        for place, part in enumerate(_parts(node)):
            for e in _expressions(part, leaf):
                if any(n in bound for n in ir.walk(e)):
                    continue
                bucket = seen.setdefault(ir.structural_hash(e, map_free_vars=True), [])
                known = next((x for x in bucket if ir.structural_equal(x[0], e)), None)
                if known is None:
                    bucket.append((e, {place}))
                else:
                    known[1].add(place if not leaf else len(known[1]) + 100 * place + 1)
        common = [e for bucket in seen.values() for e, places in bucket if len(places) > 1]
        return max(common, key=lambda e: sum(1 for _ in ir.walk(e)), default=None)


def _parts(node: Stmt) -> list[Any]:
    """Split a statement into the parts among which an expression may be common."""
    if isinstance(node, BufferStore):
        return [*node.indices, node.value]
    values = [getattr(node, f) for f in node.__struct_fields__]
    return [p for v in values for p in (v if isinstance(v, tuple) else (v,)) if isinstance(p, (ir.PrimExpr, Stmt))]


def _bound(node: Stmt) -> list[ir.Var]:
    """List the variables that exist only inside a statement."""
    found = []
    for n in ir.walk(node):
        if isinstance(n, For):
            found.append(n.loop_var)
        elif isinstance(n, (ir.Let, LetStmt)):
            found.append(n.var)
    return found


def _expressions(node: ir.Node, reads: bool) -> list[ir.PrimExpr]:
    """List the expressions below a node that may be computed earlier, each as often as it occurs."""
    out: list[ir.PrimExpr] = []

    def visit(n: Any, always: bool, runs: bool) -> bool:
        """Return whether the node may move; adds it when it is worth a variable.

        `always`: whether the expression around evaluates it; `runs`: whether the statement around runs at all.
        """
        if isinstance(n, tuple):
            return all([visit(x, always, runs) for x in n])
        if not isinstance(n, (ir.PrimExpr, Stmt)):
            return True
        if isinstance(n, (ir.Var, ir.IntImm, ir.FloatImm, ir.StringImm)):
            return True
        sometimes = False
        if isinstance(n, ir.CallIntrin) and n.op.name == "tir.if_then_else":
            sometimes = True
            movable = visit(n.args[0], always, runs)
            for side in n.args[1:]:
                movable = visit(side, False, False) and movable
        else:
            inside = runs and not isinstance(n, (For, IfThenElse, While))
            movable = all([visit(getattr(n, f), always, inside) for f in n.__struct_fields__])
        if isinstance(n, Stmt):
            return False
        if isinstance(n, BufferLoad):
            movable = movable and reads
        elif isinstance(n, ir.CallIntrin):
            movable = movable and not sometimes and is_pure(n) and n.op.name != "tir.likely"
        elif isinstance(n, (ir.FloorDiv, ir.FloorMod)) and not isinstance(n.b, ir.IntImm):
            movable = movable and runs  # division by zero may be what the test guards against
        if (
            movable
            and always
            and not isinstance(n, (ir.Ramp, ir.Broadcast, ir.Cast, ir.Select))
            and ir.DataType(n.dtype).lanes == 1
        ):
            out.append(n)
        return movable

    visit(node, True, not isinstance(node, Stmt) or isinstance(node, (BufferStore, Evaluate)))
    return out
