"""InjectSoftwarePipeline: statements of a loop run for different iterations at once, as annotations on it say."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

from weft import arith, ir
from weft.error import InvalidArgument
from weft.tir import stmt as stmts
from weft.tir.analysis.access import access_regions, addressed
from weft.tir.analysis.structure import iter_values_of, replace_node, subst_stmt
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.function import PrimFunc
from weft.tir.transform.convert_ssa import defined_once

_DOUBLE = "double_buffer_scope"
STAGE, ORDER, ASYNC = (f"software_pipeline_{x}" for x in ("stage", "order", "async_stages"))


@ir.function_pass(kind=PrimFunc)
def inject_software_pipeline(func: PrimFunc, mod: ir.IRModule, *, strict: bool = True) -> PrimFunc:
    """Overlap the iterations of loops that are annotated with ``software_pipeline_stage`` and ``_order``.

    The statement of stage `s` runs, for iteration `i`, with those of stage 0 for iteration ``i + s``; in one step they
    run in their order. Stages that are to be asynchronous run with the others; of theirs, a copy to memory that threads
    share is two: at its place it loads to the thread's own memory, and stores from there at the end of the step, so
    that what stands between hides how long loads take.

    A loop of another number of statements than its annotations say is an error, or, unless `strict`, stays as it is.

    Requires: Any form without ``init``. Annotated loops hold a sequence with one stage and one place in the order for
        each statement; nothing is used before it is made, and what stages share is allocated inside the loop, or one
        iteration's own.
    Ensures: The same form: a prologue, a loop and an epilogue; buffers that several iterations use at once have a copy
        for each.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
            for i in T.serial(16, annotations={"software_pipeline_stage": (0, 1), "software_pipeline_order": (0, 1)}):
                with T.decl_buffer((1,), "float32") as B:
                    B[0] = A[i] * 2.0
                    C[i] = B[0] + 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
            with T.decl_buffer((2, 1), "float32") as B:
                B[0, 0] = A[0] * 2.0
                for i in range(15):
                    B[(i + 1) % 2, 0] = A[i + 1] * 2.0
                    C[i] = B[i % 2, 0] + 1.0
                C[15] = B[1, 0] + 1.0
    Cost: Linear, times the number of stages.
    Source: TVM's ``InjectSoftwarePipeline``.
    """
    if not any(STAGE in n.annotations or ORDER in n.annotations for n in ir.find(func.body, stmts.For)):
        return func
    return defined_once(func.replace(body=_visit(func.body, strict)))


def _visit(node: ir.Node, strict: bool) -> Any:
    node = ir.rebuild(node, lambda n: _visit(n, strict)) if isinstance(node, stmts.Stmt) else node
    if isinstance(node, stmts.For) and (STAGE in node.annotations or ORDER in node.annotations):
        return _Pipeline(node).stmt(strict)
    return node


class _Part(NamedTuple):
    """One statement of a pipelined loop, and the regions that it reads and writes in one iteration."""

    stmt: stmts.Stmt
    stage: int
    order: int
    reads: dict[Buffer, BufferRegion]
    writes: dict[Buffer, BufferRegion]


class _Pipeline:
    """A loop, the statements in it, and the buffers that are allocated around them."""

    def __init__(self, loop: stmts.For) -> None:
        self.loop, self.buffers, self.blocks = loop, list[Buffer](), False
        self.analyzer = arith.Analyzer()
        self.analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))
        self.stmts = self.opened(loop.body)
        self.versions: dict[Buffer, Buffer] = {}
        self.last = 0
        self.twice: set[Buffer] = set()  # one copy is stored while the other is read: a barrier less

    def opened(self, stmt: stmts.Stmt) -> list[stmts.Stmt]:
        """Take a body apart: blocks of sequences without a condition, allocations and sequences."""
        if isinstance(stmt, stmts.AllocBuffer):
            self.buffers.append(stmt.buffer)
            return self.opened(stmt.body)
        if isinstance(stmt, stmts.SeqStmt):
            return [x for s in stmt.seq for x in self.opened(s)]
        block = stmt.block if isinstance(stmt, stmts.BlockRealize) and ir.is_const_int(stmt.predicate, 1) else None
        if block is None or not isinstance(block.body, stmts.SeqStmt) or block.init is not None or block.match_buffers:
            return [stmt]
        self.buffers += block.alloc_buffers
        self.blocks = True
        return self.opened(subst_stmt(block.body, iter_values_of(stmt)))  # type: ignore[arg-type]

    def stmt(self, strict: bool) -> stmts.Stmt:
        """Write the loop as a pipeline."""
        notes = self.loop.annotations
        stages, orders = ([ir.as_int(x) for x in notes.get(key) or ()] for key in (STAGE, ORDER))
        plain = replace_node(self.loop, annotations=notes.without(STAGE, ORDER, ASYNC))
        if not strict and len(self.stmts) != len(stages):
            return plain
        n, name = len(self.stmts), self.loop.loop_var.name
        if len(stages) != n or sorted(map(str, orders)) != sorted(map(str, range(n))) or None in stages:
            raise InvalidArgument(
                f"the pipeline of loop '{name}' needs a stage and a place for each statement",
                expected=f"{n} stages, and the numbers below {n} in some order",
                found=f"{STAGE} {stages}, {ORDER} {orders}",
            )
        self.split_copies(stages, orders, {ir.as_int(x) for x in notes.get(ASYNC) or ()})
        least = min(x for x in stages if x is not None)
        parts: list[_Part] = []
        for stmt, stage, order in zip(self.stmts, stages, orders, strict=True):
            assert stage is not None and order is not None
            reads, writes = access_regions([stmt], self.analyzer)
            regions = ({r.buffer: r for r in kind} for kind in (reads, writes))
            parts.append(_Part(stmt, stage - least, order, *regions))
        self.check(parts)
        self.copies(parts)
        last = self.last = max(p.stage for p in parts)
        order = sorted(parts, key=lambda p: p.order)
        start, end = self.loop.min, self.loop.min + self.loop.extent
        after = self.analyzer.simplify(ir.max_(start + last, end))
        after = after if isinstance(after, ir.IntImm) else end
        body = [self.steps(order, start + last, end, None)]
        if last:
            body = [
                self.steps(order, start, start + last, start),
                *body,
                self.steps(order, after, end + last, start + last),
            ]
        made = [self.versions.get(b, b) for b in self.buffers]
        if self.blocks:
            return self.block(stmts.seq(*body), made)
        result = stmts.seq(*body)
        for buffer in reversed(made):
            result = stmts.AllocBuffer(buffer, result)
        return result

    def split_copies(self, stages: list[int | None], orders: list[int | None], asynchronous: set[int | None]) -> None:
        """Part the copies to shared memory of asynchronous stages; loads keep their places, stores come last."""
        for i in reversed(range(len(stages))):
            halves = _load_and_store(self.stmts[i], ()) if stages[i] in asynchronous else None
            if halves is not None:
                self.stmts[i : i + 1] = halves[:2]
                stages.insert(i, stages[i])
                orders.insert(i + 1, len(orders))
                self.buffers.append(halves[2])
                self.twice |= {n.buffer for n in ir.find(halves[1], stmts.BufferStore)}

    def check(self, parts: list[_Part]) -> None:
        """Refuse what another order of the statements would change."""
        var, name = self.loop.loop_var, self.loop.loop_var.name
        hidden = addressed(*(p.stmt for p in parts))
        for a, b in combinations(parts, 2):
            shared = [x for x in (*a.writes, *a.reads) if x in b.writes or (x in b.reads and x in a.writes)]
            if shared and (a.stage > b.stage or (a.stage == b.stage and a.order > b.order)):
                raise InvalidArgument(
                    f"the pipeline of loop '{name}' uses '{shared[0].name}' before it is made",
                    help="give what needs others a later stage, or place in the order",
                )
            for x in dict.fromkeys(shared) if a.stage != b.stage else ():
                boxes = [r for p in (a, b) for kind in (p.reads, p.writes) if (r := kind.get(x)) is not None]
                if x.data in hidden or (x not in self.buffers and not _own(boxes, var)):
                    raise InvalidArgument(
                        f"iterations of the pipeline of loop '{name}' share '{x.name}'",
                        help="allocate inside the loop what its stages share",
                    )

    def copies(self, parts: list[_Part]) -> None:
        """Give buffers that several iterations use at once a copy for each."""
        blocks = [b for b in ir.find(tuple(self.stmts), stmts.Block) if _DOUBLE in b.annotations]
        doubled = {b.writes[ir.as_int(b.annotations[_DOUBLE]) or 0].buffer for b in blocks}
        for buffer in self.buffers:
            users = [p for p in parts if buffer in p.reads or buffer in p.writes]
            makers = [p.stage for p in users if buffer in p.writes]
            count = max((p.stage for p in users), default=0) - min(makers, default=0) + 1
            ahead = buffer in doubled | self.twice or any(
                a.stage < b.stage and a.order < b.order and _meet(a, b, buffer) for a in users for b in users
            )
            count = max(count, 2) if buffer in doubled else count
            if makers and (count > 2 or (count == 2 and ahead)):
                dtype = buffer.shape[0].dtype if buffer.shape else "int32"
                strides = (buffer.strides[0] * buffer.shape[0], *buffer.strides) if buffer.strides else ()
                self.versions[buffer] = replace_node(
                    buffer, shape=(ir.const(count, dtype), *buffer.shape), strides=strides
                )

    def steps(self, parts: list[_Part], start: ir.PrimExpr, end: ir.PrimExpr, least: ir.PrimExpr | None) -> stmts.Stmt:
        """Write the steps from `start` to `end`; with `least`, those from there on that an iteration needs."""
        an, dtype = arith.Analyzer(), self.loop.loop_var.dtype
        extent, start = self.analyzer.simplify(end - start), self.analyzer.simplify(start)
        once = ir.is_const_int(extent, 1)
        if isinstance(extent, ir.IntImm) and extent.value <= 0:
            return self.block(stmts.Evaluate(ir.const(0)), []) if self.blocks else stmts.seq()
        var = ir.Var(self.loop.loop_var.name, dtype)
        an.bind(var, ir.Range.from_min_extent(ir.const(0, dtype), extent))
        time = start if once else var + start
        made: list[stmts.Stmt] = []
        for p in parts:
            at = an.simplify(time - p.stage)
            tests: list[ir.PrimExpr] = []
            if least is not None:
                begin = self.loop.min + p.stage
                inside = time >= begin, time < begin + self.loop.extent, time >= least
                tests = [t for x in inside if not ir.is_const_int(t := an.simplify(x), 1)]
            if any(ir.is_const_int(t, 0) for t in tests):
                continue
            place = an.simplify(at - self.loop.min)
            body = ir.rewrite(subst_stmt(p.stmt, {self.loop.loop_var: at}), lambda n, i=place: self.in_copy(n, i, an))
            made.append(self.where(body, tests))
        body = stmts.seq(*made)
        if not once:
            kind = stmts.ForKind.UNROLLED if least is not None else self.loop.kind
            notes = ir.NO_ATTRS if least is not None else self.loop.annotations.without(STAGE, ORDER, ASYNC)
            body = stmts.For(var, ir.const(0, dtype), extent, kind, body, None, notes)
        return self.block(body, []) if self.blocks and (not once or len(made) != 1) else body

    def in_copy(self, node: ir.Node, at: ir.PrimExpr, an: arith.Analyzer) -> Any:
        """Use, of a buffer with several copies, that of iteration `at`; regions of several stages name them all."""
        if not isinstance(node, (BufferLoad, stmts.BufferStore, BufferRegion)) or node.buffer not in self.versions:
            return node
        new = self.versions[node.buffer]
        place = an.simplify(ir.floormod(at, ir.cast(at.dtype, new.shape[0])))
        if isinstance(node, BufferRegion):
            every = ir.Range.from_min_extent(ir.const(0, place.dtype), new.shape[0])
            own = ir.Range.from_min_extent(place, ir.const(1, place.dtype))
            return BufferRegion(new, (own if self.last == 1 else every, *node.region))
        return replace_node(node, buffer=new, indices=(place, *node.indices))

    def where(self, stmt: stmts.Stmt, tests: list[ir.PrimExpr]) -> stmts.Stmt:
        """Run a statement under conditions."""
        test = ir.all_of(*tests)
        if not self.blocks:
            return stmts.IfThenElse(test, stmt) if tests else stmt
        if not isinstance(stmt, stmts.BlockRealize):
            stmt = self.block(stmt, [])
        assert isinstance(stmt, stmts.BlockRealize)
        return replace_node(stmt, predicate=ir.logical_and(stmt.predicate, test)) if tests else stmt

    def block(self, body: stmts.Stmt, buffers: list[Buffer]) -> stmts.Stmt:
        """Make a block of a statement."""
        reads, writes = access_regions([body], self.analyzer, buffers)
        return stmts.BlockRealize((), ir.TRUE, stmts.Block((), reads, writes, "", body, None, tuple(buffers)))


def _load_and_store(node: stmts.Stmt, loops: tuple[stmts.For, ...]) -> tuple[stmts.Stmt, stmts.Stmt, Buffer] | None:
    """Part a copy to shared memory inside of `loops`: to memory of the thread, from there, and that memory.

    None where a statement is something else.
    """
    if isinstance(node, stmts.BufferStore):
        shared = [n for n in ir.find(node.value, BufferLoad) if n.buffer.scope.startswith("shared")]
        own = [x for x in loops if x.thread_binding is None]
        if shared or not node.buffer.scope.startswith("shared") or any(ir.as_int(x.extent) is None for x in own):
            return None
        name, one = f"{node.buffer.name}_ahead", ir.const(1, "int32")
        kept = Buffer(
            ir.Var(name, "handle"), node.buffer.dtype, tuple(x.extent for x in own) or (one,), name=name, scope="local"
        )
        at = tuple(x.loop_var - x.min for x in own) or (one - one,)
        return stmts.BufferStore(kept, node.value, at), replace_node(node, value=BufferLoad(kept, at)), kept
    if not isinstance(node, (stmts.For, stmts.IfThenElse)) or getattr(node, "else_case", None) is not None:
        return None
    field, around = ("body", (*loops, node)) if isinstance(node, stmts.For) else ("then_case", loops)
    found = _load_and_store(getattr(node, field), around)
    if found is None:
        return None
    load, store = (replace_node(node, **{field: half}) for half in found[:2])
    return load, store, found[2]


def _meet(a: _Part, b: _Part, buffer: Buffer) -> bool:
    """Whether one of two statements writes what the other one touches."""
    an = arith.Analyzer()
    pairs = [(a.writes, b.writes), (a.writes, b.reads), (a.reads, b.writes)]
    return any(
        not any(
            an.can_prove(x.min + x.extent <= y.min) or an.can_prove(y.min + y.extent <= x.min)
            for x, y in zip(one[buffer].region, other[buffer].region, strict=True)
        )
        for one, other in pairs
        if buffer in one and buffer in other
    )


def _own(boxes: list[BufferRegion], var: ir.Var) -> bool:
    """Whether in some dimension all regions are one element, at the same place, that moves with the loop."""
    first = boxes[0].region
    return any(
        all(ir.structural_equal(b.region[i], r) for b in boxes)
        and ir.is_const_int(r.extent, 1)
        and ir.as_int((arith.detect_linear_equation(r.min, [var]) or [ir.const(0)])[0]) not in (0, None)
        for i, r in enumerate(first)
    )
