"""Visitors of expressions and types."""

import weft
from tests.refusals import refuses
from weft import ir, relay, tir
from weft.relay.expr import lets


def program():
    x, y, z, c = (relay.var(n) for n in "xyzc")
    match = relay.Match(relay.Tuple([x, c]), (relay.Clause(relay.PatternVar(z), relay.TupleGetItem(z, 0)),))
    body = lets([(y, relay.RefCreate(x)), (relay.var("u"), relay.RefWrite(y, x))], relay.If(c, match, relay.RefRead(y)))
    return relay.Function([x, c], body)


def test_visitor():
    seen = []

    class Names(relay.ExprVisitor):
        def visit_var(self, var):
            seen.append(var.name_hint)

        def visit_ref_write(self, node):
            seen.append("write")
            super().visit_ref_write(node)

    Names().visit(program())
    assert sorted(seen) == ["c", "u", "write", "x", "y", "z"]


def test_mutator():
    func = program()
    assert relay.ExprMutator().visit(func) is func

    class Fresh(relay.ExprMutator):
        def visit_var(self, var):
            return relay.var(var.name_hint + "_")

    made = Fresh().visit(func)
    ir.assert_structural_equal(made, func)
    assert made.params[0].name_hint == "x_" and made.body.body.body.true_branch.clauses[0].lhs.var.name_hint == "z_"

    class Swap(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            return relay.Call(ir.Op.get("subtract"), call.args) if call.op.name == "add" else call

    x = relay.var("x")
    ir.assert_structural_equal(Swap().visit((x + x) * (x + x)), (x - x) * (x - x), map_free_vars=True)


def test_functor_without_methods():
    refuses(NotImplementedError, "Var", relay.ExprFunctor().visit, relay.var("x"))


def test_long_chains():
    x = relay.var("x")
    body = lets([(relay.var("v"), x + x) for _ in range(10_000)], x)
    assert relay.ExprMutator().visit(body) is body
    visitor = relay.ExprVisitor()
    visitor.visit(body)
    assert len(visitor.memo_map) > 20_000


def test_types():
    t = relay.TypeVar("T")
    ty = relay.FuncType([relay.RefType(t)], relay.TupleType([relay.TensorType((2,)), t]), [t])
    seen = []

    class Names(relay.TypeVisitor):
        def visit_tensor_type(self, typ):
            seen.append(typ)

    Names().visit(ty)
    assert seen == [relay.TensorType((2,))] and relay.TypeMutator().visit(ty) is ty

    class Wide(relay.TypeMutator):
        def visit_tensor_type(self, typ):
            return relay.TensorType(typ.shape, "float64")

    assert Wide().visit(ty).ret_type.fields[0].dtype == "float64"


def test_deep_expressions():
    x, v = relay.var("x", shape=(2,), dtype="float32"), ir.Var("v", "int64")
    e, s = x, v
    for _ in range(3000):
        e, s = relay.add(e, x), ir.Mul(s, v)
    assert relay.ExprMutator().visit(e) is e
    assert tir.functor.ExprMutator()(s) is s
    assert weft.arith.Analyzer().simplify(s - s) == 0


def test_a_relation_of_types_is_visited_and_is_a_constraint():
    related = relay.TypeRelation("broadcast", (relay.TypeVar("a"), relay.TensorType((2,), "float32")), 1)
    seen = []

    class Tensors(relay.TypeVisitor):
        def visit_tensor_type(self, typ):
            seen.append(typ)

    Tensors().visit(related)
    assert seen == [related.args[1]]
    assert relay.analysis.check_kind(related) == relay.TypeKind.Constraint
