"""Passes over bindings and functions keep what programs compute, and do what they say."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model, written
from tests.texts import named
from weft import error, ir, relax, script
from weft.relax import transform
from weft.relax.analysis import well_formed
from weft.relax.expr import DataflowBlock
from weft.relax.interpreter import evaluate
from weft.relax.rewriter import all_bindings
from weft.relax.transform.cse import eliminate_common_subexpr

HEAD = "@I.ir_module\nclass Module:\n"
T = 'R.Tensor((2, 3), "float32")'
N = 'R.Tensor(("n", 3), "float32")'

PROGRAMS = named(f"""
# tuples
    @R.function
    def main(x: {T}, y: {T}):
        with R.dataflow():
            t = (x, (y, x))
            u = t[1]
            a = u[0]
            b = R.add(a, t[0])
            c = b
            s = R.split(c, 2, axis=0)
            v = (s[0], s[1])
            w = (v, c)
            R.output(w)
        return w
# branches
    @R.function
    def main(x: {T}, y: {T}):
        a = R.add(x, y)
        p = R.less(R.sum(a), R.const(1.0, "float32"))
        if p:
            b = R.exp(a)
            c = b
            d = R.multiply(c, c)
            r = d
        else:
            e = R.sin(a)
            r = R.multiply(e, y)
        s = R.subtract(r, x)
        t = R.cos(s)
        return t
# symbolic
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        a = R.add(x, y)
        b = R.reshape(a, (n * m,))
        c = R.match_cast(b, R.Tensor((n * m,), "float32"))
        k = T.int64()
        d = R.match_cast(R.nn.relu(c), R.Tensor((k,), "float32"))
        e = R.zeros((k,), "float32")
        f = R.add(d, e)
        return (f, a)
# private
    @R.function
    def main(x: {T}, y: {T}):
        with R.dataflow():
            a = Module.helper(x, y, x)
            b = a[1]
            t = (x, (y, b))
            c = Module.taker(t, y)
            d = Module.leaf(c)
            e = Module.leaf(d)
            R.output(e)
        return e

    @R.function(private=True)
    def helper(x: {T}, unused: {T}, z: {T}):
        with R.dataflow():
            a = R.add(x, z)
            b = R.multiply(a, x)
            R.output(a, b)
        return (a, b)

    @R.function(private=True)
    def taker(t: R.Tuple({T}, R.Tuple({T}, {T})), y: {T}):
        with R.dataflow():
            a = t[0]
            u = t[1]
            b = u[1]
            c = R.subtract(a, b)
            R.output(c)
        return c

    @R.function(private=True)
    def leaf(x: {N}):
        n = T.int64()
        with R.dataflow():
            a = R.add(x, R.ones((n, 3), "float32"))
            R.output(a)
        return a
""")


def module(source):
    return script.from_source(HEAD + source)


def same(found, wanted, rtol=1e-5):
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=rtol, atol=1e-6)


def arrays(value):
    if isinstance(value, np.ndarray):
        return [value]
    return [value.numpy()] if hasattr(value, "numpy") else [a for v in value for a in arrays(v)]


def run(mod, compiled=False):
    rng = np.random.default_rng(3)
    given = [rng.standard_normal((2, 3), np.float32) for _ in range(2)]
    if compiled:
        return arrays(relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"](*given))
    return arrays(evaluate(mod, *given))


@pytest.fixture(scope="module")
def expected():
    return {name: run(module(source), compiled=True) for name, source in PROGRAMS.items()}


PASSES = {
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "ConvertToDataflow": transform.ConvertToDataflow(),
    "ConvertToDataflow 1": transform.ConvertToDataflow(1),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "RemoveUnusedParameters": transform.RemoveUnusedParameters(),
    "RemoveUnusedOutputs": transform.RemoveUnusedOutputs(),
} | {
    f"TopologicalSort {order} {direction}": transform.TopologicalSort(order, direction)
    for order in ("depth-first", "breadth-first")
    for direction in ("from-inputs", "from-outputs")
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_stay(program, name, expected):
    new = PASSES[name](module(PROGRAMS[program]))
    well_formed(new)
    same(run(new), expected[program])
    again = PASSES[name](new)
    assert all(again[v] is new[v] for v in new)


def test_names_of_common_subexpressions_stay():
    mod = module(f"""
    @R.function
    def main(x: {T}):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)
            c = R.add(a, b)
            R.output(b, c)
        d = R.exp(x)
        return (b, c, d)
""")
    new = transform.EliminateCommonSubexpr()(mod)["main"]
    values = {b.var.name_hint: b.value for b in all_bindings(new)}
    assert list(values) == ["a", "b", "c", "d"]
    assert [v.name_hint for v in (values["b"], *values["c"].args, values["d"])] == ["a", "a", "a", "b"]
    assert [v.name_hint for v in new.body.body.fields] == ["b", "c", "b"]  # a is not visible there


def main_of(source):
    return module(source)["main"]


def test_canonical_programs_take_no_tuples_apart():
    new = transform.CanonicalizeBindings()(module(PROGRAMS["tuples"]))["main"]
    taken = [b.value for b in all_bindings(new) if isinstance(b.value, ir.TupleGetItem)]
    assert all(isinstance(b.tuple_value.ty, relax.TupleType) for b in taken)
    values = [b.value for b in all_bindings(new)]
    assert sum(isinstance(v, ir.Call) for v in values) == 2
    assert not any(isinstance(v, relax.Var) for v in values)


def test_variables_leave_a_block_only_for_others():
    func = main_of(f"""
    @R.function
    def main(x: {T}):
        with R.dataflow():
            a = R.exp(x)
            b = a
            c = R.sin(b)
            k = R.const(1, "int32")
            R.output(a, b, c, k)
        return (c, k)
""")
    new = transform.CanonicalizeBindings()(weft.IRModule({"main": func}))["main"]
    kinds = {b.var.name_hint: isinstance(b.var, relax.DataflowVar) for b in all_bindings(new)}
    assert kinds == {"a": True, "c": False, "k": False}


def test_dataflow_blocks_begin_and_end_where_effects_are():
    func = main_of(f"""
    @R.function(pure=False)
    def main(x: {T}):
        a = R.exp(x)
        b = R.sin(a)
        _ = R.print(b, format="b is {{}}")
        c = R.cos(b)
        d = R.add(c, a)
        return d
""")
    new = transform.ConvertToDataflow()(weft.IRModule({"main": func}))["main"]
    assert [isinstance(b, DataflowBlock) for b in new.body.blocks] == [True, False, True]
    kinds = {b.var.name_hint: isinstance(b.var, relax.DataflowVar) for b in all_bindings(new)}
    assert kinds == {"a": False, "b": False, "_": False, "c": True, "d": False}
    assert transform.ConvertToDataflow(3)(weft.IRModule({"main": func}))["main"] is func


def test_orders():
    func = written("""
x: (2, 3)
a = R.exp(x)
b = R.sin(x)
c = R.cos(a)
d = R.add(b, c)
e = R.tan(x)
f = R.add(d, e)
""")["main"]

    def names(order, direction):
        new = transform.TopologicalSort(order, direction)(weft.IRModule({"main": func}))["main"]
        return "".join(b.var.name_hint for b in all_bindings(new))

    assert names("depth-first", "from-inputs") == "acbdef"
    assert names("breadth-first", "from-inputs") == "abecdf"
    assert names("depth-first", "from-outputs") == "bacdef"
    assert names("breadth-first", "from-outputs") == "abcdef"
    refuses(error.InvalidArgument, "unknown order", names, "sideways", "from-inputs")
    refuses(error.InvalidArgument, "unknown direction", names, "depth-first", "from-nowhere")


SYMBOLIC = module(PROGRAMS["symbolic"])


@pytest.mark.parametrize("by", ["name", "variable"])
def test_symbolic_sizes_take_values(by):
    symbols = {v.name: v for v in relax.analysis.defined_symbolic_vars(SYMBOLIC["main"])}
    key = symbols["n"] if by == "variable" else "n"
    new = transform.BindSymbolicVars({key: 2}, "main")(SYMBOLIC)["main"]
    assert str(new.params[0].ty.shape[0]) == "2"
    assert "n" not in {v.name for v in relax.analysis.defined_symbolic_vars(new)}
    well_formed(new)
    for found, wanted in zip(run(weft.IRModule({"main": new})), run(SYMBOLIC), strict=True):
        np.testing.assert_allclose(found, wanted)
    both = transform.BindSymbolicVars({"m": symbols["n"] * 2})(SYMBOLIC)["main"]
    assert "n * 2" in str(both.params[0].ty)


def test_symbolic_sizes_that_are_not_there():
    with pytest.raises(error.InvalidArgument, match=r"(?s)no symbolic variable 'nn'.*did you mean 'n'"):
        transform.BindSymbolicVars({"nn": 2})(SYMBOLIC)
    refuses(error.InvalidArgument, "no Relax function 'other'", transform.BindSymbolicVars({"n": 2}, "other"), SYMBOLIC)


def test_parameters_of_other_types():
    mod = module(PROGRAMS["branches"])

    def wider(param):
        return relax.TensorType((4, 5), "float32") if param.name_hint in "xy" else None

    new = transform.UpdateParamType(wider)(mod)["main"]
    well_formed(new)
    assert str(new.ret_ty) == str(relax.TensorType((4, 5), "float32"))
    assert all(b.var.ty.shape is not None for b in all_bindings(new))
    assert transform.UpdateParamType(lambda p: None)(mod) is mod
    assert isinstance(new, ir.Function)
    ir.assert_structural_equal(new.ty.ret, new.ret_ty)


PRIVATE = module(PROGRAMS["private"])


def test_interfaces_of_private_functions():
    expanded = transform.ExpandTupleArguments()(PRIVATE)
    assert [p.name_hint for p in expanded["taker"].params] == ["t_0", "t_1_0", "t_1_1", "y"]
    fewer = transform.RemoveUnusedParameters()(transform.CanonicalizeBindings()(expanded))
    fewer = transform.RemoveUnusedParameters()(transform.DeadCodeElimination()(fewer))
    assert [p.name_hint for p in fewer["taker"].params] == ["t_0", "t_1_1"]
    assert [p.name_hint for p in fewer["helper"].params] == ["x", "z"]
    one = transform.RemoveUnusedOutputs()(fewer)
    assert isinstance(one["helper"].ret_ty, relax.TensorType)
    for found, wanted in zip(run(one), run(PRIVATE), strict=True):
        np.testing.assert_allclose(found, wanted)


def test_parameters_that_sizes_come_from_stay():
    mod = module("""
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        a = Module.ones(x, y, x)
        return a

    @R.function(private=True)
    def ones(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32"), z: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        a = R.ones((n, n), "float32")
        return a
""")
    new = transform.RemoveUnusedParameters()(mod)
    assert [p.name_hint for p in new["ones"].params] == ["x"]
    np.testing.assert_array_equal(run(new)[0], np.ones((2, 2)))


def test_functions_used_as_values_stay_as_they_are():
    mod = module(f"""
    @R.function
    def main(x: {T}, y: {T}):
        f = R.call_pure_packed("vm.builtin.make_closure", Module.helper, y, ty_args=R.Object)
        a = R.invoke_pure_closure(f, (x,), ty_args={T})
        return a

    @R.function(private=True)
    def helper(x: {T}, y: {T}):
        a = R.exp(x)
        return a
""")
    for p in (transform.RemoveUnusedParameters(), transform.InlinePrivateFunctions()):
        assert p(mod) is mod


def test_inlining_keeps_what_it_must():
    source = f"""{HEAD}
    @R.function
    def main(x: {T}, y: {T}):
        a = Module.branch(x)
        with R.dataflow():
            b = Module.branch(a)
            c = Module.count(b)
            R.output(c)
        return c

    @R.function(private=True)
    def branch(x: {T}):
        p = R.less(R.sum(x), R.const(1.0, "float32"))
        if p:
            r = R.exp(x)
        else:
            r = R.sin(x)
        return r

    @R.function(private=True)
    def count(x: {T}) -> {T}:
        p = R.less(R.sum(x), R.const(100.0, "float32"))
        if p:
            y = R.add(x, R.const(9.0, "float32"))
            r = Module.count(y)
        else:
            r = x
        return r
"""
    mod = script.from_source(source)
    new = transform.InlinePrivateFunctions()(mod)
    well_formed(new)
    assert {v.name_hint for v in new} == {"main", "branch", "count"}
    same(run(new), run(mod))


def test_copies_have_variables_of_their_own():
    func = module(PROGRAMS["branches"])["main"]
    copy = relax.copy_with_new_vars(func)
    ir.assert_structural_equal(copy, func, map_free_vars=True)
    assert not {id(v) for v in relax.analysis.all_vars(copy)} & {id(v) for v in relax.analysis.all_vars(func)}


def test_functions_that_nothing_mentions_go():
    source = (
        HEAD
        + PROGRAMS["private"]
        + f"""
    @R.function(private=True)
    def alone(x: {T}):
        a = Module.leaf(x)
        return a

    @R.function
    def other(x: {T}):
        a = R.exp(x)
        return a
"""
    )
    mod = script.from_source(source)
    assert {v.name_hint for v in transform.DeadCodeElimination()(mod)} == {"main", "other", "helper", "taker", "leaf"}
    assert {v.name_hint for v in transform.DeadCodeElimination(["other"])(mod)} == {"other"}
    refuses(error.InvalidArgument, "no function 'nothing'", transform.DeadCodeElimination(["nothing"]), mod)


def test_branches_take_what_is_known_before_them():
    mod = module(f"""
    @R.function
    def main(x: {T}, y: {T}):
        a = R.exp(x)
        p = R.less(R.sum(a), R.const(0.0, "float32"))
        if p:
            b = R.exp(x)
            c = R.exp(x)
            r = R.add(b, c)
        else:
            d = R.exp(x)
            r = R.multiply(d, d)
        e = R.exp(x)
        s = R.add(R.add(r, e), a)
        return s
""")
    for pass_ in (transform.EliminateCommonSubexpr(), eliminate_common_subexpr()):
        new = pass_(mod)
        well_formed(new)
        ops = [b.value.op.name for b in all_bindings(new["main"]) if isinstance(b.value, ir.Call)]
        assert ops.count("relax.exp") == 1
        same(run(new), run(mod))
    assert transform.EliminateCommonSubexpr(call_only=True)(module(PROGRAMS["tuples"])) is not None


def operators(mod):
    calls = [b.value for b in all_bindings(mod["main"]) if isinstance(b.value, ir.Call)]
    return {c.op.name for c in calls if hasattr(c.op, "name")}


def test_legalization_by_the_user():
    mod = module(PROGRAMS["branches"])
    seen = []

    def exp(bb, call):
        seen.append(call)
        return bb.call_te(weft.topi.multiply, call.args[0], call.args[0])

    new = transform.LegalizeOps({"relax.exp": exp})(mod)
    assert len(seen) == 1
    assert "relax.exp" not in operators(new)
    left = operators(transform.LegalizeOps(skip_ops=["relax.exp", "relax.sin"])(mod))
    assert {"relax.exp", "relax.sin"} <= left
    assert "relax.cos" not in left


def test_groups_become_kernels():
    plain = written("""
x: (2, 3), y: (2, 3)
a = R.exp(R.add(x, y))
b = R.split(R.nn.relu(a), 2, axis=0)
c = R.sin(b[0])
""")
    mod = transform.fuse_ops()(plain)
    assert {v.name_hint for v, f in mod.items() if f.attrs.get("Primitive")}
    new = transform.fuse_tir()(mod)
    assert not any(f.attrs.get("Primitive") for _, f in new.items())
    same(run(new), run(plain))
    assert operators(new) >= {"relax.split", "relax.sin"}
    assert transform.fuse_ops(0)(plain) is plain


def test_split_whose_parts_are_read_elementwise_becomes_slices():
    """The gates of a recurrent cell: one kernel reads them in place; a part that a product reads keeps the split."""

    def kernels(use):
        def main(x):
            parts = relax.BlockBuilder.current().emit(relax.op.split(x, 3, axis=-1))
            return use(*(ir.TupleGetItem(parts, i) for i in range(3)))

        mod = model(main, (2, 12))
        value = np.random.default_rng(0).standard_normal((2, 12)).astype(np.float32)
        found = relax.VirtualMachine(relax.build(mod), "cpu")["main"](value).numpy()
        passed = transform.DeadCodeElimination()(transform.SplitToSlices()(mod))
        return found, np.split(value, 3, 1), "split" in str(passed)

    found, (a, b, c), split_left = kernels(lambda a, b, c: relax.op.add(relax.op.multiply(a, b), relax.op.tanh(c)))
    np.testing.assert_allclose(found, a * b + np.tanh(c), rtol=1e-5, atol=1e-6)
    assert not split_left
    found, (a, b, c), split_left = kernels(
        lambda a, b, c: relax.op.matmul(relax.op.add(a, b), relax.op.permute_dims(c))
    )
    np.testing.assert_allclose(found, (a + b) @ c.T, rtol=1e-5, atol=1e-6)
    assert split_left


@pytest.mark.parametrize("make", [transform.EliminateCommonSubexpr, eliminate_common_subexpr])
def test_zeros_of_two_signs_are_not_merged(make):
    pads = "".join(f"    {n} = R.nn.pad(x, (1, 0), pad_value={z}0.0)\n" for n, z in (("a", ""), ("b", "-")))
    mod = script.from_source(f"@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n{pads}    return (a, b)\n")
    found = make()(ir.IRModule({"main": mod}))["main"]
    assert [str(b.value.op.name) for b in all_bindings(found)].count("relax.nn.pad") == 2
