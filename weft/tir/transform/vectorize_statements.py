"""VectorizeLoop as TVM's programs know it: what has no vector form becomes a loop, statement by statement.

The lanes may be a multiple of ``T.vscale()`` where the target's vectors have no fixed length.
"""

from __future__ import annotations

from typing import Any

from weft import arith, error, ir
from weft.tir.analysis.structure import jumps_out
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, While
from weft.tir.transform.vectorize import NoVector, Vectorizer

_OF_VECTORS = "Creating scalable vectors from existing vectors is not supported."
_OVER_SCALABLE = "Vectorizing over existing scalable vectors is not supported."
_OF_ELEMENTS = "Vectorizing over scalable buffer elements is not supported in vectorizer."


@ir.function_pass(kind=PrimFunc, name="VectorizeLoop")
def vectorize_statements(func: PrimFunc, mod: ir.IRModule, enable_vectorize: bool = True) -> PrimFunc:
    """Turn VECTORIZED loops into vector operations; of a body, each statement that has none becomes a serial loop.

    Requires: Flat buffers; extents that are constant, or multiples of ``T.vscale()`` on a target that has such vectors.
    Ensures: Flat buffers; no VECTORIZED loop. A condition on the lanes is a predicate of loads and stores where the
        configuration ``tir.enable_buffer_level_predication``, or else the target, says so.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            for i in T.vectorized(16):
                A[i] = A[i] + T.float32(1)
                if i < n:
                    A[i] = T.float32(2)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            A[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(1.0), 16)
            for i_s in range(16):
                if i_s < n:
                    A[i_s] = T.float32(2.0)

    Options:
        ``enable_vectorize``: when false, such loops become serial.
    Cost: Linear.
    Source: TVM's ``VectorizeLoop``.
    """
    target = func.attrs.get("target") or ir.Ambient.current_of("Target")
    return func.replace(body=_visit(func.body, enable_vectorize, target))


def _visit(node: ir.Node, enable: bool, target: Any) -> Any:
    if not isinstance(node, Stmt):
        return node
    if isinstance(node, AttrStmt) and node.attr_key == "target":
        target = node.node
    node = ir.rebuild(node, lambda n: _visit(n, enable, target))
    if not isinstance(node, For) or node.kind != ForKind.VECTORIZED or any(jumps_out(node.body)):
        return node
    if not enable:
        return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body, None, node.annotations)
    lanes = ir.lanes_from(node.extent)
    scalable = isinstance(lanes, ir.ScalableLanes)
    if lanes is None or (scalable and not _has_scalable_vectors(target)):
        raise error.UnsupportedForm(
            f"Failed to vectorize loop with extent {arith.Analyzer().simplify(node.extent)} for target {target}"
        )
    if lanes == 1:
        return ir.substitute(node.body, {node.loop_var: node.min})
    wanted = ir.PassContext.current().config.get("tir.enable_buffer_level_predication")
    predicates = _has_scalable_vectors(target) if wanted is None else wanted
    return _ByStatement(node, lanes, predicates).stmt(node.body, None)


def _has_scalable_vectors(target: Any) -> bool:
    features = getattr(target, "features", ())
    return "sve" in features or ("v" in features and "riscv" in str(target))


class _ByStatement(Vectorizer):
    """Rewrites the body of one loop, and makes loops of statements that have no vector form."""

    def __init__(self, loop: For, lanes: int, predicates: bool) -> None:
        super().__init__(loop, lanes)
        self.loop, self.predicates = loop, predicates

    def stmt(self, s: Any, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a statement."""
        if isinstance(s, While):
            raise error.LoweringError("A while loop inside a vectorized loop not supported")
        if isinstance(s, SeqStmt):
            return SeqStmt(tuple(self.stmt(x, None) for x in s.seq), span=s.span)
        if isinstance(s, For) and s.kind == ForKind.VECTORIZED:
            s = For(s.loop_var, s.min, s.extent, ForKind.SERIAL, s.body, None, s.annotations, span=s.span)
        try:
            return super().stmt(s, None)
        except NoVector:
            return self.scalar(s)

    def scalar(self, s: Stmt) -> Stmt:
        """Make a serial loop around a statement."""
        loop = self.loop
        if any(n in self.env and n is not loop.loop_var for n in ir.walk(s) if isinstance(n, ir.Var)):
            raise NoVector  # a name around it is a vector: the loop begins where the name is bound
        var = ir.Var(f"{loop.loop_var.name}_s", loop.loop_var.dtype)
        body = ir.substitute(s, {loop.loop_var: var + loop.min})
        return For(var, ir.const(0, var.dtype), loop.extent, ForKind.SERIAL, body, span=loop.span)

    def store(self, s: BufferStore, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a store; elements that are vectors themselves make a longer one."""
        self._check_elements(s.buffer.dtype)
        own = ir.DataType(s.buffer.dtype).lanes
        if own > 1 and isinstance(s.value, ir.Broadcast):
            index = self.expr(s.indices[0], None)
            return BufferStore(s.buffer, ir.Broadcast(s.value.value, own * self.lanes), (index,), span=s.span)
        return super().store(s, mask)

    def condition(self, s: IfThenElse, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a condition: one on the lanes is a predicate, or a loop."""
        c = self.expr(s.condition, None)
        if ir.DataType(c.dtype).lanes == 1:
            return super().condition(s, None)
        if self.predicates and s.else_case is None:
            done = _predicated(c, self.stmt(s.then_case, None))
            if done is not None:
                return done
        raise NoVector

    def expr(self, e: ir.PrimExpr, mask: ir.PrimExpr | None) -> ir.PrimExpr:
        """Rewrite an expression."""
        if isinstance(e, BufferLoad):
            self._check_elements(e.buffer.dtype)
        if isinstance(e, (ir.Ramp, ir.Broadcast)):
            inner = self.expr(e.base if isinstance(e, ir.Ramp) else e.value, None)
            if ir.DataType(inner.dtype).lanes > 1:
                if isinstance(self.lanes, ir.ScalableLanes):
                    raise error.UnsupportedForm(_OF_VECTORS)
                if isinstance(e.lanes, ir.ScalableLanes):
                    raise error.UnsupportedForm(_OVER_SCALABLE)
                raise NoVector
        if isinstance(e, ir.CallIntrin) and getattr(e.op, "name", "") == "tir.if_then_else":
            if ir.DataType(self.expr(e.args[0], None).dtype).lanes > 1:
                raise NoVector
        return super().expr(e, None)

    @staticmethod
    def _check_elements(dtype: str) -> None:
        if isinstance(ir.DataType(dtype).lanes, ir.ScalableLanes):
            raise error.UnsupportedForm(_OF_ELEMENTS)


def _predicated(condition: ir.PrimExpr, body: Stmt) -> Stmt | None:
    """Mask all loads and stores of `body` by ``ramp < limit``; None where one of them runs over other places."""
    if isinstance(condition, ir.CallIntrin) and condition.op.name == "tir.likely":
        condition = condition.args[0]
    if not (
        isinstance(condition, ir.LT) and isinstance(condition.a, ir.Ramp) and isinstance(condition.b, ir.Broadcast)
    ):
        return None
    ramp, limit = condition.a, condition.b.value
    if not ir.is_const_int(ramp.stride, 1):
        return None
    mask = ir.CallIntrin(f"uint1x{ramp.lanes}", ir.Op.get("tir.get_active_lane_mask"), (ramp.base, limit))
    others: list[Any] = []

    def masked(node: ir.Node) -> Any:
        if not isinstance(node, (BufferLoad, BufferStore)):
            return node
        index = node.indices[0] if len(node.indices) == 1 else None
        if (
            not isinstance(index, ir.Ramp)
            or node.predicate is not None
            or not ir.structural_equal(index.base, ramp.base, map_free_vars=False)
        ):
            others.append(node)
            return node
        if isinstance(node, BufferLoad):
            return BufferLoad(node.buffer, node.indices, mask, span=node.span)
        return BufferStore(node.buffer, node.value, node.indices, mask, span=node.span)

    result = ir.rewrite(body, masked)
    return None if others else result
