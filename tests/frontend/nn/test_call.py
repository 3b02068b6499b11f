"""Functions of te and TIR, packed functions, sampling, and what goes wrong where."""

import numpy as np
import pytest
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import check, compiled, trace
from tests.refusals import refuses
from weft import error, ir, te
from weft.script import tir as T


@T.prim_func(private=True)
def add_rows(a: T.handle, b: T.handle, n: T.int64, k: T.int64):
    m = T.int64()
    A = T.match_buffer(a, (m, 4), "float32")
    B = T.match_buffer(b, (m, 4), "float32")
    for i, j in T.grid(m, 4):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.Cast("float32", n * 10 + k)


@T.prim_func(private=True)
def double_inplace(a: T.handle):
    m = T.int64()
    A = T.match_buffer(a, (m, 4), "float32")
    for i, j in T.grid(m, 4):
        with T.block("double"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] * T.float32(2)


def run(function, *arrays, **specs):
    inputs = [weft.runtime.tensor(a) if isinstance(a, np.ndarray) else weft.runtime.ShapeTuple([a]) for a in arrays]
    return compiled(trace(function, **specs))["forward"](*inputs)


X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")


def test_tensor_expr_op():
    def scaled(x, y, k, n):
        return [te.compute(x.shape, lambda i, j: x[i, j] * k + y[i] * n, "out"), te.compute((n,), lambda i: i)]

    def model(x, y, k):
        return op.tensor_expr_op(scaled, "scaled", [x, y, 3, k + 1], attrs={"custom": 1})

    assert trace(model, x=["n", 4], y=["n"], k=int)["scaled"].attrs["custom"] == 1
    y = np.arange(3, dtype="float32")
    a, b = run(model, X, y, 6, x=["n", 4], y=["n"], k=int)
    np.testing.assert_allclose(a.numpy(), X * 3 + y[:, None] * 7, rtol=1e-6)
    np.testing.assert_array_equal(b.numpy(), np.arange(7))


def test_tensor_ir_op():
    def model(x, k):
        out = nn.Tensor.placeholder(x.shape, "float32")
        y = op.tensor_ir_op(add_rows, "add_rows", [x, 2, k], out)
        return op.tensor_ir_inplace_op(double_inplace, "double", [y + 0], 0, out)

    assert {"add_rows", "double"} <= {v.name_hint for v, _ in trace(model, x=["n", 4], k=int).items()}
    np.testing.assert_allclose(run(model, X, 5, x=["n", 4], k=int).numpy(), (X + 25) * 2, rtol=1e-6)


def test_two_fresh_buffers():
    """Buffers of `empty` are apart, though both are written in place and are of one shape."""

    def model(x):
        out = nn.Tensor.placeholder(x.shape, "float32")
        return [op.tensor_ir_inplace_op(add_rows, "fill", [x, op.empty(x.shape), 0, k], 1, out) for k in (1, 2)]

    a, b = run(model, X, x=["n", 4])
    np.testing.assert_allclose(a.numpy(), X + 1, rtol=1e-6)
    np.testing.assert_allclose(b.numpy(), X + 2, rtol=1e-6)


def test_extern():
    @weft.register_global_func("test.nn.extern", override=True)
    def _extern(x, factor, shift, name, y, total):
        assert name == "name"
        y.copyfrom(x.numpy() * factor + shift)
        total.copyfrom(x.numpy().sum(keepdims=True).reshape(1))

    def model(x):
        outs = [nn.Tensor.placeholder(x.shape, "float32"), nn.Tensor.placeholder([1], "float32")]
        y, total = op.extern("test.nn.extern", [x, 3, 0.5, "name"], outs)
        return y + 1, total

    y, total = run(model, X, x=["n", 4])
    np.testing.assert_allclose(y.numpy(), X * 3 + 1.5, rtol=1e-6)
    np.testing.assert_allclose(total.numpy(), [X.sum()], rtol=1e-5)


def test_object_argument():
    class Handle(nn.Object):
        pass

    def model(x, h):
        assert isinstance(h, Handle)
        return op.wrap_nested(x._expr, "x") + 1, h

    kept = weft.get_global_func("vm.builtin.attention_kv_cache_create")(
        weft.runtime.tensor(X), weft.runtime.ShapeTuple([3, 4]), 0
    )
    mod = trace(model, x=["n", 4], h=spec.Object(Handle))
    y, out = compiled(mod)["forward"](weft.runtime.tensor(X), kept)
    assert out is kept
    np.testing.assert_allclose(y.numpy(), X + 1)


# --- sampling ---------------------------------------------------------------------------------------------------------


def probabilities(batch, vocabulary, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(vocabulary), batch).astype("float32")


def test_multinomial():
    p = probabilities(3, 7)
    for rows, dtype in ((None, "int64"), ([0, 2, 2, 1, 0], "int32")):
        u = np.random.default_rng(1).random((3 if rows is None else len(rows), 1), "float32")
        u[0] = 0
        specs = {"p": [3, "v"], "u": [len(u), 1]}
        if rows is None:
            found = run(lambda p, u: op.multinomial_from_uniform(p, u), p, u, **specs)
        else:
            found = run(
                lambda p, u, i, d=dtype: op.multinomial_from_uniform(p, u, i, d),
                p,
                u,
                np.array(rows)[:, None],
                **specs,
                i=(["k", 1], "int64"),
            )
        total = np.cumsum(p, 1)[list(range(3)) if rows is None else rows]
        want = [min(int(np.searchsorted(t, x, "right")), 6) for t, x in zip(total, u[:, 0], strict=True)]
        assert found.numpy().dtype == dtype
        np.testing.assert_array_equal(found.numpy()[:, 0], want)
    with pytest.raises(error.InvalidArgument, match="one for each row"):
        trace(lambda p, u: op.multinomial_from_uniform(p, u), p=[3, "v"], u=[2, 1])


TOP = (([0.5], [9]), ([0.9], [2]), ([0.0], [5]), ([1.0], [1]), ([2.0], [100]), ([0.7], [4]))


def kept_of(sorted_p, top_p, top_k):
    """How many of the likeliest are kept: up to the one that reaches top_p, at most top_k."""
    total = np.cumsum(sorted_p)
    count = 1
    while count < len(sorted_p) and total[count - 1] < top_p and count < top_k:
        count += 1
    return count


def test_top_p_top_k():
    p = probabilities(len(TOP), 9)
    order = np.argsort(-p, 1, kind="stable")
    ordered = np.take_along_axis(p, order, 1)
    top_p, top_k = np.array([t[0] for t in TOP], "float32"), np.array([t[1] for t in TOP], "int32")
    specs = {"p": ["b", "v"], "s": ["b", "v"], "tp": ["b", 1], "tk": (["b", 1], "int32")}
    found = run(op.renormalize_top_p_top_k_prob, p, ordered, top_p, top_k, **specs).numpy()
    u = np.random.default_rng(3).random((len(TOP), 1), "float32")
    sampled = run(
        lambda s, i, tp, tk, u, j: op.sample_top_p_top_k_from_sorted_prob(s, i, tp, tk, u, j),
        ordered,
        order.astype("int32"),
        top_p,
        top_k,
        u,
        np.arange(len(TOP))[:, None],
        s=["b", "v"],
        i=(["b", "v"], "int32"),
        tp=["b", 1],
        tk=(["b", 1], "int32"),
        u=["o", 1],
        j=(["o", 1], "int64"),
    ).numpy()
    assert sampled.dtype == np.int32
    for b, (tp, tk) in enumerate(TOP):
        n = kept_of(ordered[b], tp[0], tk[0])
        kept = np.where(p[b] >= ordered[b, n - 1], p[b], 0)
        np.testing.assert_allclose(found[b], kept / kept.sum(), rtol=1e-5)
        share = np.cumsum(ordered[b]) / np.cumsum(ordered[b])[n - 1]
        assert sampled[b, 0] == order[b, min(int(np.searchsorted(share, u[b, 0], "right")), 8)]


# --- what goes wrong --------------------------------------------------------------------------------------------------


class TestErrors:
    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda x: op.matmul(x, op.ones((5, 2))), "matmul"),
            (lambda x: x + op.ones((3,)), "shapes do not broadcast"),
            (lambda x: x + op.ones((4,), "int32"), "different data types"),
            (lambda x: op.astype(x, "int32") + 0.5, "a fraction meets a tensor of integers"),
            (lambda x: op.concat([x, op.ones((2, 5))], 0), "concat"),
            (lambda x: op.softmax(x, 2), "axis out of range"),
            (lambda x: op.reshape(x, (-1, -1)), "more than one dimension is -1"),
            (lambda x: op.conv2d(x, x), "conv2d"),
            (lambda x: op.interpolate(x), "interpolate: unsupported arguments"),
            (lambda x: op.conv1d(op.ones((1, 2, 9)), op.ones((2, 2, 3)), stride=2, padding="same"), "cannot be 'same'"),
            (lambda x: op.tensor_ir_op(add_rows, "f", [x, "a"], x), "tensors come first, then scalars"),
            (lambda x: op.extern("f", [x], 3), "out says what the results are"),
            (lambda x: op.arange(0, 4, 0), "the step is 0"),
        ],
    )
    def test_points_at_the_line(self, function, text):
        """The error shows the line of the model that made it."""
        shown = str(refuses(error.WeftError, "", trace, function, x=["n", 4]))
        assert text in shown and f"{__file__}:" in shown and "(lambda x:" in shown

    def test_bindings_know_their_lines(self):
        span = trace(lambda x: op.exp(x), x=["n", 4])["forward"].body.blocks[0].bindings[0].span
        assert span.file == __file__ and "op.exp(x)" in open(__file__).read().splitlines()[span.line - 1]

    def test_outside_of_an_export(self):
        x = nn.Tensor.placeholder(["n", 4], "float32")
        refuses(error.InvalidArgument, "only while a module is exported", lambda: x + 1)

    def test_result(self):
        for function, text in (
            (lambda x: None, "without a return"),
            (lambda x: {"a": x}, "returns what no function can"),
        ):
            refuses(error.InvalidArgument, text, trace, function, x=["n"])

    def test_unfit_tensors(self):
        with pytest.raises(error.InvalidArgument, match="wraps an expression of a tensor"):
            nn.Tensor(_expr=weft.relax.Var("x", weft.relax.ShapeType(None)))
        refuses(error.DTypeMismatch, "", trace, lambda x: op.astype(x, "int32") * 1.5, x=["n"])


def test_a_failed_export_leaves_the_module_whole():
    class Model(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(4, 2)

        def good(self, x):
            return self.fc(x)

        def bad(self, x):
            return self.fc(x) + op.ones((5,))

    model = Model()
    specs = {"x": spec.Tensor(["n", 4], "float32")}
    refuses(error.WeftError, "", model.export_tvm, {"bad": specs})
    assert weft.relax.BlockBuilder.current() is None
    mod, _ = model.export_tvm({"good": specs})
    assert [v.name_hint for v, f in mod.items() if isinstance(f, ir.Function)] == ["good"]


def test_scalars_of_results():
    check(
        lambda x: [op.sum(x * 2.0) / 3, op.where(x > 0, 1, x)],
        lambda x: [x.sum() * 2 / 3, torch.where(x > 0, 1, x)],
        ({"n": 3},),
        x=["n"],
    )


def test_unknown_tensors():
    """Parameters in plain lists, those of mode "none", and values of another place are named."""

    class Model(nn.Module):
        def __init__(self):
            self.layers = [nn.Linear(4, 4)]
            self.fc = nn.Linear(4, 4, bias=False)
            self.n = weft.tir.SizeVar("k", "int64")

        def hidden(self, x):
            return self.layers[0](x)

        def own(self, x):
            return self.fc(x)

        def size(self, x):
            return op.reshape(x, (self.n, -1))

    x = spec.Tensor(["n", 4], "float32")
    for method, mode, text in (
        ("hidden", "plain", r"a tensor R.Tensor\(\(4, 4\)"),
        ("own", "none", "found fc.weight"),
        ("size", "plain", "the size 'k'"),
    ):
        with pytest.raises(error.InvalidArgument, match=f"method '{method}' uses what it does not get[\\s\\S]*{text}"):
            Model().export_tvm({method: {"x": x, "$": {"param_mode": mode}}})
