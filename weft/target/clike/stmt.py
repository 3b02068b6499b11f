"""Statements: a rule for each kind of node that languages like C write alike."""

from weft import ir, tir
from weft.target.clike.emitter import Emitter
from weft.target.clike.expr import refused

STMT = ir.Dispatch("statement like C's", (tir.Stmt,), default=refused)


@STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: Emitter) -> None:
    for x in node.seq:
        s.stmt(x)


@STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: Emitter) -> None:
    if node.predicate is not None:
        raise s.refuse(node)
    s.type_of(node.value.dtype, node)
    value = s.stores.get(str(node.buffer.dtype), "{0}").format(s.expr(node.value))
    s.emit(f"{s.element(node.buffer, node.indices)} = {value};")
    s.stored.add(node.buffer.data)


@STMT.on(tir.LetStmt)
def _let(node: tir.LetStmt, s: Emitter) -> None:
    s.define(node.var, s.expr(node.value))
    s.stmt(node.body)


@STMT.on(tir.AttrStmt, tir.DeclBuffer)
def _around(node: tir.AttrStmt, s: Emitter) -> None:
    s.stmt(node.body)


@STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    if not isinstance(node.value, ir.IntImm):
        s.emit(f"(void){s.expr(node.value)};")


@STMT.on(tir.IfThenElse)
def _if(node: tir.IfThenElse, s: Emitter) -> None:
    s.nested(f"if ({s.expr(node.condition)})", node.then_case)
    if node.else_case is not None:
        s.nested("else", node.else_case)


@STMT.on(tir.While)
def _while(node: tir.While, s: Emitter) -> None:
    s.nested(f"while ({s.expr(node.condition)})", node.body)
