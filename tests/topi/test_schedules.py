"""TVM's named schedules: the same values as without one, on any size, with results in TVM's forms."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.topi.running import evaluate
from weft import error, te, topi

RNG = np.random.default_rng(0)
CASES = {
    "reduce": (lambda a: topi.sum(a * 2.0), lambda x: (x * 2).sum()),
    "injective": (lambda a: topi.exp(topi.transpose(a) + 1.0), lambda x: np.exp(x.T + 1)),
    "softmax": (topi.nn.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "argsort": (lambda a: topi.argsort(a, axis=1), lambda x: x.argsort(1, kind="stable")),
}


def run(schedule, a, out, x, expected):
    f = weft.build(schedule, [a, out], "llvm")
    found = np.empty(np.shape(expected), out.dtype)
    f(x, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 48), (5, 7), (1, 1), (0, 16)])
@pytest.mark.parametrize("kind", CASES)
def test_values(kind, shape):
    a, x = te.placeholder(shape, name="a"), RNG.standard_normal(shape).astype("float32")
    out = CASES[kind][0](a)
    for package in (topi.generic, topi.x86):
        run(getattr(package, f"schedule_{kind}")(out), a, out, x, CASES[kind][1](x.astype("float64")))


def test_symbolic_sizes_options_and_names():
    a, x = te.placeholder((te.var("n"), 3, 8, 8), name="a"), RNG.standard_normal((5, 3, 8, 8)).astype("float32")
    pool = topi.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    s = te.create_schedule(pool.op)
    assert topi.x86.schedule_injective_from_existing(s, pool) is s
    for each in (s, topi.generic.schedule_pool(pool, "NCHW"), topi.x86.schedule_conv2d_nchw({"a": "config"}, [pool])):
        run(each, a, pool, x, x.reshape(5, 3, 4, 2, 4, 2).max((3, 5)))
    assert topi.cuda.conv2d_nchw is topi.nn.conv2d_nchw and topi.generic.nn is topi.generic
    assert topi.mali is topi.cuda and topi.testing.get_reduce_schedule("llvm") is topi.generic.schedule_reduce
    assert topi.gpu.dense_small_batch is topi.nn.dense and topi.cuda.sort is topi.sort
    assert topi.x86.schedule_dense_nopack is topi.testing.get_conv2d_nchw_implement("llvm")[1]
    table = {"generic": 0, "cpu": 1, "avx": 2}
    assert [topi.testing.dispatch(t, table) for t in ("llvm", weft.target.Target("opencl"))] == [1, 0]
    refuses(AttributeError, "schedule_nothing", getattr, topi.generic, "schedule_nothing")
    refuses(error.InvalidArgument, "a schedule needs results", topi.generic.schedule_reduce, [])


def test_nothing_is_computed_of_an_empty_tensor_whose_loops_are_fused():
    a, x = te.placeholder((2, 0, 3), name="a"), np.zeros((2, 0, 3), "float32")
    out = topi.exp(a)
    run(topi.generic.schedule_injective([[out]]), a, out, x, x)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
def test_references_are_what_kernels_compute(layout, method):
    data = RNG.random((2, 5, 6, 3) if layout == "NHWC" else (2, 3, 5, 6)).astype("float32")
    boxes, at = np.array([[0.1, 0.2, 0.9, 0.7], [0, 0, 1.2, 1]], "float32"), np.array([1, 0], "int32")
    for crop in ((4, 3), (1, 1), (1, 4)):
        args = (crop, layout, method, 7.0)
        found = evaluate(lambda *t, args=args: topi.image.crop_and_resize(*t, *args), data, boxes, at)
        np.testing.assert_allclose(found, topi.testing.crop_and_resize_python(data, boxes, at, *args), rtol=1e-5)
    pool = ((3, 2), (2, 3), (1, 1), (1, 0, 1, 2), "max", True, layout, True)
    found = evaluate(lambda t: topi.nn.relu(topi.nn.pool2d(t, *pool)), data)
    near = topi.testing.poolnd_python(data, *pool[:3], (1, 0), (1, 2), "max", True, True, layout=layout)
    np.testing.assert_array_equal(found, near)
    if layout == "NHWC":
        w = RNG.random((2, 3, 3, 4)).astype("float32")
        found = evaluate(lambda t, k: topi.nn.conv2d_nhwc(t, k, (2, 1), "SAME", 1), data, w)
        np.testing.assert_allclose(found, topi.testing.conv2d_nhwc_python(data, w, (2, 1), "SAME"), rtol=1e-5)


@pytest.mark.parametrize("order", ["HWIO", "HWOI", "OIHW", "IOHW"])
def test_references_of_transposed_convolutions_take_weights_in_any_order(order: str):
    data, w = RNG.random((1, 4, 5, 3)), RNG.random((3, 2, 2, 3))
    expected = topi.testing.conv2d_transpose_nchw_python(data.transpose(0, 3, 1, 2), w, 2, 1, 0).transpose(0, 2, 3, 1)
    given = w.transpose(["IOHW".index(c) for c in order])
    np.testing.assert_allclose(topi.testing.conv2d_transpose_nhwc_python(data, given, order, 2, 1), expected)


def test_comparing_with_numpy():
    a = RNG.random((3, 5)).astype("float32")
    compare = [weft.target.Target("llvm"), weft.cpu(0), topi.sum, topi.generic.schedule_reduce]
    topi.testing.compare_numpy_tvm([a], a.sum(), *compare)
    refuses(AssertionError, "Mismatched", topi.testing.compare_numpy_tvm, [a], a.sum() + np.float32(1), *compare)


def test_a_text_shows_outputs_that_are_no_arguments():
    a = te.placeholder((4, 16), name="a")
    out = topi.sum(a, axis=1)
    assert f"{out.op.name} = T.alloc_buffer" in str(weft.lower(te.create_schedule(out.op), [a], simple_mode=True))
