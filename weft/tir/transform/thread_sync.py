"""ThreadSync: threads wait for each other where one needs what another did."""

from __future__ import annotations

from typing import Any

from weft.error import LoweringError
from weft.ir import CallIntrin, IRModule, Op, StringImm, Var, function_pass, rebuild, walk
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, Evaluate, For, ForKind, IfThenElse, SeqStmt, Stmt, While, seq


@function_pass(kind=PrimFunc, name="ThreadSync")
def thread_sync(func: PrimFunc, mod: IRModule, storage_scope: str = "shared") -> PrimFunc:
    """Put a barrier between statements where one writes memory of a scope that the other reads or writes.

    Conservative: any two accesses to one buffer may meet. A loop that would conflict with its own next iteration
    starts with a barrier.

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
    Cost: Quadratic in the statements of a sequence.
    Source: TVM's ``ThreadSync``.
    """
    threads = {
        n.loop_var
        for n in walk(func.body)
        if isinstance(n, For) and n.thread_binding is not None and n.thread_binding.thread_tag.startswith("threadIdx")
    }
    return func.replace(body=_Planner(storage_scope, threads).visit(func.body))


Accesses = tuple[frozenset[Var], frozenset[Var]]


class _Planner:
    def __init__(self, scope: str, threads: set[Var]) -> None:
        self.scope, self.threads = scope, threads

    def barrier(self) -> Stmt:
        return Evaluate(CallIntrin("void", Op.get("tir.tvm_storage_sync"), (StringImm(self.scope),)))

    def accesses(self, node: Any) -> Accesses:
        """Return which memory of the scope a statement reads, and which it writes."""
        reads = {n.buffer.data for n in walk(node) if isinstance(n, BufferLoad) and n.buffer.scope == self.scope}
        writes = {n.buffer.data for n in walk(node) if isinstance(n, BufferStore) and n.buffer.scope == self.scope}
        return frozenset(reads), frozenset(writes)

    def visit(self, node: Any) -> Any:
        """Place barriers inside a statement."""
        if not isinstance(node, Stmt):
            return node
        if isinstance(node, SeqStmt):
            return self.sequence(node)
        if isinstance(node, IfThenElse) and any(n in self.threads for n in walk(node.condition)):
            inside = [self.visit(s) for s in (node.then_case, node.else_case) if s is not None]
            if any(_has_barrier(s) for s in inside):
                raise LoweringError("threads that take another side of a test would not reach a barrier",
                                    where=node.span, found=f"if {node.condition}",
                                    help="move what needs the barrier out of the test")  # fmt: skip
            return node
        new = rebuild(node, self.visit)
        if not isinstance(new, (For, While)) or (isinstance(new, For) and new.kind == ForKind.THREAD_BINDING):
            return new
        if _starts_with_barrier(new.body) or not self.meets_itself(new.body):
            return new
        return replace_node(new, body=seq(self.barrier(), new.body))

    def meets_itself(self, body: Stmt) -> bool:
        """Whether one iteration conflicts with the next one; memory declared inside is the same in each."""
        reads, writes = self.accesses(body)
        return bool(reads & writes)

    def sequence(self, node: SeqStmt) -> Stmt:
        """Place barriers between statements of a sequence."""
        out: list[Stmt] = []
        pending: Accesses = (frozenset(), frozenset())
        for part in node.seq:
            reads, writes = self.accesses(part)
            if is_barrier(part):
                pending = (frozenset(), frozenset())
            if writes & (pending[0] | pending[1]) or reads & pending[1]:
                if not _starts_with_barrier(part):
                    out.append(self.barrier())
                pending = (frozenset(), frozenset())
            new = self.visit(part)
            out.append(new)
            pending = (pending[0] | reads, pending[1] | writes)
        return (
            node
            if all(a is b for a, b in zip(out, node.seq, strict=False)) and len(out) == len(node.seq)
            else seq(*out)
        )


def is_barrier(node: object) -> bool:
    """Whether all threads of a block wait for each other here; those of a warp may do so on their own."""
    call = node.value if isinstance(node, Evaluate) else None
    if not isinstance(call, CallIntrin) or call.op.name != "tir.tvm_storage_sync":
        return False
    return not any(isinstance(a, StringImm) and a.value == "warp" for a in call.args)


def _has_barrier(node: Any) -> bool:
    return any(is_barrier(n) for n in walk(node))


def _starts_with_barrier(node: Stmt) -> bool:
    while isinstance(node, (SeqStmt, AllocBuffer)):
        if isinstance(node, SeqStmt) and not node.seq:
            return False
        node = node.seq[0] if isinstance(node, SeqStmt) else node.body
    return is_barrier(node)
