"""Constellations of patterns: what holds in which block, and what rewriting leaves."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import error, ir, relax, tir
from weft.relax import dpl
from weft.relax.dpl.match import Matcher
from weft.relax.expr import DataflowBlock


def function(params, body):
    return written(params, *body)["main"]


T = "(2, 4)"
CHAIN = function(
    f"x: {T}, w: {T}",
    ["a = R.add(x, w)", "b = R.nn.relu(a)", "c = R.exp(b)", "d = R.multiply(b, x)", "e = R.subtract(c, d)"],
)


def block(func):
    return next(b for b in func.body.blocks if isinstance(b, DataflowBlock))


def names(found):
    return {p: v.name_hint for p, v in found.items()}


def call(name, *args):
    """A pattern of an operator's call; without arguments, of any two where it takes two, or of any one."""
    if not args:
        args = [dpl.wildcard() for _ in range(1 + (name in ("add", "subtract", "multiply", "matmul")))]
    return dpl.is_op(f"relax.{name}")(*args)


def test_used_by():
    with dpl.PatternContext() as ctx:
        x, use = dpl.is_var("x"), dpl.wildcard()
        assert len((x ^ use).patterns) == 2
    found = names(ctx.match_dfb(block(CHAIN)))
    assert (found[x], found[use]) == ("x", "a")


def test_chains_and_forks():
    with dpl.PatternContext() as ctx:
        relu = call("nn.relu")
        exp = call("exp")
        seq = call("add") >> relu
        relu.fork_to(exp, call("multiply"))
    found = names(ctx.match_dfb(block(CHAIN)))
    assert [found[p] for p in (seq[0], relu, exp)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        (lambda relu, exp, mul: relu ^ exp, True),
        (lambda relu, exp, mul: relu >> exp, False),
        (lambda relu, exp, mul: relu.used_by(mul, 0), True),
        (lambda relu, exp, mul: relu.used_by(mul, 1), False),
        (lambda relu, exp, mul: exp ^ mul, False),
        (lambda relu, exp, mul: relu.same_shape_as(exp, mul), True),
        (lambda relu, exp, mul: exp >> call("subtract"), True),
    ],
)
def test_constraints(constraint, holds):
    with dpl.PatternContext() as ctx:
        relu = call("nn.relu")
        constraint(relu, call("exp"), call("multiply"))
    assert (ctx.match_dfb(block(CHAIN)) is not None) is holds


def test_shapes_that_differ():
    func = function("x: (2, 3), w: (3, 4)", ["a = R.exp(x)", "b = R.matmul(a, w)"])
    for wanted, holds in (((2, 3), False), ((2, 4), True)):
        with dpl.PatternContext() as ctx:
            product = call("matmul")
            product.same_shape_as(other := dpl.wildcard().has_shape(wanted) & call("exp"))
        assert ctx.match_dfb(block(func)) is None
        with dpl.PatternContext() as ctx:
            product.same_shape_as(other)
        assert ctx.match_dfb(block(func)) is None
        with dpl.PatternContext() as ctx:
            product = call("matmul").has_shape(wanted)
        assert (ctx.match_dfb(block(func)) is not None) is holds


def test_sequences_are_copied_with_their_constraints():
    """One input feeds two branches of the same form."""
    func = function(
        f"x: {T}", ["a = R.exp(x)", "b = R.nn.relu(a)", "c = R.exp(x)", "d = R.nn.relu(c)", "e = R.add(b, d)"]
    )
    with dpl.PatternContext() as ctx:
        first = call("exp") >> call("nn.relu")
        second = first.dup()
        dpl.is_var("x").fork_to(first, second)
    found = names(ctx.match_dfb(block(func)))
    assert {found[p] for p in first.patterns} | {found[p] for p in second.patterns} == {"a", "b", "c", "d"}
    with dpl.PatternContext() as ctx:
        third = call("exp") >> call("nn.relu")
        dpl.is_var("x").fork_to(third, third.dup(), third.dup())
    assert ctx.match_dfb(block(func)) is None


def test_incremental_contexts():
    with dpl.PatternContext() as outer:
        relu = call("nn.relu")
        with dpl.PatternContext(incremental=True) as inner:
            relu >> call("exp")
            assert dpl.PatternContext.current() is inner
    assert outer.match_dfb(block(CHAIN))
    assert inner.match_dfb(block(CHAIN)) is None


QKV = function(
    "x: (2, 8), q: (8, 4), k: (8, 4)",
    ["a = R.matmul(x, q)", "b = R.nn.relu(a)", "t = R.multiply(k, k)", "c = R.matmul(x, t)", "d = R.add(b, c)"],
)


def merge_matmuls():
    with dpl.PatternContext() as ctx:
        x, q, k = dpl.wildcard(), dpl.wildcard(), dpl.wildcard()
        first, second = call("matmul", x, q), call("matmul", x, k)

    def rewriter(found, bindings):
        assert {v.name_hint for v in bindings} >= {"a", "c"} or len(bindings) != 5
        width = found[q].ty.shape[1]
        both = relax.op.matmul(found[x], relax.op.concat([found[q], found[k]], axis=1))
        return {
            found[first]: relax.op.strided_slice(both, [1], [0], [width]),
            found[second]: relax.op.strided_slice(both, [1], [width], [2 * width]),
        }

    return ctx, rewriter


def test_rewrite_bindings():
    """The shared product is computed once, after the weights that it needs."""
    new = dpl.rewrite_bindings(*merge_matmuls(), QKV)
    ops = [b.value.op.name for b in block(new).bindings]
    assert ops.count("relax.matmul") == ops.count("relax.concat") == 1
    assert ops.index("relax.multiply") < ops.index("relax.concat")
    relax.analysis.well_formed(weft.IRModule({"main": new}))
    vm = relax.VirtualMachine(weft.compile(weft.IRModule({"main": new})), weft.cpu())
    x, q, k = (
        np.random.default_rng(s).standard_normal(n).astype("float32") for s, n in enumerate([(2, 8), (8, 4), (8, 4)])
    )
    np.testing.assert_allclose(vm["main"](x, q, k).numpy(), np.maximum(x @ q, 0) + x @ (k * k), rtol=1e-4, atol=1e-5)
    assert dpl.rewrite_bindings(*merge_matmuls(), new) is new


def test_rewrite_bindings_to_variables():
    with dpl.PatternContext() as ctx:
        x = dpl.wildcard()
        inner = call("exp", x)
        outer = call("log", inner)
    func = function(f"x: {T}", ["a = R.exp(x)", "b = R.log(a)", "c = R.exp(b)", "d = R.log(c)", "e = R.sin(d)"])
    new = dpl.rewrite_bindings(ctx, lambda found, _: {found[outer]: found[x]}, func)
    ir.assert_structural_equal(new, function(f"x: {T}", ["e = R.sin(x)"]), map_free_vars=True)


def test_rewrite_bindings_that_changes_types():
    with dpl.PatternContext() as ctx:
        x = dpl.wildcard()
        exp = call("exp", x)
    func = function("x: (2, 4)", ["a = R.exp(x)", "b = R.nn.relu(a)"])
    new = dpl.rewrite_bindings(ctx, lambda found, _: {found[exp]: relax.op.astype(found[x], "float16")}, func)
    assert [b.value.ty.dtype for b in block(new).bindings] == ["float16", "float16"]
    assert new.body.body.ty.dtype == "float16"


def test_rewrites_that_do_not_end():
    with dpl.PatternContext() as ctx:
        add = call("add")
    with pytest.raises(error.InvalidArgument, match="does not come to an end"):
        dpl.rewrite_bindings(ctx, lambda found, b: {found[add]: relax.op.add(*reversed(b[found[add]].args))}, CHAIN)
    with pytest.raises(error.InvalidArgument, match="does not come to an end"):
        dpl.rewrite_call(call("add"), lambda e, _: relax.op.add(e.args[1], e.args[0]), CHAIN)


def test_wrong_uses():
    with pytest.raises(error.InvalidArgument, match="belongs to a context"):
        dpl.wildcard().used_by(dpl.wildcard())
    with dpl.PatternContext() as ctx:
        x = dpl.is_var("x")
        x ^ call("add")
    with pytest.raises(error.InvalidArgument, match="a new value is for a variable of the block"):
        dpl.rewrite_bindings(ctx, lambda found, _: {found[x]: relax.const(1.0)}, CHAIN)
    last = block(CHAIN).bindings[-1].var
    with pytest.raises(error.InvalidArgument, match="need each other in a circle"):
        dpl.rewrite_bindings(ctx, lambda found, b: {next(iter(b)): relax.op.exp(last)}, CHAIN)


def test_rewriting_repeats():
    """What one round leaves, the next one finds; unused values go."""
    func = function(f"x: {T}", ["a = R.add(x, x)", "b = R.add(a, a)", "c = R.nn.relu(b)", "d = R.nn.relu(c)"])
    x = dpl.wildcard()
    relu = dpl.is_op("relax.nn.relu")
    once = dpl.PatternMatchingRewriter(relu(relu(x)), lambda _, found: relax.op.nn.relu(found[x]))
    twice = dpl.PatternMatchingRewriter.from_pattern(
        call("add", x, x), lambda _, found: relax.op.multiply(found[x], relax.const(2.0, "float32"))
    )
    new = (once | twice)(func)
    expected = ["a = R.multiply(x, R.const(2.0))", "b = R.multiply(a, R.const(2.0))", "d = R.nn.relu(b)"]
    expected = function(f"x: {T}", expected)
    ir.assert_structural_equal(new, expected, map_free_vars=True)
    mod = weft.IRModule({"main": func})
    ir.assert_structural_equal((once | twice)(mod)["main"], expected, map_free_vars=True)
    assert once(expected) is expected
    assert once(weft.IRModule({"main": expected})) is not None


def test_patterns():
    values = relax.analysis.get_var2val(CHAIN)
    by_name = {v.name_hint: (v, e) for v, e in values.items()}
    a, d = by_name["a"][1], by_name["d"][1]
    assert dpl.match(dpl.has_dtype("float32", call("add")), a, values)
    assert not dpl.has_dtype("float16").match(a, values)
    for operands in ((dpl.is_dfv("b"), dpl.wildcard()), (dpl.wildcard(), dpl.is_dfv("b"))):
        assert call("multiply", *operands).match(d)
        assert not call("matmul", *operands).match(d)
    e = by_name["e"][1]
    assert call("subtract", dpl.is_dfv("c"), dpl.wildcard()).match(e)
    assert not call("subtract", dpl.wildcard(), dpl.is_dfv("c")).match(e)
    assert dpl.wildcard().has_ty(a.ty).match(a)
    n = tir.Var("n", "int64")
    for ty, matches in (
        (relax.TensorType((2, 5), "float32"), False),
        (relax.TensorType(None, "float32", 2), True),
        (relax.TensorType(None, "float32", 3), False),
        (relax.TensorType((2, n), ""), True),
        (relax.TensorType((2, n * 2), ""), False),  # of an `n` that nothing says
        (relax.TensorType((n, n * 2), ""), True),
        (relax.TensorType((n, n), ""), False),
        (relax.TensorType((n, 4), "float16"), False),
        (relax.AnyType(), True),
    ):
        assert dpl.wildcard().has_ty(ty).match(a) is matches, ty
    same = dpl.wildcard().has_ty(relax.TensorType((n, 4))), dpl.wildcard().has_ty(relax.TensorType((4, n)))
    assert not dpl.is_tuple(same).match(relax.Tuple((a, a)))  # one dimension everywhere in a pattern
    assert dpl.is_tuple((same[0], same[0].dup())).match(relax.Tuple((a, d)))
    assert dpl.is_expr(a).match(a)
    assert not dpl.is_expr(a).match(d)
    assert dpl.is_shape((2, 4)).match(relax.ShapeExpr((2, 4)))
    assert not dpl.is_shape((4, 2)).match(relax.ShapeExpr((2, 4)))
    x, w = CHAIN.params
    pair = dpl.is_tuple([dpl.is_var("w"), dpl.is_var("x")], unordered=True)
    assert pair.match(relax.Tuple((x, w)))
    assert not pair.match(relax.Tuple((x, x)))
    assert not pair.match(relax.Tuple((x,)))
    assert (x_part := dpl.is_tuple([dpl.wildcard(), dpl.is_var("x")], unordered=True)).extract_matched_expr(
        relax.Tuple((x, w))
    )[x_part.fields[0]] is w
    conv = relax.op.concat([x, w], axis=1)
    assert dpl.has_attr({"axis": 1}, call("concat", dpl.wildcard())).match(conv)
    assert not dpl.has_attr({"axis": 0}).match(conv)
    assert dpl.match(call("exp", call("nn.relu")), by_name["e"][1].args[0], values)
    assert not dpl.match(dpl.is_call_tir("f"), a, values)
    assert not dpl.match(dpl.is_const(), x)


def test_functions_are_matched_by_parameters_and_result():
    x, w = dpl.wildcard(), dpl.wildcard()
    pattern = dpl.FunctionPattern((x, w), call("nn.relu", call("matmul", x, w)))
    func = function("x: (2, 3), w: (3, 4)", ["a = R.matmul(x, w)", "b = R.nn.relu(a)"]).with_attr("Codegen", "own")
    assert pattern.extract_matched_expr(func)[w] is func.params[1]
    assert pattern.has_attr({"Codegen": "own"}).match(func)
    assert not pattern.has_attr({"Codegen": "other"}).match(func)
    assert not pattern.match(CHAIN)
    assert not dpl.FunctionPattern((w, x), pattern.body).match(func)


def test_parts_of_patterns_of_tuples():
    x, w = CHAIN.params
    pair = dpl.is_tuple([dpl.is_var("x"), dpl.is_var("w")])
    value = relax.Tuple((x, w))
    second = relax.TupleGetItem(value, 1)
    assert [pair[i].match(second) for i in (0, 1, -1, None)] == [False, True, True, True]
    with pytest.raises(IndexError):
        _ = pair[2]
    assert dpl.is_shape((2, 4))[1] == 4
    split = relax.op.split(x, 2, axis=0)
    assert dpl.has_attr({"indices_or_sections": tir.IntImm("int64", 2)}).match(split)


def test_constraints_on_arguments_that_are_a_tuple():
    """The index of a constraint counts what the kernel of ``call_dps_packed`` is given."""
    shape = "R.Tensor((2, 4))"
    one = function(
        f"x: {T}", [f'a = R.call_dps_packed("r", (x,), {shape})', f'b = R.call_dps_packed("s", (a, a), {shape})']
    )
    for indices, matches in (((0, 1), True), ((0,), True), ((2,), False)):
        with dpl.PatternContext() as ctx:
            fork, join = dpl.is_call_dps_packed("r"), dpl.is_call_dps_packed("s")
            for i in indices:
                fork.only_used_by(join, index=i)
            assert (ctx.match_dfb(block(one)) is not None) is matches


def test_a_value_that_a_rewriter_leaves_is_offered_in_the_next_way():
    """Alternatives of ``a | b`` and both orders of a sum's operands are offered, until the rewriter takes one."""
    func = function(f"x: {T}, w: {T}", ["a = R.exp(w)", "b = R.add(x, a)"])
    x, exp = dpl.wildcard(), call("exp")
    any_sum, sum_of_exp = call("add"), call("add", exp, x)
    seen = []

    def rewriter(value, found):
        seen.append(any_sum in found)
        return value if any_sum in found else relax.op.negative(found[x])

    new = dpl.rewrite_call(any_sum | sum_of_exp, rewriter, func)
    assert seen[:3] == [True, True, False]
    ir.assert_structural_equal(new, function(f"x: {T}, w: {T}", ["b = R.negative(x)"]), map_free_vars=True)


def test_a_sum_of_one_value_has_one_order(monkeypatch):
    """Values that are doubled again and again are looked at once each, not twice for every doubling."""
    func = function(f"x: {T}", ["a0 = R.add(x, x)", *(f"a{i} = R.add(a{i - 1}, a{i - 1})" for i in range(1, 12))])
    pattern, looked, readings = dpl.is_const(), [], Matcher.readings
    for _ in range(12):
        pattern = dpl.is_op("relax.add")(pattern, dpl.wildcard())
    monkeypatch.setattr(Matcher, "readings", lambda self, e: looked.append(e) or readings(self, e))
    assert not pattern.match(block(func).bindings[-1].value, relax.analysis.get_var2val(func))
    assert len(looked) < 40


def test_rewriting_leaves_no_other_names():
    """A tuple that a rewriter returns is taken apart at once, which lets the next rounds see its elements."""
    lines = [
        "c = R.concat([x, w], axis=0)",
        "d = R.split(c, 2, axis=0)",
        "e = d[0]",
        "f = d[1]",
        "g = R.add(x, e)",
        "h = R.add(f, g)",
    ]
    func = function(f"x: {T}, w: {T}", lines)
    parts, x = dpl.wildcard(), dpl.wildcard()
    split = call("split", call("concat", parts))
    twice = call("add", x, x)

    def rewriter(_, found):
        return found[parts] if split in found else relax.op.multiply(found[x], relax.const(2.0, "float32"))

    new = dpl.rewrite_call(split | twice, rewriter, func)
    expected = function(f"x: {T}, w: {T}", ["g = R.multiply(x, R.const(2.0))", "h = R.add(w, g)"])
    ir.assert_structural_equal(new, expected, map_free_vars=True)


@pytest.mark.parametrize(
    ("bias", "activation"), [(False, None), (True, None), (False, "relax.nn.relu"), (True, "relax.nn.relu")]
)
def test_bias_and_activation(bias, activation):
    lines = ["a = R.matmul(x, w)"] + ["b = R.add(a, y)"] * bias
    lines += [f"c = R.nn.relu({'ab'[bias]})"] * bool(activation)
    func = function("x: (2, 3), w: (3, 4), y: (4)", lines)
    values = relax.analysis.get_var2val(func)
    pattern = dpl.make_fused_bias_activation_pattern("relax.matmul", bias, activation)
    assert dpl.match(pattern, func.body.body, values)
    other = dpl.make_fused_bias_activation_pattern("relax.matmul", bias, "relax.exp")
    assert not dpl.match(other, func.body.body, values)
    reshaped = dpl.make_fused_bias_activation_pattern("relax.matmul", bias, activation, allow_reshape=True)
    assert dpl.match(reshaped, func.body.body, values) is not bias
