"""What searches, rewrites and copies do not visit holds nothing that they look for."""

import re

from weft import ir, tir
from weft.ir.node import kinds
from weft.ir.walk import substitute_each

i, n, m = ir.Var("i"), ir.Var("n"), ir.Var("m")
A = tir.decl_buffer((64,), "int32", "A")
CALLED = tir.Evaluate(tir.call_extern("int32", "g", i))
BODY = tir.For(i, 0, n, 0, tir.IfThenElse(i < m, tir.BufferStore(A, A[i] + (n + 1) * m, (i,)), CALLED))


def test_no_class_that_says_so_has_a_field_for_statements():
    statements = re.compile(rf"\b(Stmt|Node|{'|'.join(c.__name__ for c in kinds(tir.Stmt))})\b")
    for c in (c for c in kinds(ir.Node) if getattr(c, "_holds_no_statement", False)):
        fields = {f: k for b in c.__mro__ for f, k in vars(b).get("__annotations__", {}).items()}
        assert not [f for f in c.__struct_fields__ if statements.search(str(fields[f]))], c


def test_some_classes_are_found_and_rewritten_as_among_all():
    new = {tir.Evaluate: tir.Evaluate(ir.const(0)), ir.Mul: m, ir.CallIntrin: n}
    for only in [(c,) for c in kinds(ir.Node)] + [(tir.Evaluate, ir.Var), (tir.For, ir.CallIntrin)]:
        assert ir.find(BODY, *only) == [x for x in ir.walk(BODY) if isinstance(x, only)], only
        every = ir.rewrite(BODY, lambda x, only=only: new.get(type(x), x) if isinstance(x, only) else x)
        some = ir.rewrite(BODY, lambda x: new.get(type(x), x), only=only)
        assert ir.structural_equal(some, every) and (some is BODY) == (every is BODY), only


def test_copies_share_what_none_of_the_replaced_nodes_is_in():
    values = [{m: ir.const(k)} for k in range(3)]
    copies = substitute_each(BODY, values)
    assert all(map(ir.structural_equal, copies, [ir.substitute(BODY, v) for v in values]))
    assert {id(c.body.else_case) for c in copies} == {id(CALLED)}
