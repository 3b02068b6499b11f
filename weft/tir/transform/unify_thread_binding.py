"""UnifyThreadBinding: one kernel has one variable for each kind of thread."""

from typing import Any

from weft import arith, error, ir
from weft.ir import IRModule, IterVar, PrimExpr, Range, Var, function_pass, rebuild
from weft.tir.analysis.structure import replace_node
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, For, ForKind, Stmt


@function_pass(kind=PrimFunc)
def unify_thread_binding(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Give all loops that are bound to one kind of thread one variable, bound around the whole kernel.

    Requires: Loops that are bound to one kind of thread in one kernel have one extent.
    Ensures: Each kernel begins with one loop for each kind of thread that it uses; inside are no others. What a loop
        that went was annotated with is on a loop of one iteration.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for b in T.thread_binding(1, thread="blockIdx.x"):
                for i in T.thread_binding(4, thread="threadIdx.x"):
                    A[i] = T.float32(1)
                for j in T.thread_binding(4, thread="threadIdx.x"):
                    B[j] = A[j]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for b in T.thread_binding(1, thread="blockIdx.x"):
                for t in T.thread_binding(4, thread="threadIdx.x"):
                    A[t] = T.float32(1)
                    B[t] = A[t]

    Raises
    ------
        InvalidArgument
            When two loops of one kernel that are bound to one kind of thread have different extents.
    Cost: Linear.
    Source: TVM's ``UnifyThreadBinding``.
    """
    return func.replace(body=_Unifier().stmt(func.body))


class _Unifier:
    """Rewrites a function; ``axes`` are the threads of the kernel that it is in."""

    def __init__(self) -> None:
        self.axes: dict[str, IterVar] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.depth = 0
        self.analyzer = arith.Analyzer()

    def stmt(self, node: ir.Node) -> Any:
        """Rewrite a node."""
        if isinstance(node, Var):
            return self.values.get(node, node)
        if isinstance(node, For) and node.kind == ForKind.THREAD_BINDING and node.thread_binding is not None:
            return self.bound(node, node.loop_var, node.thread_binding, Range.from_min_extent(node.min, node.extent))
        if isinstance(node, AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread"):
            zero = ir.const(0, node.value.dtype)
            return self.bound(node, node.node.var, node.node, Range.from_min_extent(zero, node.value))
        return rebuild(node, self.stmt)

    def bound(self, node: Any, var: Var, axis: IterVar, dom: Range) -> Stmt:
        """Return the body of a bound loop; with the loops of the whole kernel where it begins one."""
        tag, outside = axis.thread_tag, self.depth
        starts = outside == 0
        if starts:
            self.axes = {}
        self.depth += starts or tag.startswith(("blockIdx.", "clusterIdx.", "clusterCtaIdx"))
        known = self.axes.get(tag)
        if known is None:
            self.axes[tag] = known = IterVar(dom, Var(tag, dom.extent.dtype), axis.iter_type, tag)
        elif known.dom is None or not self.analyzer.can_prove_equal(dom.extent, known.dom.extent):
            raise error.InvalidArgument(
                f"loops bound to '{tag}' have different extents",
                expected=str(known.dom and known.dom.extent),
                found=str(dom.extent),
                where=node.span,
            )
        self.values[var] = ir.cast(var.dtype, known.var)
        body = self.stmt(node.body)
        self.depth = outside
        if starts:
            for one in reversed(self.axes.values()):
                assert one.dom is not None
                tagged = IterVar(one.dom, Var("", one.var.dtype), "thread", one.thread_tag)
                body = For(one.var, one.dom.min, one.dom.extent, ForKind.THREAD_BINDING, body, tagged)
            self.axes = {}
        return body if isinstance(node, AttrStmt) or not node.annotations.items else _annotated(body, node)


def _annotated(body: Stmt, loop: For) -> Stmt:
    """Put the annotations of a loop on what it became, or on a loop of one iteration."""
    if isinstance(body, For):
        return replace_node(body, annotations=loop.annotations)
    dtype = loop.loop_var.dtype
    one = For(Var("var", dtype), ir.const(0, dtype), ir.const(1, dtype), ForKind.SERIAL, body)
    return replace_node(one, annotations=loop.annotations)
