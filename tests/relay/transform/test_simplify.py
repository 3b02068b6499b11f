"""Simplified programs have the same values; each pass on operators and shapes of its own."""

import numpy as np
import pytest

from weft import ir, relay
from weft.relay.expr import lets
from weft.relay.interpreter import Interpreter
from weft.relay.op.registry import op_call
from weft.relay.transform import (
    CanonicalizeCast,
    CanonicalizeOps,
    DynamicToStatic,
    InferType,
    SimplifyExpr,
    SimplifyInference,
    ToANormalForm,
)
from weft.relay.walk import parts, subexpressions


def names(mod):
    return sorted(e.op.name for e in subexpressions(mod["main"]) if type(e) is relay.Call)


def run(make, body, *params, tolerance=1e-5):
    """The operators that are left; values stay, and what is left stays."""
    mod = InferType()(ir.IRModule({"main": relay.Function(params, body)}))
    result = InferType()(make()(mod))
    assert make()(result) is result
    rng = np.random.default_rng(0)
    args = [np.asarray(rng.uniform(0.5, 2, p.ty.concrete_shape)).astype(p.ty.dtype) for p in params]
    expected = Interpreter(mod).function("main")(*args)
    for form in (result, InferType()(make()(InferType()(ToANormalForm()(mod))))):
        got = Interpreter(form).function("main")(*args)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, expected)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)
    return names(result)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (False, False)])
def test_normalizations(axis, center, scale):
    x = relay.var("x", shape=(4, 6, 5))
    vectors = [relay.var(n, shape=((4, 6, 5)[axis],)) for n in "gbmv"]
    options = {"axis": axis, "epsilon": 1e-3, "center": center, "scale": scale}
    batch = relay.TupleGetItem(op_call("nn.batch_norm", x, *vectors, **options), 0)
    assert not any(n.startswith("nn.") for n in run(SimplifyInference, batch, x, *vectors))
    for name in ("nn.layer_norm", "nn.instance_norm"):
        left = run(SimplifyInference, op_call(name, x, *vectors[:2], **options), x, *vectors[:2])
        assert not any(n.startswith("nn.") for n in left)


@pytest.mark.parametrize("axis", [1, 2])
def test_groups(axis):
    x, g, b = relay.var("x", shape=(2, 6, 6)), relay.var("g", shape=(6,)), relay.var("b", shape=(6,))
    assert "nn.group_norm" not in run(
        SimplifyInference, op_call("nn.group_norm", x, g, b, num_groups=3, axis=axis), x, g, b
    )


def test_dropout_and_l2():
    x = relay.var("x", shape=(2, 3))
    dropped = relay.TupleGetItem(op_call("nn.dropout", x, rate=0.5), 0)
    assert run(SimplifyInference, dropped * dropped, x) == ["multiply"]
    assert "nn.l2_normalize" not in run(SimplifyInference, op_call("nn.l2_normalize", x, eps=1e-6, axis=(1,)), x)


def test_nested_batch_norms_and_statistics():
    x, vectors = relay.var("x", shape=(2, 3)), [relay.var(n, shape=(3,)) for n in "gbmv"]
    y = x
    for _ in range(3):
        y = relay.TupleGetItem(op_call("nn.batch_norm", y + relay.const(1.0), *vectors), 0)
    assert "nn.batch_norm" not in run(SimplifyInference, y, x, *vectors)
    whole = op_call("nn.batch_norm", x, *vectors)
    kept = relay.Tuple([relay.TupleGetItem(whole, 0), relay.TupleGetItem(whole, 1)])
    assert "nn.batch_norm" in run(SimplifyInference, kept, x, *vectors)


X = relay.var("x", shape=(2, 3, 4))
ONE, ZERO = relay.const(1.0), relay.const(np.zeros((3, 4), "float32"))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (op_call("reshape", op_call("reshape", X, newshape=(6, 4)), newshape=(4, 6)), ["reshape"]),
        (op_call("reshape", op_call("reshape", X, newshape=(-1,)), newshape=(2, 3, 4)), []),
        (op_call("squeeze", op_call("expand_dims", X, axis=1), axis=(1,)), []),
        (op_call("transpose", op_call("transpose", X, axes=(2, 0, 1)), axes=(1, 2, 0)), []),
        (op_call("transpose", op_call("transpose", X, axes=(2, 0, 1)), axes=(-1, 0, 1)), ["transpose"]),
        (op_call("transpose", op_call("transpose", X)), []),
        (op_call("cast", X, dtype="float32"), []),
        (op_call("cast", op_call("cast", X, dtype="float64"), dtype="int32"), ["cast"]),
        (op_call("cast", op_call("cast", X, dtype="int8"), dtype="float32"), ["cast", "cast"]),
        ((X + ZERO) * ONE / ONE - ZERO, []),
        (ZERO + ONE * X, []),
        (ONE - X, ["subtract"]),
        (relay.const(np.ones((5, 1, 1, 1), "float32")) * X, ["multiply"]),
        (ONE / op_call("sqrt", X), ["rsqrt"]),
        (op_call("zeros_like", X), ["zeros"]),
        (op_call("full_like", X, ONE), ["full"]),
        (op_call("reshape_like", op_call("reshape", X, newshape=(24,)), X), []),
        (op_call("broadcast_to_like", ONE, X), ["broadcast_to"]),
        (op_call("strided_slice", X, begin=(0, 0, 0), end=(2, 3, 4)), []),
        (op_call("strided_slice", X, begin=(1, 2, 3), end=(-3, -4, -5), strides=(-1, -1, -1)), ["strided_slice"]),
    ],
)
def test_simplified(body, left):
    assert run(SimplifyExpr, body, X) == left


def test_lets_are_seen_through():
    x, a, b = relay.var("x", shape=(2, 3)), relay.var("a"), relay.var("b")
    body = lets([(a, op_call("transpose", x)), (b, op_call("transpose", a))], relay.Tuple([a, b]))
    mod = SimplifyExpr()(InferType()(ir.IRModule({"main": relay.Function([x], body)})))
    assert mod["main"].body.body.value is mod["main"].params[0]


def test_unknown_dimensions_stay():
    x = relay.var("x", shape=(relay.Any(), 3))
    body = op_call("reshape", x + relay.const(0.0), newshape=(-1, 3))
    mod = InferType()(ir.IRModule({"main": relay.Function([x], body)}))
    assert SimplifyExpr()(mod) is mod


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias(axis):
    x, b = relay.var("x", shape=(2, 3, 4)), relay.var("b", shape=((2, 3, 4)[axis],))
    left = run(CanonicalizeOps, op_call("nn.bias_add", x, b, axis=axis), x, b)
    assert left == (["add"] if axis == -1 else ["add", "expand_dims"])


def test_casts():
    x = relay.var("x", shape=(2,), dtype="float16")
    wide, narrow = op_call("cast", x, dtype="float32"), op_call("cast", x, dtype="int8")
    body = relay.Tuple([op_call("exp", wide), op_call("negative", wide), narrow, op_call("negative", narrow)])
    mod = InferType()(ir.IRModule({"main": relay.Function([x], body)}))
    result = CanonicalizeCast()(mod)
    uses = [
        p for e in subexpressions(result["main"]) for p in parts(e) if type(p) is relay.Call and p.op.name == "cast"
    ]
    assert len(uses) == 4 and len({id(p) for p in uses}) == 3
    ir.assert_structural_equal(result, mod)
    assert CanonicalizeCast()(result) is result


def test_dynamic_to_static():
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(6,))
    shape = op_call("shape_of", y, dtype="int64")
    body = op_call("dyn.tile", op_call("dyn.reshape", x, shape), relay.const(np.array([2], "int64")))
    body = op_call("dyn.broadcast_to", body, relay.const(np.array([2, 12], "int64")))
    body = relay.Tuple([body, op_call("dyn.zeros", op_call("shape_of", body, dtype="int64"))])
    assert run(DynamicToStatic, body, x, y) == ["broadcast_to", "reshape", "tile", "zeros"]
    top = relay.TupleGetItem(op_call("dyn.topk", y, relay.const(2)), 0)
    assert run(DynamicToStatic, top, y) == ["topk"]
    n = relay.var("n", shape=(1,), dtype="int64")
    mod = InferType()(ir.IRModule({"main": relay.Function([y, n], op_call("dyn.reshape", y, n))}))
    assert DynamicToStatic()(mod) is mod


def test_one_hot_and_pad():
    i = relay.var("i", shape=(3,), dtype="int32")
    hot = op_call("dyn.one_hot", i, ONE, relay.const(0.0), relay.const(4))
    assert run(DynamicToStatic, hot, i) == ["one_hot"]
    widths = relay.const(np.array([[1, 0], [0, 2], [1, 1]], "int64"))
    assert run(DynamicToStatic, op_call("dyn.nn.pad", X, widths, ONE), X) == ["nn.pad"]
