"""Where elements of tensors lie: ``transform_layout`` of stages, and axis separators of buffers."""

import itertools

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir
from weft.script import tir as T

WAYS = {  # where the elements of 12 x 8 lie, and the same of an array
    "rows": (None, lambda x: x),
    "turned": (lambda i, j: [j, i], np.transpose),
    "flat": (lambda i, j: [i * 8 + j], np.ravel),
    "tiles": (lambda i, j: [i // 4, j // 2, i % 4, j % 2], lambda x: x.reshape(3, 4, 4, 2).transpose(0, 2, 1, 3)),
    "apart": (lambda i, j: [j // 4, te.AXIS_SEPARATOR, i, j % 4], lambda x: x.reshape(12, 2, 4).transpose(1, 0, 2)),
}


def program(inside):
    a = te.placeholder((12, 8), "int32", "a")
    b = te.compute((12, 8), lambda i, j: a[i, j] * 2, "b")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((12, 8), lambda i, j: te.sum(b[11 - i, k] * (j + 1), axis=k), "c")
    s = te.create_schedule(c.op)
    if inside:
        s[b].compute_at(s[c], c.op.axis[0])
    return s, [a, b, c]


@pytest.mark.parametrize(("of_a", "of_c"), list(itertools.product(WAYS, repeat=2)))
def test_elements_lie_where_functions_say(of_a, of_c):
    of_b = of_a if of_a != "flat" else "tiles"
    s, tensors = program(inside=of_c == "rows")
    for t, way in zip(tensors, (of_a, of_b, of_c), strict=True):
        if WAYS[way][0] is not None:
            s[t].transform_layout(WAYS[way][0])
    s[tensors[2]].split(s[tensors[2]].leaf_iter_vars[0], 5)
    s = ir.load_json(ir.save_json(s))
    a, c = s.stages[0].op.output(0), s.stages[2].op.output(0)
    given = np.arange(96, dtype="int32").reshape(12, 8)
    expected = WAYS[of_c][1]((given * 2)[::-1].sum(1)[:, None] * np.arange(1, 9))
    out = weft.runtime.tensor(np.zeros(expected.shape, "int32"))
    weft.build(s, [a, c], target="llvm")(weft.runtime.tensor(np.ascontiguousarray(WAYS[of_a][1](given))), out)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_twice_and_loops_over_places():
    s, (a, b, c) = program(inside=False)
    s[b].transform_layout(lambda i, j: [j, i])
    places = s[b].transform_layout(lambda j, i: [i // 3, j, i % 3])
    assert [int(iv.dom.extent) for iv in places] == [4, 8, 3]
    assert s[b].leaf_iter_vars == places
    assert s[a].transform_layout(lambda i, j: [j, i]) == []
    assert "b: T.Buffer((4, 8, 3)" in str(weft.lower(s, [a, b, c]))


def test_refused():
    s, (a, b, c) = program(inside=False)
    refuses(error.ScheduleError, "no inverse", s[b].transform_layout, lambda i, j: [i])
    refuses(error.ScheduleError, "another number|inverse", s[b].transform_layout, lambda i, j: [i % 2, j])
    s[b].split(b.op.axis[0], 4)
    refuses(error.ScheduleError, "not a loop", s[b].transform_layout, lambda i, j: [j, i])
    s[c].reorder(c.op.axis[1], c.op.axis[0])
    refuses(error.ScheduleError, "reordered", s[c].transform_layout, lambda i, j: [j, i])
    s[a].transform_layout(lambda i, j: [j, i])
    s[b].prefetch(a, s[b].leaf_iter_vars[0], 1)
    refuses(error.ScheduleError, "element by element", weft.lower, s, [a, c])
    refuses(error.InvalidArgument, "in order", tir.decl_buffer, (2, 3), axis_separators=[3])


@T.prim_func
def apart(A: T.Buffer((4, 8, 3), "float32", axis_separators=[1]), C: T.Buffer((4, 8, 3))):
    for i, j, k in T.grid(4, 8, 3):
        C[i, j, k] = A[i, j, k] + T.float32(1)


def test_separators_keep_dimensions_apart():
    assert weft.script.from_source(apart.script()).buffer_map[0][1].axis_separators == (1,)
    text = str(tir.transform.FlattenBuffer()(weft.IRModule({"main": apart})))
    assert "(4, 24)" in text and "(96,)" in text and "A_1[i, j * 3 + k]" in text
    flat = tir.decl_buffer((2, 3, 5, 7), axis_separators=[2]).get_flattened_buffer()
    assert [int(d) for d in flat.shape] == [6, 35] and flat.axis_separators == (1,)
    given, out = (weft.runtime.tensor(np.full((4, 8, 3), n, "float32")) for n in (2, 0))
    weft.build(apart, target="llvm")(given, out)
    np.testing.assert_array_equal(out.numpy(), 3)
