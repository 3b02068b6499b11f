"""Bindings stand after what they need, symbols of ``match_cast`` included."""

from weft.relax.ordering import dependencies, sort_bindings
from weft.script import from_source

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor("float32", ndim=2)):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            a = R.exp(x)
            b = R.match_cast(a, R.Tensor((n, 4), "float32"))
            c = R.match_cast(y, R.Tensor((m, 4), "float32"))
            d = R.exp(c)
            e = R.add(b, x)
            R.output(d, e)
        return (d, e)
"""


def test_a_match_cast_of_known_sizes_is_needed_by_its_users_only():
    (block,) = from_source(SOURCE)["main"].body.blocks
    bindings = list(block.bindings)
    assert [b.var.name_hint for b in sort_bindings(bindings)] == ["a", "b", "c", "d", "e"]
    needs = dependencies(bindings)
    assert needs[0] == set() and needs[1] == {0}
    assert needs[3] == {2} and needs[4] == {1}
