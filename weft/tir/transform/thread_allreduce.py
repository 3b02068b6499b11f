"""LowerCrossThreadReduction on blocks: reductions over bound loops become a part per thread and an all-reduce."""

from __future__ import annotations

from functools import reduce
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.tir.analysis import structure
from weft.tir.analysis.dependence import is_reduction, reduce_vars
from weft.tir.analysis.reductions import Reduction, reduction_of
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, Block, BlockRealize, BufferStore, Evaluate, For, SeqStmt, Stmt, seq

_ZERO = ir.const(0, "int32")


def has_blocks(func: PrimFunc) -> bool:
    """Whether a function has blocks."""
    return isinstance(func.body, BlockRealize)


def all_reduce_threads(func: PrimFunc) -> PrimFunc:
    """Let each thread reduce what its own loops run over, and ``tvm_thread_allreduce`` put threads together.

    Each reduction block with a variable over loops that are bound to threads becomes up to four: the initial value and
    the thread's own part, where it has any, the sum over threads, and one that stores the result. Bound loops alone
    remain of those around.

    Raises
    ------
    InvalidArgument
        Where loops of the reduction are not the innermost ones, are bound to blocks of threads, or the block is no
        reduction by a known combiner, or another block follows it inside these loops.
    """
    if not has_blocks(func):
        return func
    return func.replace(body=_Lower().visit(func.body, (), None))


class _Lower:
    """Rewrites the blocks of a function; `made` are the buffers to allocate in the block being visited."""

    def __init__(self) -> None:
        self.made: list[Buffer] = []
        self.results: dict[Buffer, list[For]] = {}  # what threads reduced, and the loops over those threads
        self.bound: list[For] = []  # the bound loops around this place

    def visit(self, node: ir.Node, around: tuple[Stmt, ...], scope: Block | None) -> Any:
        """Rewrite below a statement; `around` are the statements between it and the block `scope`."""
        if isinstance(node, BlockRealize):
            outer, self.made = self.made, []
            body = self.visit(node.block.body, (), node.block)
            block = node.block
            if body is not block.body:
                block = structure.replace_node(block, body=body, alloc_buffers=(*block.alloc_buffers, *self.made))
            self.made = outer
            return self.by_one_thread(node if block is node.block else structure.replace_node(node, block=block))
        if isinstance(node, For) and scope is not None:
            found = self.reduction_below(node, around, scope)
            if found is not None:
                realize, loops = found
                return self.lower(realize, loops, node)
        if not isinstance(node, Stmt):
            return node
        inside = around if isinstance(node, SeqStmt) else (*around, node)
        bound = isinstance(node, For) and node.thread_binding is not None
        if isinstance(node, For) and bound:
            self.bound.append(node)
        out = ir.rebuild(node, lambda child: self.visit(child, inside, scope))
        if bound:
            self.bound.pop()
            if not self.bound:  # the end of a kernel
                self.results.clear()
        return out

    def by_one_thread(self, realize: BlockRealize) -> Stmt:
        """Let the first thread alone run a block that stores what threads reduced, where no loop around binds them."""
        block = realize.block
        if any(w.buffer.scope == "local" for w in block.writes):
            return realize
        free = {_tag(f): f for r in block.reads for f in self.results.get(r.buffer, ())}
        for f in self.bound:
            free.pop(_tag(f), None)
        loops = [structure.replace_node(f, loop_var=ir.Var(f"t{tag[-1]}", f.loop_var.dtype)) for tag, f in free.items()]
        tests = [*structure.conjuncts(realize.predicate), *_first_threads(loops)]
        out = structure.replace_node(realize, predicate=reduce(ir.And, tests)) if loops else realize
        return structure.around(loops, out)

    def reduction_below(self, loop: For, around: tuple[Stmt, ...], scope: Block) -> Any:
        """Return the first block, and its loops, whose outermost reduction loop is `loop`, if threads share it."""
        for realize, path in _realizes(loop, ()):
            known = is_reduction(realize, scope)
            if not known and realize.block.init is None:
                continue
            axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
            variables = structure.used_vars(tuple(v for iv, v in axes if iv.iter_type == "reduce"))
            loops = [s for s in (*around, *path) if isinstance(s, For) and s.loop_var in variables]
            if not loops or loops[0] is not loop or all(f.thread_binding is None for f in loops):
                continue
            name = realize.block.name_hint
            if not known:
                raise _unknown(realize.block, "it does more than to update what it sets first")
            if [s for s in path if not isinstance(s, SeqStmt)] != loops:
                raise InvalidArgument(
                    f"loops of the reduction '{name}', which threads share, are not the innermost",
                    help="reorder the loops",
                )
            bound = [f for f in loops if f.thread_binding is not None]
            tags = [_tag(f) for f in bound]
            if not all(t.startswith("threadIdx") for t in tags):
                raise InvalidArgument(
                    f"the reduction '{name}' runs over a loop that is bound to blocks of threads",
                    expected="threadIdx.x, y or z",
                    found=", ".join(tags),
                )
            if _realizes(loop, ())[-1][0] is not realize:
                raise InvalidArgument(f"another block follows the reduction '{name}' inside its loops")
            return realize, loops
        return None

    def lower(self, realize: BlockRealize, loops: list[For], outermost: For) -> Stmt:
        """Make the blocks of one reduction."""
        block, name = realize.block, realize.block.name_hint
        found = reduction_of(block)
        if isinstance(found, str):
            raise _unknown(block, found)
        if len({b.scope == "local" for b in found.buffers}) != 1:
            raise _unknown(block, "some of its buffers are local and some are not")
        bound = [f for f in loops if f.thread_binding is not None]
        whole = [_scratch(b, "cross") for b in found.buffers]
        self.made += whole
        self.results |= dict.fromkeys(found.buffers, bound)
        steps: list[Stmt] = []
        if len(bound) < len(loops) or structure.conjuncts(realize.predicate):
            parts = [_scratch(b, "in") for b in found.buffers]
            self.made += parts
            inits = [BufferStore(p, e, (_ZERO,)) for p, e in zip(parts, found.reducer.identity_element, strict=True)]
            steps.append(_block(f"{name}_in_thread_init", seq(*inits), (), _first(parts)))
            own = structure.replace_node(
                block,
                writes=_first(parts),
                name_hint=f"{name}_in_thread",
                init=None,
                body=_into(block.body, dict(zip(found.buffers, parts, strict=True))),
            )
            steps.append(_unbound(outermost, realize, structure.replace_node(realize, block=own)))
            sources: Any = [p[_ZERO] for p in parts]
        else:
            parts, sources = [], found.values
            rest = _unbound(outermost, realize, None)
            steps += [rest] if rest is not None else []
        call = ir.CallIntrin(
            "handle",
            ir.Op.get("tir.tvm_thread_allreduce"),
            (
                ir.const(len(whole), "uint32"),
                *sources,
                ir.TRUE,
                *(w[_ZERO] for w in whole),
                *(f.loop_var for f in bound),
            ),
        )
        body = AttrStmt(found.reducer, "reduce_scope", _ZERO, Evaluate(call))
        joined = _block(f"{name}_cross_thread", body, _first(parts) if parts else block.reads, _first(whole))
        if not parts:
            joined = structure.replace_node(
                joined,
                iter_values=realize.iter_values,
                block=structure.replace_node(joined.block, iter_vars=block.iter_vars),
            )
        steps += [joined, _write_back(realize, found, whole, loops)]
        return structure.around(bound, seq(*steps))


def _realizes(stmt: Stmt, path: tuple[Stmt, ...]) -> list[tuple[BlockRealize, tuple[Stmt, ...]]]:
    """List the outermost blocks below a statement, each with the statements around it, `stmt` first."""
    if isinstance(stmt, BlockRealize):
        return [(stmt, path)]
    return [x for child in ir.children(stmt) if isinstance(child, Stmt) for x in _realizes(child, (*path, stmt))]


def _tag(loop: For) -> str:
    assert loop.thread_binding is not None
    return loop.thread_binding.thread_tag


def _first_threads(loops: list[For]) -> list[ir.PrimExpr]:
    return [ir.EQ(f.loop_var, ir.const(0, f.loop_var.dtype)) for f in loops]


def _scratch(buffer: Buffer, kind: str) -> Buffer:
    return decl_buffer((1,), buffer.dtype, f"{kind}_thread_{buffer.name}", strides=[1], scope="local")


def _first(buffers: list[Buffer]) -> tuple[BufferRegion, ...]:
    return tuple(BufferRegion(b, (ir.Range.from_min_extent(_ZERO, ir.const(1, "int32")),)) for b in buffers)


def _block(name: str, body: Stmt, reads: Any, writes: Any) -> BlockRealize:
    return BlockRealize((), ir.TRUE, Block((), reads, writes, name, body))


def _into(body: Stmt, buffers: dict[Buffer, Buffer]) -> Any:
    """Let a statement use one element of scratch memory in the place of each of its results."""

    def rule(node: ir.Node) -> Any:
        if isinstance(node, BufferLoad) and node.buffer in buffers:
            return buffers[node.buffer][_ZERO]
        if isinstance(node, BufferStore) and node.buffer in buffers:
            return BufferStore(buffers[node.buffer], node.value, (_ZERO,))
        return node

    return ir.rewrite(body, rule)


def _unbound(stmt: Stmt, realize: BlockRealize, new: BlockRealize | None) -> Any:
    """Replace a block, or take it out, and take away the bound loops of reductions; None where nothing remains."""
    if isinstance(stmt, BlockRealize):
        return new if stmt is realize else stmt
    if isinstance(stmt, SeqStmt):
        kept = [s for s in (_unbound(x, realize, new) for x in stmt.seq) if s is not None]
        return seq(*kept) if kept else None
    if isinstance(stmt, For):
        body = _unbound(stmt.body, realize, new)
        reducing = any(isinstance(s, Block) and reduce_vars(s) for s in structure.statements(stmt.body))
        if body is None or (stmt.thread_binding is not None and reducing):
            return body
        return structure.replace_node(stmt, body=body)
    return stmt


def _write_back(realize: BlockRealize, found: Reduction, whole: list[Buffer], loops: list[For]) -> Stmt:
    """Store the results: by the first thread, where memory is shared among them."""
    block = realize.block
    values = zip(block.iter_vars, realize.iter_values, strict=True)
    pairs = [(structure.fresh_iter_var(iv), iv.var, value) for iv, value in values if iv.iter_type != "reduce"]
    renamed = {old: iv.var for iv, old, _ in pairs}
    indices = tuple(structure.subst_stmt(i, renamed) for i in found.indices)
    stores = [BufferStore(b, w[_ZERO], indices) for b, w in zip(found.buffers, whole, strict=True)]
    reducing = {f.loop_var for f in loops}
    tests = [c for c in structure.conjuncts(realize.predicate) if structure.used_vars(c).isdisjoint(reducing)]
    if found.buffers[0].scope != "local":
        tests += _first_threads([f for f in loops if f.thread_binding is not None])
    region = structure.subst_regions(block.writes[:1], renamed)[0].region
    made = Block(
        tuple(iv for iv, _, _ in pairs),
        _first(whole),
        tuple(BufferRegion(b, region) for b in found.buffers),
        f"{block.name_hint}_write_back",
        seq(*stores),
    )
    return BlockRealize(tuple(v for _, _, v in pairs), reduce(ir.And, tests) if tests else ir.TRUE, made)


def _unknown(block: Block, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the reduction '{block.name_hint}' cannot be shared among threads: {why}",
        help="bind another loop, or write the reduction as B[i] = B[i] op f",
    )
