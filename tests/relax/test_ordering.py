"""Bindings stand after what they need, symbols of ``match_cast`` included."""

from tests.relax_models import written
from weft.relax.ordering import dependencies, sort_bindings


def test_a_match_cast_of_known_sizes_is_needed_by_its_users_only():
    (block,) = written("""
x: (n, 4), y: R.Tensor('float32', ndim=2)
a = R.exp(x)
b = R.match_cast(a, R.Tensor((n, 4), "float32"))
m = T.int64()
c = R.match_cast(y, R.Tensor((m, 4), "float32"))
d = R.exp(c)
e = R.add(b, x)
return (d, e)
""")["main"].body.blocks
    bindings = list(block.bindings)
    assert [b.var.name_hint for b in sort_bindings(bindings)] == ["a", "b", "c", "d", "e"]
    needs = dependencies(bindings)
    assert needs[0] == set() and needs[1] == {0}
    assert needs[3] == {2} and needs[4] == {1}
