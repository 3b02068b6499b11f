"""Visitor classes over TIR: each kind has its method, what is inherited visits or keeps the rest."""

import pytest

from weft import ir, tir
from weft.script import tir as T


@T.prim_func
def program(A: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(16):
        if i < n:
            A[i] = A[i] + T.float32(1)


def kinds(names):
    return {cls.__name__: getattr(tir.functor, cls)._names if isinstance(cls, str) else cls._names for cls in names}


def test_every_kind_of_node_has_a_method():
    scalars = {c for c in vars(ir).values() if isinstance(c, type) and issubclass(c, (ir.BinaryOp, ir.CmpOp))}
    for cls in (tir.functor.StmtExprVisitor, tir.functor.PyStmtExprVisitor):
        assert not [
            c
            for c in scalars - {ir.BinaryOp, ir.CmpOp}
            if c not in cls._names and c.__subclasses__() == [] and c.__name__ in dir(tir)
        ]
    assert kinds([tir.functor.ExprVisitor])["ExprVisitor"][ir.FloorDiv] == "floordiv"
    assert tir.functor.PyStmtExprVisitor._names[ir.FloorDiv] == "floor_div"


def test_a_visitor_sees_all():
    class Count(tir.stmt_functor.StmtExprVisitor):
        def __init__(self):
            self.seen = []

        def visit_for_(self, op):
            self.seen.append("for")
            super().visit_for_(op)

        def visit_add_(self, op):
            self.seen.append("add")
            super().visit_add_(op)

        def visit_var_(self, op):
            self.seen.append(op.name)

    count = Count()
    count(program.body)
    assert sorted(count.seen) == ["add", "for", "i", "i", "i", "n"]


@pytest.mark.parametrize("base", [tir.stmt_functor.StmtExprMutator, tir.PyStmtExprMutator])
def test_a_mutator_rewrites_and_keeps(base):
    class Double(base):
        def visit_float_imm_(self, op):
            return ir.const(2 * op.value, op.dtype)

    class Nothing(base):
        pass

    changed = Double().visit_stmt(program.body)
    found = [n.value for n in ir.walk(changed) if isinstance(n, ir.FloatImm)]
    assert found == [2.0] and isinstance(changed, tir.For)
    assert Nothing().visit_stmt(program.body) is program.body


def test_a_kind_without_a_method_is_an_error():
    with pytest.raises(NotImplementedError, match="says nothing about Add"):
        tir.functor.ExprFunctor().visit_expr(ir.Var("x", "int32") + ir.Var("y", "int32"))
