"""Loops that are left early: which they are, and how they become loops that are not."""

from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.tir.analysis.structure import jump, jumps_out, map_children, replace_node, statements
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, While, seq

_FIXED = (
    "pragma_auto_unroll_max_step",
    "pragma_unroll_explicit",
    "pragma_loop_partition_hint",
    "software_pipeline_stage",
)


@ir.function_pass(kind=PrimFunc)
def annotate_irregular_loop(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Mark loops with ``break`` or ``continue``, for passes that must leave them as they are.

    Requires: Any form.
    Ensures: The same form. Such a For has the annotation ``irregular_loop_mark``; one that is no plain loop, or that is
        to be unrolled, partitioned or pipelined, is an error.
    Before::

        @T.prim_func
        def f(A: T.Buffer((10,), "int32")):
            for i in range(10):
                if A[i] > 5:
                    break
                A[i] = A[i] + 1

    After::

        @T.prim_func
        def f(A: T.Buffer((10,), "int32")):
            for i in T.serial(10, annotations={"irregular_loop_mark": 1}):
                if A[i] > 5:
                    break
                A[i] = A[i] + 1
    Cost: Linear in statements, times the depth of loops.
    Source: TVM's ``AnnotateIrregularLoop``.
    """

    def visit(stmt: Stmt) -> Stmt:
        new = map_children(stmt, visit)
        if not isinstance(new, For) or not any(jumps_out(new.body)):
            return new
        _check(new)
        return replace_node(new, annotations={**new.annotations, "irregular_loop_mark": 1})

    return func.replace(body=visit(func.body))


def _check(loop: For) -> None:
    found = [k for k in _FIXED if k in loop.annotations]
    if loop.kind != ForKind.SERIAL or found:
        raise LoweringError(
            f"the loop over '{loop.loop_var.name}' has 'break' or 'continue'",
            where=loop.span,
            expected="a serial loop without annotations of its form",
            found=", ".join([loop.kind.name.lower(), *found]),
        )


@ir.function_pass(kind=PrimFunc)
def lower_loop_jumps(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Write ``break`` and ``continue`` as a state that what follows them tests.

    Every pass and target then sees loops that run to their end; compilers make jumps of the tests again.

    Requires: No blocks.
    Ensures: The same form without jumps; a For that may be left is a While.
    Before::

        @T.prim_func
        def f(A: T.Buffer((10,), "int32")):
            for i in range(10):
                if A[i] > 5:
                    continue
                A[i] = A[i] + 1

    After::

        @T.prim_func
        def f(A: T.Buffer((10,), "int32")):
            state = T.alloc_buffer((1,), "int32", scope="local")
            for i in range(10):
                state[0] = 0
                if A[i] > 5:
                    state[0] = 1
                if state[0] == 0:
                    A[i] = A[i] + 1
    Cost: Linear in statements, times the depth of loops.
    Source: Our own.
    """
    if not any(jump(s) for s in statements(func.body)):
        return func
    if any(jumps_out(func.body)):
        raise LoweringError("'break' or 'continue' stands outside of a loop", where=func.span)
    return func.replace(body=_loops(func.body))


def _loops(stmt: Stmt) -> Stmt:
    codes = set(jumps_out(stmt.body)) if isinstance(stmt, (For, While)) else ()
    if not codes or not isinstance(stmt, (For, While)):
        return map_children(stmt, _loops)
    state = decl_buffer((1,), "int32", name="state", scope="local")
    body = seq(_store(state, 0), _tested(stmt.body, state))
    if isinstance(stmt, While):
        return AllocBuffer(state, seq(_store(state, 0), _until_left(stmt.condition, body, state)), span=stmt.span)
    _check(stmt)
    if 2 not in codes:
        return AllocBuffer(state, replace_node(stmt, body=body), span=stmt.span)
    count = decl_buffer((1,), stmt.loop_var.dtype, name=stmt.loop_var.name, scope="local")
    end = ir.Var("end", stmt.loop_var.dtype)
    step = LetStmt(stmt.loop_var, _load(count), seq(_store(count, stmt.loop_var + 1), body), span=stmt.span)
    whole = seq(_store(state, 0), _store(count, stmt.min), _until_left(_load(count) < end, step, state))
    return AllocBuffer(state, AllocBuffer(count, LetStmt(end, stmt.min + stmt.extent, whole)))


def _until_left(condition: ir.PrimExpr, body: Stmt, state: Buffer) -> Stmt:
    return While(ir.if_then_else(_load(state).equal(2), ir.const(False, "bool"), condition), body)


def _tested(stmt: Stmt, state: Buffer) -> Stmt:
    """Store a jump's code in place of the jump, and run what comes after it where none was stored."""
    if jump(stmt):
        return _store(state, jump(stmt))
    if isinstance(stmt, (For, While)) or not any(jumps_out(stmt)):
        return _loops(stmt)
    if not isinstance(stmt, SeqStmt):
        return map_children(stmt, lambda s: _tested(s, state))
    place = next(i for i, s in enumerate(stmt.seq) if any(jumps_out(s)))
    head, first, rest = stmt.seq[:place], stmt.seq[place], stmt.seq[place + 1 :]
    after = IfThenElse(_load(state).equal(0), _tested(seq(*rest), state)) if rest and not jump(first) else None
    return seq(*[_loops(s) for s in head], _tested(first, state), after)


def _load(buffer: Buffer) -> Any:
    return BufferLoad(buffer, (ir.const(0, "int32"),))


def _store(buffer: Buffer, value: Any) -> Stmt:
    return BufferStore(buffer, ir.as_expr(value, buffer.dtype), (ir.const(0, "int32"),))
