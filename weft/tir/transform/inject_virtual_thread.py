"""InjectVirtualThread: loops over virtual threads go inside the other loops, around what differs between threads.

Virtual threads share what is the same for all of them; of memory that holds something else for each, there is a copy
for each. So their statements stand side by side in the innermost loop.
"""

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.ir import CallIntrin, IntImm, IRModule, Var, find, function_pass, rebuild, rewrite, substitute, walk
from weft.tir import stmt as stmts
from weft.tir.analysis.access import is_pure
from weft.tir.analysis.structure import replace_node, stmt_children
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.transform.dim_align import behind_new_axis

_MAX_UNROLLED = 16
_ONCE = ("tir.tvm_storage_sync", "tir.prefetch")  # what threads do together, or need not do


def is_virtual(node: ir.Node) -> bool:
    """Whether a node is a loop over virtual threads (``vthread``, ``vthread.x``, ..., ``cthread``)."""
    return (
        isinstance(node, stmts.For)
        and node.thread_binding is not None
        and (node.thread_binding.thread_tag.split(".")[0] in ("vthread", "cthread"))
    )


@function_pass(kind=PrimFunc)
def inject_virtual_thread(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Replace each loop over virtual threads by loops around the statements that differ between them.

    Requires: No blocks; buffers with their dimensions.
    Ensures: The same form, without loops bound to ``vthread``. Memory allocated inside that threads fill differently
        has a new first dimension, the thread. Below 16 threads their statements are to be unrolled. Where the number of
        threads is not constant, or a call with effects gets memory that is allocated inside, threads run one by one.
    Before::

        @T.prim_func
        def f(A: T.Buffer((2, 8), "float32"), B: T.Buffer((2, 8), "float32")):
            for v in T.thread_binding(2, thread="vthread"):
                S = T.alloc_buffer((1,))
                for i in range(8):
                    S[0] = A[v, i] * 2.0
                    B[v, i] = S[0] + 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((2, 8), "float32"), B: T.Buffer((2, 8), "float32")):
            S = T.alloc_buffer((2, 1))
            for i in range(8):
                for v in T.unroll(2):
                    S[v, 0] = A[v, i] * 2.0
                for v in T.unroll(2):
                    B[v, i] = S[v, 0] + 1.0
    Cost: Linear in statements, for each round of the search for what differs.
    Source: TVM's ``InjectVirtualThread``.
    """
    return func.replace(body=_visit(func.body))


def _visit(node: Any) -> Any:
    if not isinstance(node, stmts.Stmt):
        return node
    node = rebuild(node, _visit)
    if not is_virtual(node):
        return node
    known = isinstance(node.extent, IntImm) and node.extent.value > 0 and not _opaque(node)
    return _Injector(node).run() if known else _one_by_one(node)


def _one_by_one(
    loop: stmts.For, kind: stmts.ForKind = stmts.ForKind.SERIAL, body: stmts.Stmt | None = None
) -> stmts.For:
    """Return a plain loop over the threads, with a variable of its own."""
    var = Var(loop.loop_var.name, loop.loop_var.dtype)
    body = substitute(loop.body if body is None else body, {loop.loop_var: var})
    return stmts.For(var, loop.min, loop.extent, kind, body, None, loop.annotations, span=loop.span)


def _opaque(loop: stmts.For) -> bool:
    """Whether memory that is allocated inside is used by its pointer or another name."""
    inside = [n.buffer for n in find(loop.body, stmts.AllocBuffer)]
    mine = {x for b in inside for x in (b, b.data)}
    calls = [n for n in find(loop.body, CallIntrin) if n.op.name not in _ONCE and not is_pure(n)]
    views = [n.buffer.data for n in find(loop.body, stmts.DeclBuffer)]
    return any(n in mine for n in walk((tuple(calls), tuple(views)))) or any(
        isinstance(n, stmts.LetStmt) and n.var.dtype == "handle" for n in walk(loop.body)
    )


class _Injector:
    """Places the loops of one nest."""

    def __init__(self, loop: stmts.For) -> None:
        self.loop, self.thread = loop, loop.loop_var
        self.inside = {n.buffer for n in find(loop.body, stmts.AllocBuffer)}
        self.differs: set[Any] = {self.thread}  # variables and buffers that are not the same for all threads

    def run(self) -> stmts.Stmt:
        """Find what differs, and place the loops."""
        before = -1
        while before != len(self.differs):
            before = len(self.differs)
            self.search(self.loop.body, False)
        copies = {
            n.buffer: self.copied(n.buffer)
            for n in walk(self.loop.body)
            if isinstance(n, stmts.AllocBuffer) and n.buffer in self.differs
        }
        at = self.thread - self.loop.min

        def rule(n: Any) -> Any:
            if isinstance(n, (BufferLoad, stmts.BufferStore)) and n.buffer in copies:
                return replace_node(n, buffer=copies[n.buffer], indices=(at, *n.indices))
            if isinstance(n, stmts.Prefetch) and n.buffer in copies:
                return stmts.seq()
            if isinstance(n, stmts.AllocBuffer) and n.buffer in copies:
                return replace_node(n, buffer=copies[n.buffer], annotations=behind_new_axis(n.annotations))
            return n

        self.inside |= set(copies.values())
        self.differs |= set(copies.values())
        return self.place(rewrite(self.loop.body, rule))

    def copied(self, b: Buffer) -> Buffer:
        strides = (b.strides[0] * b.shape[0], *b.strides) if b.strides else ()  # rows do not overlap
        var = Var(b.data.name, b.data.dtype)
        return replace_node(b, data=var, shape=(self.loop.extent, *b.shape), strides=strides)

    def depends(self, value: Any) -> bool:
        """Whether an expression, or part of a statement, differs between threads."""
        return any(n in self.differs for n in walk(value))

    def search(self, node: stmts.Stmt, inside: bool) -> None:
        """Note what a statement makes different; `inside` a test or loop that is."""
        if isinstance(node, stmts.BufferStore):
            if inside or self.depends((node.value, node.indices, node.predicate)):
                self.differs.add(node.buffer)
            return
        if isinstance(node, stmts.LetStmt) and (inside or self.depends(node.value)):
            self.differs.add(node.var)
        if isinstance(node, stmts.For):
            own = self.depends((node.min, node.extent))
            if own:
                self.differs.add(node.loop_var)
            inside = inside or own
        elif isinstance(node, (stmts.IfThenElse, stmts.While, stmts.AssertStmt)):
            inside = inside or self.depends(node.condition)
        for child in stmt_children(node):
            self.search(child, inside)

    def place(self, node: stmts.Stmt) -> stmts.Stmt:
        """Return a statement with the loops over threads where they belong."""
        if not self.repeats(node):
            return node
        if isinstance(node, stmts.SeqStmt):
            return stmts.seq(*[self.place(s) for s in node.seq])
        heads: Sequence[Any] | None = None
        if isinstance(node, stmts.For):
            heads = (node.min, node.extent)
        elif isinstance(node, (stmts.LetStmt, stmts.AttrStmt)):
            heads = (node.value,)
        elif isinstance(node, (stmts.IfThenElse, stmts.AssertStmt)):
            heads = (node.condition,)
        elif isinstance(node, stmts.AllocBuffer):
            heads = ()
        if heads is None or self.depends(heads):
            short = isinstance(self.loop.extent, IntImm) and self.loop.extent.value < _MAX_UNROLLED
            return _one_by_one(self.loop, stmts.ForKind.UNROLLED if short else stmts.ForKind.SERIAL, node)
        return rebuild(node, lambda n: self.place(n) if isinstance(n, stmts.Stmt) else n)

    def repeats(self, node: stmts.Stmt) -> bool:
        """Whether running a statement once is not the same as each thread running it."""
        for n in walk(node):
            if n in self.differs:
                return True
            if (
                isinstance(n, stmts.BufferStore)
                and n.buffer not in self.inside
                and any(isinstance(x, BufferLoad) and x.buffer.data is n.buffer.data for x in walk(n.value))
            ):
                return True
            if (
                isinstance(n, stmts.Evaluate)
                and not is_pure(n.value)
                and not (isinstance(n.value, CallIntrin) and n.value.op.name in _ONCE)
            ):
                return True
        return False
