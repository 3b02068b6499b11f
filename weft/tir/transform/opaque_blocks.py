"""Blocks dissolve step by step, as programs of TVM spell the steps out; ``lower_blocks`` does all of them at once."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.ir import Attrs, IRModule, PrimExpr, Range, function_pass
from weft.tir.analysis.structure import iter_values_of, jumps_out, replace_node, subst_stmt, used_vars
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.match_buffer import bound_names, lower_match_buffers
from weft.tir.stmt import AllocBuffer, AttrStmt, Block, BlockRealize, For, ForKind, IfThenElse, Stmt, seq


def _over(func: PrimFunc, rule: Any) -> PrimFunc:
    return func.replace(body=ir.rewrite(func.body, rule))


@function_pass(kind=PrimFunc)
def lower_init_block(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Make the initialisation of a reduction a statement that runs in its first step.

    Requires: Blocks.
    Ensures: Blocks without ``init``.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
            for i in range(16):
                with T.block("sum"):
                    k = T.axis.reduce(16, i)
                    with T.init():
                        B[0] = T.float32(0)
                    B[0] = B[0] + A[k]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
            for i in range(16):
                with T.block("sum"):
                    k = T.axis.reduce(16, i)
                    T.reads(A[k])
                    T.writes(B[0])
                    if k == 0:
                        B[0] = T.float32(0)
                    B[0] = B[0] + A[k]
    Cost: Linear.
    Source: TVM's ``LowerInitBlock``.
    """

    def rule(node: ir.Node) -> Any:
        if type(node) is not Block or node.init is None:
            return node
        firsts = [ir.equal(iv.var, iv.dom.min) for iv in node.iter_vars if iv.iter_type == "reduce" and iv.dom]
        init = IfThenElse(ir.all_of(*firsts), node.init) if firsts else node.init
        return replace_node(node, init=None, body=seq(init, node.body))

    return _over(func, rule)


@function_pass(kind=PrimFunc)
def convert_blocks_to_opaque(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Replace the variables of blocks by their values.

    Requires: Blocks without ``init``; predicates that do not use the variables of their block.
    Ensures: Blocks without variables.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for i in range(8):
                with T.block("A"):
                    v = T.axis.spatial(16, i * 2)
                    T.reads()
                    T.writes(A[v])
                    A[v] = T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for i in range(8):
                with T.block("A"):
                    T.reads()
                    T.writes(A[i * 2])
                    A[i * 2] = T.float32(1)

    Raises
    ------
        LoweringError
            When a block has an ``init``, or its predicate uses its variables.
    Cost: Linear, times the depth of blocks.
    Source: TVM's ``ConvertBlocksToOpaque``.
    """

    def rule(node: ir.Node) -> Any:
        if type(node) is not BlockRealize:
            return node
        values, block = iter_values_of(node), node.block
        if block.init is not None:
            raise LoweringError(
                f"block '{block.name_hint}' has an init", where=block.span, help="LowerInitBlock goes first"
            )
        if used_vars(node.predicate) & set(values):
            raise LoweringError(
                f"the predicate of block '{block.name_hint}' uses variables that the block defines",
                expected="variables of the loops around it",
                found=str(node.predicate),
                where=block.span,
            )
        inner = subst_stmt(replace_node(block, iter_vars=()), values) if values else block
        return replace_node(node, iter_values=(), block=inner) if values else node

    return _over(func, rule)


@function_pass(kind=PrimFunc)
def lower_match_buffer(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Address the regions that matched buffers of blocks stand for.

    Requires: Blocks whose matched buffers have the shapes of their regions.
    Ensures: Blocks without matched buffers.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32")):
            for i in range(4):
                with T.block("tile"):
                    T.reads()
                    T.writes(A[i * 4:i * 4 + 4, 0:4])
                    tile = T.match_buffer(A[i * 4:i * 4 + 4, 0:4], (4, 4))
                    for j in range(4):
                        tile[j, j] = T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32")):
            for i in range(4):
                with T.block("tile"):
                    T.reads()
                    T.writes(A[i * 4:i * 4 + 4, 0:4])
                    for j in range(4):
                        A[i * 4 + j, j] = T.float32(1)

    Raises
    ------
        LoweringError
            When a region does not have the shape, strides or offset that the matched buffer declares.
    Cost: Linear, times the number of matched buffers.
    Source: TVM's ``LowerMatchBuffer``.
    """
    bound = bound_names(func)

    def outer_first(node: ir.Node) -> Any:
        if type(node) is not Block:
            return None
        if node.match_buffers:
            bare = replace_node(node, match_buffers=())
            node = lower_match_buffers(bare, node.match_buffers, node.span, bound)
        return ir.rebuild(node, lambda child: ir.rewrite(child, lambda n: n, pre=outer_first))

    return func.replace(body=ir.rewrite(func.body, lambda n: n, pre=outer_first))


@function_pass(kind=PrimFunc)
def lower_opaque_block(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Replace blocks by their bodies, allocations, predicates and pragmas; loops of one iteration go.

    Requires: Blocks without variables, inits and matched buffers.
    Ensures: No block. Threads are attributes; what a loop or a block is told as ``pragma_...`` is an attribute around
        it.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for i in range(1):
                for j in range(16):
                    with T.block("A"):
                        T.where(j < 8)
                        T.reads()
                        T.writes(A[j])
                        A[j] = T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            for j in range(16):
                if j < 8:
                    A[j] = T.float32(1)

    Raises
    ------
        LoweringError
            When a block has variables.
    Cost: Linear.
    Source: TVM's ``LowerOpaqueBlock``.
    """
    state = _Opaque(func)
    return _over(func, state.rule)


class _Opaque:
    """Lowers opaque blocks; remembers which strides blocks ask for their results."""

    def __init__(self, func: PrimFunc) -> None:
        self.aligned: dict[Buffer, Any] = {}
        self.unit: dict[ir.Var, PrimExpr] = {}
        for node in ir.walk(func.body):
            if type(node) is Block and "buffer_dim_align" in node.annotations:
                for index, *note in node.annotations["buffer_dim_align"]:
                    written = node.writes[ir.as_int(index) or 0].buffer
                    self.aligned[written] = (*self.aligned.get(written, ()), (ir.as_expr(-1), *note))

    def rule(self, node: ir.Node) -> Any:
        """Lower one statement whose children are lowered."""
        if type(node) is BlockRealize:
            return self.block(node)
        return self.loop(node) if type(node) is For else node

    def block(self, node: BlockRealize) -> Any:
        """Return what a block stands for."""
        if node.iter_values:
            raise LoweringError(
                f"block '{node.block.name_hint}' has variables",
                where=node.block.span,
                help="ConvertBlocksToOpaque goes first",
            )
        body = node.block.body
        if not ir.is_const_int(node.predicate, 1):
            body = IfThenElse(node.predicate, body)
        for buffer in reversed(node.block.alloc_buffers):
            notes: dict[str, Any] = {"buffer_data_alignment": buffer.data_alignment}
            notes["buffer_allocated_addr"] = ()
            if buffer in self.aligned:
                notes["buffer_dim_align"] = self.aligned[buffer]
            body = AllocBuffer(buffer, body, Attrs.of(None, **notes))
        return _with_pragmas(body, node.block.annotations, ir.as_expr(0))

    def loop(self, node: For) -> Any:
        """Return a loop without pragmas; its body where it runs once; an attribute for a thread."""
        kept = {k: v for k, v in node.annotations.items if not _is_pragma(k)}
        if node.kind == ForKind.THREAD_BINDING and node.thread_binding is not None:
            tag = node.thread_binding.thread_tag
            axis = ir.IterVar(Range.from_min_extent(node.min, node.extent), node.loop_var, "thread", tag)
            key = "virtual_thread" if tag.split(".")[0] == "vthread" else "thread_extent"
            body: Any = AttrStmt(axis, key, node.extent, node.body, span=node.span)
        elif ir.is_const_int(node.extent, 1) and not node.annotations.items and not any(jumps_out(node.body)):
            return subst_stmt(node.body, {node.loop_var: ir.cast(node.loop_var.dtype, node.min)})
        else:
            body = replace_node(node, annotations=Attrs.of(None, **kept) if kept else ir.NO_ATTRS)
        return _with_pragmas(body, node.annotations, node.loop_var)


def _is_pragma(key: str) -> bool:
    return key.startswith("pragma_")


def _with_pragmas(body: Stmt, annotations: Attrs, about: Any) -> Any:
    for key, value in sorted(annotations.items, key=lambda kv: kv[0], reverse=True):
        if _is_pragma(key):
            body = AttrStmt(about, key, value if isinstance(value, str) else ir.as_expr(value), body)
    return body
