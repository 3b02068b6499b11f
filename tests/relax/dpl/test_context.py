"""Constellations of patterns: what holds in which block, and what rewriting leaves."""

import numpy as np
import pytest

import weft
from weft import error, ir, relax
from weft.relax.dpl import (
    PatternContext,
    PatternMatchingRewriter,
    has_attr,
    has_dtype,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_op,
    is_shape,
    is_tuple,
    is_var,
    make_fused_bias_activation_pattern,
    match,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from weft.relax.expr import DataflowBlock
from weft.script import from_source

HEAD = "@I.ir_module\nclass Module:\n    @R.function\n    def main("


def function(params, body, result, out='R.Tensor((2, 4), "float32")'):
    lines = "\n".join(f"            {line}" for line in body)
    return from_source(
        f"{HEAD}{params}) -> {out}:\n        with R.dataflow():\n{lines}\n            R.output({result})\n"
        f"        return {result}\n"
    )["main"]


T = 'R.Tensor((2, 4), "float32")'
CHAIN = function(
    f"x: {T}, w: {T}",
    ["a = R.add(x, w)", "b = R.nn.relu(a)", "c = R.exp(b)", "d = R.multiply(b, x)", "e = R.subtract(c, d)"],
    "e",
)


def block(func):
    return next(b for b in func.body.blocks if isinstance(b, DataflowBlock))


def names(found):
    return {p: v.name_hint for p, v in found.items()}


def test_used_by():
    with PatternContext() as ctx:
        x, use = is_var("x"), wildcard()
        assert len((x ^ use).patterns) == 2
    found = names(ctx.match_dfb(block(CHAIN)))
    assert (found[x], found[use]) == ("x", "a")


def test_chains_and_forks():
    with PatternContext() as ctx:
        relu = is_op("relax.nn.relu")(wildcard())
        exp = is_op("relax.exp")(wildcard())
        seq = is_op("relax.add")(wildcard(), wildcard()) >> relu
        relu.fork_to(exp, is_op("relax.multiply")(wildcard(), wildcard()))
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
        (lambda relu, exp, mul: exp >> (is_op("relax.subtract")(wildcard(), wildcard())), True),
    ],
)
def test_constraints(constraint, holds):
    with PatternContext() as ctx:
        relu = is_op("relax.nn.relu")(wildcard())
        constraint(relu, is_op("relax.exp")(wildcard()), is_op("relax.multiply")(wildcard(), wildcard()))
    assert (ctx.match_dfb(block(CHAIN)) is not None) is holds


def test_shapes_that_differ():
    func = function(
        'x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")', ["a = R.exp(x)", "b = R.matmul(a, w)"], "b"
    )
    for wanted, holds in (((2, 3), False), ((2, 4), True)):
        with PatternContext() as ctx:
            product = is_op("relax.matmul")(wildcard(), wildcard())
            product.same_shape_as(other := wildcard().has_shape(wanted) & is_op("relax.exp")(wildcard()))
        assert ctx.match_dfb(block(func)) is None
        with PatternContext() as ctx:
            product.same_shape_as(other)
        assert ctx.match_dfb(block(func)) is None
        with PatternContext() as ctx:
            product = is_op("relax.matmul")(wildcard(), wildcard()).has_shape(wanted)
        assert (ctx.match_dfb(block(func)) is not None) is holds


def test_sequences_are_copied_with_their_constraints():
    """One input feeds two branches of the same form."""
    func = function(
        f"x: {T}", ["a = R.exp(x)", "b = R.nn.relu(a)", "c = R.exp(x)", "d = R.nn.relu(c)", "e = R.add(b, d)"], "e"
    )
    with PatternContext() as ctx:
        first = is_op("relax.exp")(wildcard()) >> is_op("relax.nn.relu")(wildcard())
        second = first.dup()
        is_var("x").fork_to(first, second)
    found = names(ctx.match_dfb(block(func)))
    assert {found[p] for p in first.patterns} | {found[p] for p in second.patterns} == {"a", "b", "c", "d"}
    with PatternContext() as ctx:
        third = is_op("relax.exp")(wildcard()) >> is_op("relax.nn.relu")(wildcard())
        is_var("x").fork_to(third, third.dup(), third.dup())
    assert ctx.match_dfb(block(func)) is None


def test_incremental_contexts():
    with PatternContext() as outer:
        relu = is_op("relax.nn.relu")(wildcard())
        with PatternContext(incremental=True) as inner:
            relu >> is_op("relax.exp")(wildcard())
            assert PatternContext.current() is inner
    assert outer.match_dfb(block(CHAIN))
    assert inner.match_dfb(block(CHAIN)) is None


QKV = function(
    'x: R.Tensor((2, 8), "float32"), q: R.Tensor((8, 4), "float32"), k: R.Tensor((8, 4), "float32")',
    ["a = R.matmul(x, q)", "b = R.nn.relu(a)", "t = R.multiply(k, k)", "c = R.matmul(x, t)", "d = R.add(b, c)"],
    "d",
)


def merge_matmuls():
    with PatternContext() as ctx:
        x, q, k = wildcard(), wildcard(), wildcard()
        first, second = is_op("relax.matmul")(x, q), is_op("relax.matmul")(x, k)

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
    new = rewrite_bindings(*merge_matmuls(), QKV)
    ops = [b.value.op.name for b in block(new).bindings]
    assert ops.count("relax.matmul") == ops.count("relax.concat") == 1
    assert ops.index("relax.multiply") < ops.index("relax.concat")
    relax.analysis.well_formed(weft.IRModule({"main": new}))
    vm = relax.VirtualMachine(weft.compile(weft.IRModule({"main": new})), weft.cpu())
    x, q, k = (
        np.random.default_rng(s).standard_normal(n).astype("float32") for s, n in enumerate([(2, 8), (8, 4), (8, 4)])
    )
    np.testing.assert_allclose(vm["main"](x, q, k).numpy(), np.maximum(x @ q, 0) + x @ (k * k), rtol=1e-4, atol=1e-5)
    assert rewrite_bindings(*merge_matmuls(), new) is new


def test_rewrite_bindings_to_variables():
    with PatternContext() as ctx:
        x = wildcard()
        inner = is_op("relax.exp")(x)
        outer = is_op("relax.log")(inner)
    func = function(f"x: {T}", ["a = R.exp(x)", "b = R.log(a)", "c = R.exp(b)", "d = R.log(c)", "e = R.sin(d)"], "e")
    new = rewrite_bindings(ctx, lambda found, _: {found[outer]: found[x]}, func)
    ir.assert_structural_equal(new, function(f"x: {T}", ["e = R.sin(x)"], "e"), map_free_vars=True)


def test_rewrite_bindings_that_changes_types():
    with PatternContext() as ctx:
        x = wildcard()
        exp = is_op("relax.exp")(x)
    func = function('x: R.Tensor((2, 4), "float32")', ["a = R.exp(x)", "b = R.nn.relu(a)"], "b")
    new = rewrite_bindings(ctx, lambda found, _: {found[exp]: relax.op.astype(found[x], "float16")}, func)
    assert [b.value.ty.dtype for b in block(new).bindings] == ["float16", "float16"]
    assert new.body.body.ty.dtype == "float16"


def test_rewrites_that_do_not_end():
    with PatternContext() as ctx:
        add = is_op("relax.add")(wildcard(), wildcard())
    with pytest.raises(error.InvalidArgument, match="does not come to an end"):
        rewrite_bindings(ctx, lambda found, b: {found[add]: relax.op.add(*reversed(b[found[add]].args))}, CHAIN)
    with pytest.raises(error.InvalidArgument, match="does not come to an end"):
        rewrite_call(is_op("relax.add")(wildcard(), wildcard()), lambda e, _: relax.op.add(e.args[1], e.args[0]), CHAIN)


def test_wrong_uses():
    with pytest.raises(error.InvalidArgument, match="belongs to a context"):
        wildcard().used_by(wildcard())
    with PatternContext() as ctx:
        x = is_var("x")
        x ^ is_op("relax.add")(wildcard(), wildcard())
    with pytest.raises(error.InvalidArgument, match="a new value is for a variable of the block"):
        rewrite_bindings(ctx, lambda found, _: {found[x]: relax.const(1.0)}, CHAIN)
    last = block(CHAIN).bindings[-1].var
    with pytest.raises(error.InvalidArgument, match="need each other in a circle"):
        rewrite_bindings(ctx, lambda found, b: {next(iter(b)): relax.op.exp(last)}, CHAIN)


def test_rewriting_repeats():
    """What one round leaves, the next one finds; unused values go."""
    func = function(f"x: {T}", ["a = R.add(x, x)", "b = R.add(a, a)", "c = R.nn.relu(b)", "d = R.nn.relu(c)"], "d")
    x = wildcard()
    relu = is_op("relax.nn.relu")
    once = PatternMatchingRewriter(relu(relu(x)), lambda _, found: relax.op.nn.relu(found[x]))
    twice = PatternMatchingRewriter.from_pattern(
        is_op("relax.add")(x, x), lambda _, found: relax.op.multiply(found[x], relax.const(2.0, "float32"))
    )
    new = (once | twice)(func)
    expected = ["a = R.multiply(x, R.const(2.0))", "b = R.multiply(a, R.const(2.0))", "d = R.nn.relu(b)"]
    expected = function(f"x: {T}", expected, "d")
    ir.assert_structural_equal(new, expected, map_free_vars=True)
    mod = weft.IRModule({"main": func})
    ir.assert_structural_equal((once | twice)(mod)["main"], expected, map_free_vars=True)
    assert once(expected) is expected
    assert once(weft.IRModule({"main": expected})) is not None


def test_patterns():
    values = relax.analysis.get_var2val(CHAIN)
    by_name = {v.name_hint: (v, e) for v, e in values.items()}
    a, d = by_name["a"][1], by_name["d"][1]
    assert match(has_dtype("float32", is_op("relax.add")(wildcard(), wildcard())), a, values)
    assert not has_dtype("float16").match(a, values)
    assert is_op("relax.multiply")(is_dfv("b"), wildcard()).match(d)
    assert not is_op("relax.multiply")(wildcard(), is_dfv()).match(d)
    assert wildcard().has_ty(a.ty).match(a)
    assert not wildcard().has_ty(relax.TensorType((2, 5), "float32")).match(a)
    assert is_expr(a).match(a)
    assert not is_expr(a).match(d)
    assert is_shape((2, 4)).match(relax.ShapeExpr((2, 4)))
    assert not is_shape((4, 2)).match(relax.ShapeExpr((2, 4)))
    x, w = CHAIN.params
    pair = is_tuple([is_var("w"), is_var("x")], unordered=True)
    assert pair.match(relax.Tuple((x, w)))
    assert not pair.match(relax.Tuple((x, x)))
    assert not pair.match(relax.Tuple((x,)))
    assert (x_part := is_tuple([wildcard(), is_var("x")], unordered=True)).extract_matched_expr(relax.Tuple((x, w)))[
        x_part.fields[0]
    ] is w
    conv = relax.op.concat([x, w], axis=1)
    assert has_attr({"axis": 1}, is_op("relax.concat")(wildcard())).match(conv)
    assert not has_attr({"axis": 0}).match(conv)
    assert match(is_op("relax.exp")(is_op("relax.nn.relu")(wildcard())), by_name["e"][1].args[0], values)
    assert not match(is_call_tir("f"), a, values)
    assert not match(is_const(), x)


@pytest.mark.parametrize(
    ("bias", "activation"), [(False, None), (True, None), (False, "relax.nn.relu"), (True, "relax.nn.relu")]
)
def test_bias_and_activation(bias, activation):
    lines = ["a = R.matmul(x, w)"] + ["b = R.add(a, y)"] * bias
    lines += [f"c = R.nn.relu({'ab'[bias]})"] * bool(activation)
    last = lines[-1][0]
    func = function(
        "x: R.Tensor((2, 3)), w: R.Tensor((3, 4)), y: R.Tensor((4,))".replace("))", '), "float32")'), lines, last
    )
    values = relax.analysis.get_var2val(func)
    pattern = make_fused_bias_activation_pattern("relax.matmul", bias, activation)
    assert match(pattern, func.body.body, values)
    other = make_fused_bias_activation_pattern("relax.matmul", bias, "relax.exp")
    assert not match(other, func.body.body, values)
    reshaped = make_fused_bias_activation_pattern("relax.matmul", bias, activation, allow_reshape=True)
    assert match(reshaped, func.body.body, values) is not bias
