"""TVM's named schedules: the same values as without one, on any size, with results in TVM's forms."""

import numpy as np
import pytest

import weft
from weft import error, te, topi

RNG = np.random.default_rng(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES = {
    "reduce": (lambda a: topi.sum(a * 2.0), lambda x: (x * 2).sum()),
    "injective": (lambda a: topi.exp(topi.transpose(a) + 1.0), lambda x: np.exp(x.T + 1)),
    "softmax": (topi.nn.softmax, softmax),
    "argsort": (lambda a: topi.argsort(a, axis=1), lambda x: x.argsort(1, kind="stable")),
}


def run(schedule, out, args, arrays, expected):
    f = weft.build(schedule, [*args, out], "llvm")
    found = np.empty([int(d) for d in expected.shape], out.dtype)
    f(*arrays, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 48), (5, 7), (1, 1), (0, 16)])
@pytest.mark.parametrize("kind", CASES)
def test_values(kind, shape):
    if kind == "softmax" and not shape[0]:
        pytest.skip("NumPy has no maximum of nothing")
    compute, reference = CASES[kind]
    a, x = te.placeholder(shape, name="a"), RNG.standard_normal(shape).astype("float32")
    out = compute(a)
    expected = np.asarray(reference(x.astype("float64")))
    for package in (topi.generic, topi.x86):
        run(getattr(package, f"schedule_{kind}")(out), out, [a], [x], expected)


def test_symbolic_sizes_options_and_stages_of_a_schedule_that_exists():
    n = te.var("n")
    a = te.placeholder((n, 3, 8, 8), name="a")
    pool = topi.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    x = RNG.standard_normal((5, 3, 8, 8)).astype("float32")
    expected = x.reshape(5, 3, 4, 2, 4, 2).max((3, 5))
    run(topi.generic.schedule_pool(pool, "NCHW"), pool, [a], [x], expected)
    run(topi.x86.schedule_conv2d_nchw({"a": "configuration"}, [pool]), pool, [a], [x], expected)
    s = te.create_schedule(pool.op)
    assert topi.x86.schedule_injective_from_existing(s, pool) is s
    run(s, pool, [a], [x], expected)


def test_a_text_shows_outputs_that_are_no_arguments():
    a = te.placeholder((4, 16), name="a")
    out = topi.sum(a, axis=1)
    text = str(weft.lower(te.create_schedule(out.op), [a], simple_mode=True))
    assert f"{out.op.name} = T.alloc_buffer" in text and "T.Buffer((4,)" not in text
    with pytest.raises(error.InvalidArgument, match=r"output .* is not among the arguments"):
        weft.build(te.create_schedule(out.op), [a], "llvm")


def test_names():
    assert topi.cuda.conv2d_nchw is topi.nn.conv2d_nchw and topi.generic.nn is topi.generic
    with pytest.raises(AttributeError, match="schedule_nothing"):
        _ = topi.generic.schedule_nothing
    with pytest.raises(error.InvalidArgument, match="a schedule needs results"):
        topi.generic.schedule_reduce([])
    assert topi.mali is topi.cuda
    assert topi.testing.get_reduce_schedule("llvm") is topi.generic.schedule_reduce
