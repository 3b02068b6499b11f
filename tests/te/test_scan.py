"""Recurrences by te.scan, scheduled: steps, several states, intermediates, loops inside a step."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import te


def compile_and_run(schedule, tensors, *arrays):
    weft.build(schedule, tensors, target="llvm")(*arrays)


def cumulative(m, n, init_is_input=False):
    x = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    first = te.placeholder((1, n), name="first") if init_is_input else te.compute((1, n), lambda _, i: x[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    return x, first, update, te.scan(first, update, state, inputs=[x])


@pytest.mark.parametrize(("m", "n"), [(1, 3), (7, 5), (20, 16)])
@pytest.mark.parametrize("init_is_input", [False, True])
def test_cumulative_sum(m, n, init_is_input):
    x, first, update, out = cumulative(m, n, init_is_input)
    s = te.create_schedule(out.op)
    outer, inner = s[update].split(update.op.axis[1], factor=4)
    s[update].vectorize(inner)
    values, result = np.random.default_rng(0).random((m, n), "float32"), np.zeros((m, n), "float32")
    start = np.full((1, n), 2, "float32")
    if init_is_input:
        compile_and_run(s, [x, first, out], values, start, result)
        expected = np.concatenate([start, values[1:]]).cumsum(0)
    else:
        compile_and_run(s, [x, out], values, result)
        expected = values.cumsum(0)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize(("moved", "loop", "message"), [("step", 0, "outside of it"), ("first", 1, "before its step")])
def test_steps_and_first_rows_keep_their_place(moved, loop, message):
    """What a step computes is in the innermost loop of the steps, however they were split; first rows are before it."""
    x, first, update, out = cumulative(7, 5)
    s = te.create_schedule(out.op)
    cached = s.cache_write(update, "local")
    s[out].split(out.op.scan_axis, factor=4)
    values, result = np.random.default_rng(0).random((7, 5), "float32"), np.zeros((7, 5), "float32")
    compile_and_run(s, [x, out], values, result)
    np.testing.assert_allclose(result, values.cumsum(0), rtol=1e-5)
    s[cached if moved == "step" else first].compute_at(s[out], s[out].leaf_iter_vars[loop])
    refuses(weft.error.ScheduleError, message, weft.lower, s, [x, out])


def test_symbolic_length_and_a_consumer():
    m = te.size_var("m")
    x, _, update, out = cumulative(m, 6)
    double = te.compute((m, 6), lambda t, i: out[t, i] * 2.0, name="double")
    s = te.create_schedule(double.op)
    s[double].parallel(double.op.axis[0])
    for length in (1, 2, 9):
        values, result = np.random.default_rng(1).random((length, 6), "float32"), np.zeros((length, 6), "float32")
        compile_and_run(s, [x, double], values, result)
        np.testing.assert_allclose(result, 2 * values.cumsum(0), rtol=1e-5)


def test_two_states_and_an_intermediate():
    m, n = 12, 4
    x = te.placeholder((m, n), name="X")
    a, b = te.placeholder((m, n), name="a"), te.placeholder((m, n), name="b")
    a0, b0 = (te.compute((1, n), lambda _, i, at=at: x[at, i], name=f"init{at}") for at in (0, 1))
    mixed = te.compute((m, n), lambda t, i: a[t - 1, i] * 0.5 + x[t, i], name="mixed")
    new_a = te.compute((m, n), lambda t, i: mixed[t, i] + b[t - 1, i], name="new_a")
    new_b = te.compute((m, n), lambda t, i: mixed[t, i] * 0.25 - b[t - 1, n - 1 - i], name="new_b")
    out_a, out_b = te.scan([a0, b0], [new_a, new_b], [a, b])
    values = np.random.default_rng(2).standard_normal((m, n)).astype("float32")
    ea, eb = np.zeros((m, n), "float32"), np.zeros((m, n), "float32")
    ea[0], eb[0] = values[0], values[1]
    for t in range(1, m):
        middle = ea[t - 1] * 0.5 + values[t]
        ea[t], eb[t] = middle + eb[t - 1], middle * 0.25 - eb[t - 1, ::-1]
    for inline in (False, True):
        s = te.create_schedule(out_a.op)
        if inline:
            s[mixed].compute_inline()
        ra, rb = np.zeros((m, n), "float32"), np.zeros((m, n), "float32")
        compile_and_run(s, [x, out_a, out_b], values, ra, rb)
        np.testing.assert_allclose(ra, ea, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rb, eb, rtol=1e-5, atol=1e-6)


def test_a_reduction_in_each_step():
    """A recurrent layer: ``h[t] = tanh(x[t] + w @ h[t - 1])``."""
    steps, n = 6, 5
    x, w = te.placeholder((steps, n), name="X"), te.placeholder((n, n), name="W")
    h = te.placeholder((steps, n), name="h")
    k = te.reduce_axis((0, n), name="k")
    start = te.compute((1, n), lambda _, i: te.const(0.0, "float32"), name="start")
    product = te.compute((steps, n), lambda t, i: te.sum(w[i, k] * h[t - 1, k], axis=k), name="product")
    update = te.compute((steps, n), lambda t, i: te.tanh(x[t, i] + product[t, i]), name="update")
    out = te.scan(start, update, h, inputs=[x, w])
    s = te.create_schedule(out.op)
    rng = np.random.default_rng(3)
    xs, ws, result = rng.random((steps, n), "float32"), rng.random((n, n), "float32"), np.zeros((steps, n), "float32")
    compile_and_run(s, [x, w, out], xs, ws, result)
    state = np.zeros(n, "float32")
    for t in range(1, steps):
        state = np.tanh(xs[t] + ws @ state)
        np.testing.assert_allclose(result[t], state, rtol=1e-5)
    assert not result[0].any()


def test_one_input_of_a_scan_is_no_list():
    x = te.compute((5, 3), lambda t, i: t + i, name="x")
    state = te.placeholder((5, 3), dtype="int32", name="state")
    init = te.compute((1, 3), lambda _, i: x[0, i], name="init")
    sums = te.scan(init, te.compute((5, 3), lambda t, i: state[t - 1, i] + x[t, i], name="sum"), state, inputs=x)
    assert list(sums.op.inputs) == [x]
    for tensor in (x, x[0]):  # without an end it would be filled for ever
        refuses(TypeError, "not iterable", tuple, tensor)
