"""ThreadSync: threads wait for each other where one needs what another did."""

from __future__ import annotations

from typing import Any

from weft.error import LoweringError
from weft.ir import CallIntrin, IRModule, Var, find, function_pass, rebuild, structural_equal, structural_hash
from weft.tir.analysis.structure import replace_node
from weft.tir.analysis.threads import Access, ThreadPlaces
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin
from weft.tir.stmt import AllocBuffer, BufferStore, Evaluate, For, ForKind, IfThenElse, SeqStmt, Stmt, While, seq


@function_pass(kind=PrimFunc, name="ThreadSync")
def thread_sync(func: PrimFunc, mod: IRModule, storage_scope: str = "shared") -> PrimFunc:
    """Put a barrier between statements where one writes memory of a scope that the other reads or writes.

    Two accesses conflict where different threads touch one element, and are taken to where an index is more than
    arithmetic of threads and of loops of constant extents, or reaches many elements. A loop that would conflict with
    its own next iteration starts with a barrier.

    Requires: No blocks.
    Ensures: The same form. Every thread of a block reaches each barrier; where a test that threads decide differently
        holds both sides of a conflict, the function is refused.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                S = T.alloc_buffer((16,), scope="shared")
                S[t] = A[t]
                B[t] = S[15 - t]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                S = T.alloc_buffer((16,), scope="shared")
                S[t] = A[t]
                T.call_intrin("void", "tir.tvm_storage_sync", "shared")
                B[t] = S[15 - t]
    Cost: Quadratic in the statements of a sequence; each index is evaluated for all threads of a block.
    Source: TVM's ``ThreadSync``.
    """

    def kernel(node: Any) -> Any:
        if isinstance(node, For) and node.kind == ForKind.THREAD_BINDING:
            return _Planner(storage_scope, ThreadPlaces(node)).visit(node)
        return rebuild(node, kernel) if isinstance(node, Stmt) else node

    return func.replace(body=kernel(func.body))


class _Planner:
    def __init__(self, scope: str, places: ThreadPlaces) -> None:
        self.scope, self.places = scope, places

    def barrier(self) -> Stmt:
        return Evaluate(call_intrin("void", "tir.tvm_storage_sync", self.scope))

    def accesses(self, node: Any) -> list[Access]:
        """Return what a statement does to memory of the scope, once for each element."""
        kept: dict[Any, list[Access]] = {}
        for n in (n for n in find(node, BufferLoad, BufferStore) if n.buffer.scope == self.scope):
            alike = kept.setdefault((n.buffer, type(n), structural_hash(n.indices, True)), [])  # of any variables
            if not any(structural_equal(n.indices, other.indices) for other in alike):
                alike.append(n)
        return [n for alike in kept.values() for n in alike]

    def visit(self, node: Any) -> Any:
        """Place barriers inside a statement."""
        if not isinstance(node, Stmt):
            return node
        if isinstance(node, SeqStmt):
            return self.following(node, [], node)
        if isinstance(node, IfThenElse) and any(v in self.places.tags for v in find(node.condition, Var)):
            inside = [self.visit(s) for s in (node.then_case, node.else_case) if s is not None]
            if any(is_barrier(n) for s in inside for n in find(s, Evaluate)):
                raise LoweringError(
                    "threads that take another side of a test would not reach a barrier",
                    where=node.span,
                    found=f"if {node.condition}",
                    help="move what needs the barrier out of the test",
                )
            return node
        new = rebuild(node, self.visit)
        if not isinstance(new, (For, While)) or (isinstance(new, For) and new.kind == ForKind.THREAD_BINDING):
            return new
        used = [] if _starts_with_barrier(new.body) else self.accesses(new.body)
        # One iteration may conflict with the next one; memory declared inside is the same in each.
        if not self.places.meet(used, used, within=new, writes=False):
            return new
        return replace_node(new, body=seq(self.barrier(), new.body))

    def following(self, node: Stmt, pending: list[Access], within: Stmt) -> Stmt:
        """Place barriers in a statement, and before it where it conflicts with what is `pending` since the last one."""
        if isinstance(node, (SeqStmt, AllocBuffer)):
            return rebuild(node, lambda n: self.following(n, pending, within) if isinstance(n, Stmt) else n)
        used, before = self.accesses(node), []
        if is_barrier(node):
            pending.clear()
        if self.places.meet(pending, used, within):
            before = [] if _starts_with_barrier(node) else [self.barrier()]
            pending.clear()
        pending += used
        return seq(*before, self.visit(node))


def is_barrier(node: object) -> bool:
    """Whether all threads of a block wait for each other here; those of a warp may do so on their own."""
    call = node.value if isinstance(node, Evaluate) else None
    if not isinstance(call, CallIntrin) or call.op.name != "tir.tvm_storage_sync":
        return False
    return not any(getattr(a, "value", None) == "warp" for a in call.args)


def _starts_with_barrier(node: Stmt) -> bool:
    while isinstance(node, (SeqStmt, AllocBuffer)):
        if isinstance(node, SeqStmt) and not node.seq:
            return False
        node = node.seq[0] if isinstance(node, SeqStmt) else node.body
    return is_barrier(node)
