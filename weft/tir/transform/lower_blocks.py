"""LowerBlocks: blocks become the statements they stand for, and intermediate buffers are allocated where they live."""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import init_nest, replace_node, used_vars
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.match_buffer import bound_names, lower_match_buffers
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, DeclBuffer, For, ForKind, IfThenElse, SeqStmt, Stmt, seq
from weft.tir.transform.dim_align import DIM_ALIGN


@ir.function_pass(kind=PrimFunc)
def lower_blocks(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Replace blocks by their bodies, with iteration values, predicates and initialisations made explicit.

    Requires: ``tir.scheduled``.
    Ensures: No Block; every buffer of a block's ``alloc_buffers`` is an AllocBuffer around the smallest statement in
        which it lives. A reduction that may be empty is initialised before its loops, so that it leaves its identity.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    v = T.axis.spatial(16, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v] + T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                B[i] = A[i] + 1.0
    Cost: Linear in statements, times nesting depth for the placement.
    Source: TVM's ``LowerInitBlock``, ``PlanAndUpdateBufferAllocationLocation`` and ``ConvertBlocksToOpaque``.
    """
    if not ir.find(func.body, BlockRealize):
        return func
    state = _Lower(bound_names(func))
    body = state.stmt(func.body)
    uses = _Uses()
    for buffer in state.allocated:
        body = _place(body, buffer, state.carried.get(buffer, frozenset()), uses)
    return func.replace(body=ir.rewrite(body, state.noted) if state.notes else body)


class _Lower:
    """Collects what blocks allocate, and which loops carry a buffer from one iteration to the next."""

    def __init__(self, bound: frozenset[ir.Var]) -> None:
        self.bound = bound
        self.allocated: list[Buffer] = []
        self.depth: dict[Buffer, int] = {}  # how many loops are around the block that allocates a buffer
        self.carried: dict[Buffer, frozenset[ir.Var]] = {}
        self.notes: dict[Buffer, tuple[Any, ...]] = {}  # strides that were asked for
        self.loops: list[For] = []
        self.before: dict[Any, list[Stmt]] = {}  # inits that run ahead of a loop

    def stmt(self, node: ir.Node) -> Any:
        """Lower a statement."""
        if isinstance(node, BlockRealize):
            return self.block(node)
        if isinstance(node, For):
            self.loops.append(node)
            lowered = ir.rebuild(node, self.stmt)
            self.loops.pop()
            return seq(*self.before.pop(node, ()), lowered)
        if isinstance(node, Stmt):
            return ir.rebuild(node, self.stmt)
        return node

    def block(self, realize: BlockRealize) -> Stmt:
        """Lower one block."""
        block: Block = realize.block
        if block.match_buffers:
            block = replace_node(
                block,
                body=lower_match_buffers(block.body, block.match_buffers, block.span, self.bound),
                init=block.init and lower_match_buffers(block.init, block.match_buffers, block.span, self.bound),
                match_buffers=(),
            )
        self.allocated.extend(block.alloc_buffers)
        self.depth |= dict.fromkeys(block.alloc_buffers, len(self.loops))
        env = {iv.var: v for iv, v in zip(block.iter_vars, realize.iter_values, strict=True)}
        body = self.stmt(block.body)
        reduce_values = [
            (iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.iter_type == "reduce"
        ]
        steps = [v for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.iter_type != "data_par"]
        if steps:
            loops = frozenset(ir.find(tuple(steps), ir.Var))
            for region in block.writes:
                self.carried[region.buffer] = self.carried.get(region.buffer, frozenset()) | loops
        self.opaque_loops(block)
        for index, *note in block.annotations.get(DIM_ALIGN) or ():
            written = block.writes[ir.as_int(index) or 0].buffer
            self.notes[written] = (*self.notes.get(written, ()), tuple(note))
        at = self.first_reduction_loop(reduce_values) if block.init is not None else None
        if at is not None:
            nest = init_nest(realize, self.loops[at:], block.name_hint)
            outer, self.loops = self.loops, self.loops[:at]
            self.before.setdefault(outer[at], []).append(self.stmt(nest))
            self.loops = outer
        elif block.init is not None:
            first = ir.all_of(*(value == iv.dom.min for iv, value in reduce_values))  # type: ignore[union-attr]
            init = self.stmt(block.init)
            body = seq(init if isinstance(first, ir.IntImm) else IfThenElse(first, init), body)
        body = ir.substitute(body, env)
        if any(v.dtype != value.dtype for v, value in env.items()):  # int64 loops over a block of int32
            body = ir.rewrite(body, _of_one_type)
        predicate = realize.predicate
        return body if isinstance(predicate, ir.IntImm) and predicate.value else IfThenElse(predicate, body)

    def noted(self, node: ir.Node) -> Any:
        """Write down at an allocation what strides were asked for."""
        if not isinstance(node, AllocBuffer) or node.buffer not in self.notes:
            return node
        return replace_node(node, annotations=ir.Attrs.of(node.annotations, **{DIM_ALIGN: self.notes[node.buffer]}))

    def first_reduction_loop(self, reduce_values: list[tuple[ir.IterVar, ir.PrimExpr]]) -> int | None:
        """Return the place of the outermost loop of a reduction that may be empty; None where it never is."""
        analyzer = arith.Analyzer()
        if all(iv.dom is not None and analyzer.can_prove(iv.dom.extent >= 1) for iv, _ in reduce_values):
            return None
        reducing = {v for _, value in reduce_values for v in used_vars(value)}
        return next((i for i, f in enumerate(self.loops) if f.loop_var in reducing), None)

    def opaque_loops(self, block: Block) -> None:
        """Note that loops inside a block without blocks of its own may carry any buffer's value from step to step.

        So may those around a block without variables, up to the one that allocates a buffer or a loop without order.
        """
        for region in () if block.iter_vars else (*block.reads, *block.writes):
            around = self.loops[self.depth.get(region.buffer, len(self.loops)) :]
            serial = (ForKind.SERIAL, ForKind.UNROLLED)
            bound = max((i + 1 for i, f in enumerate(around) if f.kind not in serial), default=0)
            steps = frozenset(f.loop_var for f in around[bound:] if not ir.is_const_int(f.extent, 1))
            self.carried[region.buffer] = self.carried.get(region.buffer, frozenset()) | steps
        nodes = ir.find(block.body, For, BlockRealize, Buffer)
        loops = frozenset(n.loop_var for n in nodes if isinstance(n, For))
        if loops and not any(isinstance(n, BlockRealize) for n in nodes):
            for n in nodes:
                if isinstance(n, Buffer):
                    self.carried[n] = self.carried.get(n, frozenset()) | loops


class _Uses(dict[Stmt, set[Any]]):
    """The buffers and variables below each statement that was asked for."""

    def __missing__(self, stmt: Stmt) -> set[Any]:
        found: set[Any] = set()
        for child in ir.children(stmt):
            found.update(self[child] if isinstance(child, Stmt) else ir.find(child, Buffer, ir.Var))
        self[stmt] = found
        return found

    def has(self, stmt: Stmt, buffer: Buffer) -> bool:
        """Whether a statement uses a buffer or its memory."""
        used = self[stmt]
        return buffer in used or buffer.data in used


def _place(body: Stmt, buffer: Buffer, carried: frozenset[ir.Var], uses: _Uses) -> Stmt:
    """Allocate a buffer around the smallest statement that holds all its uses.

    The statement is never inside a loop that carries the buffer's value, nor inside a vectorised loop.
    """
    if not uses.has(body, buffer):
        return body
    if isinstance(body, For) and (body.loop_var in carried or body.kind == ForKind.VECTORIZED):
        return AllocBuffer(buffer, body)
    if isinstance(body, SeqStmt):
        users = [i for i, s in enumerate(body.seq) if uses.has(s, buffer)]
        if len(users) == 1:
            i = users[0]
            return SeqStmt((*body.seq[:i], _place(body.seq[i], buffer, carried, uses), *body.seq[i + 1 :]))
        if users[0] > 0 or users[-1] < len(body.seq) - 1:
            inner = seq(*body.seq[users[0] : users[-1] + 1])
            return seq(*body.seq[: users[0]], AllocBuffer(buffer, inner), *body.seq[users[-1] + 1 :])
        return AllocBuffer(buffer, body)
    branches = [s for s in ir.children(body) if isinstance(s, Stmt)] if isinstance(body, IfThenElse) else []
    if isinstance(body, (For, AllocBuffer, DeclBuffer)) or sum(uses.has(s, buffer) for s in branches) == 1:
        parts = ("body", "then_case", "else_case", "span")
        direct = tuple(getattr(body, f) for f in body.__struct_fields__ if f not in parts)
        if not any(n is buffer or n is buffer.data for n in ir.find(direct, Buffer, ir.Var)):
            return ir.rebuild(body, lambda n: _place(n, buffer, carried, uses) if isinstance(n, Stmt) else n)
    return AllocBuffer(buffer, body)


def _of_one_type(node: ir.Node) -> Any:
    """Give both operands of an integer operation the wider type of the two."""
    if isinstance(node, (ir.BinaryOp, ir.CmpOp)) and node.a.dtype != node.b.dtype:
        return type(node)(*ir.unify_dtypes(node.a, node.b))
    return node
