"""Variables, bindings and calls of small programs, counted by hand."""

from weft import relax, script
from weft.script import relax as R
from weft.script import tir as T

SOURCE = """@I.ir_module
class Module:
    @R.function
    def even(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        r: R.Tensor((), "int64") = cls.odd(i)
        return r

    @R.function
    def odd(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        r: R.Tensor((), "int64") = cls.even(i)
        return r

    @R.function
    def own(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        r: R.Tensor((), "int64") = cls.own(i)
        return r

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, x)
            v = R.exp(w)
            R.output(b, v)
        @R.function(pure=False)
        def inner(z: R.Tensor((2,), "float32")):
            R.print(z)
            return z
        return b
"""

MOD = script.from_source(SOURCE)
MAIN = MOD["main"]


def names(variables):
    return [v.name_hint for v in variables]


def test_variables():
    assert set(names(relax.analysis.bound_vars(MAIN))) == {"x", "w", "a", "b", "v", "inner", "z"} | (
        set(names(relax.analysis.bound_vars(MAIN))) & {"_"}
    )
    assert names(relax.analysis.free_vars(MAIN)) == []
    value = relax.analysis.name_to_binding(MAIN)["b"][0].value
    assert sorted(names(relax.analysis.free_vars(value))) == ["a", "x"]
    assert set(names(relax.analysis.all_vars(value))) == {"a", "x"}
    assert names(relax.analysis.all_global_vars(MOD["even"].body)) == ["odd"]


def test_chains_and_values():
    block = next(b for b in MAIN.body.blocks if isinstance(b, relax.DataflowBlock))
    chain = {v.name_hint: names(users) for v, users in relax.analysis.udchain(block).items()}
    assert chain == {"x": ["a", "b"], "a": ["b"], "b": [], "w": ["v"], "v": []}
    values = {v.name_hint: e for v, e in relax.analysis.get_var2val(MAIN).items()}
    assert values["a"].op.name == "relax.add"
    assert names(relax.analysis.computable_at_compile_time(MAIN)) == ["w", "v"]  # the weight, and what follows from it


def test_symbols():
    assert [v.name for v in relax.analysis.defined_symbolic_vars(MAIN)] == ["n"]
    assert relax.analysis.free_symbolic_vars(MAIN) == []


def test_order_of_visits():
    seen = []
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    call = relax.op.add(x, x)
    relax.analysis.post_order_visit(call, seen.append)
    assert seen[-1] is call
    assert sum(e is x for e in seen) == 1


def test_effects():
    assert not relax.analysis.contains_impure_call(MAIN)  # the inner function prints; nobody calls it
    assert relax.analysis.contains_impure_call(relax.analysis.name_to_binding(MAIN)["inner"][0].value)


def test_recursion():
    assert [names(g) for g in relax.analysis.detect_recursion(MOD)] == [["even", "odd"], ["own"]]


def test_sizes_of_weights_are_known_at_compile_time():
    @R.function
    def main(x: R.Tensor(("n",), "int32"), w: R.Tensor(ndim=1, dtype="int32")):
        R.func_attr({"num_input": 1})
        n = T.int64()
        m = T.int64()
        w2 = R.match_cast(w, R.Tensor((m,), "int32"))
        a = R.ones([m], "int32")
        b = R.ones([n], "int32")
        return (a, b, w2)

    assert names(relax.analysis.computable_at_compile_time(main.with_attrs({"num_input": 1}))) == ["w", "w2", "a"]
