"""What is learnt in place of something else leaves nothing of it."""

from weft import arith, ir


def test_facts_with_other_variables_go():
    x, y = ir.Var("x"), ir.Var("y")
    an = arith.Analyzer()
    an.bind(y, ir.Range(0, 100))
    with an.constraint_scope(x <= y - 50):
        assert an.can_prove(x < 50)
        an.update(x, arith.ConstIntBound(0, 1000), override=True)
        assert not an.can_prove(x <= y - 50) and not an.can_prove(x < 50) and not an.can_prove(y >= 50)
        assert an.can_prove(x <= 1000)
