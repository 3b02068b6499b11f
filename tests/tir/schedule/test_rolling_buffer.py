"""rolling_buffer, of te and of TIR schedules: overlapping tiles keep what the last one made, and results stay."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir
from weft.script import tir as T
from weft.tir.pipeline import lower


def _maxima(x, k, step=1):
    """Maxima over windows of `k` by `k`, `step` apart."""
    return np.lib.stride_tricks.sliding_window_view(x, (k, k))[::step, ::step].max((-1, -2))


def _pool(x, n, k, step=1):
    r, c = te.reduce_axis((0, k)), te.reduce_axis((0, k))
    return te.compute((n, n), lambda i, j: te.max(x[i * step + r, j * step + c], axis=[r, c]), name=f"pool{n}")


def _run(built, n, m):
    values = np.random.default_rng(n).integers(-99, 99, (n, n), dtype="int32")
    out = weft.runtime.tensor(np.zeros((m, m), "int32"))
    built(weft.runtime.tensor(values), out)
    return values, out.numpy()


@pytest.mark.parametrize("tile", [(4, 8), (3, 5), (7, 2), (1, 3), (11, 11)])
@pytest.mark.parametrize("rolls", [(True, True), (True, False), (False, True)])
def test_cascades_of_te_keep_their_values(tile, rolls):
    x = te.placeholder((27, 27), name="x", dtype="int32")
    a = _pool(x, 25, 3)
    b = _pool(a, 12, 3, 2)
    c = _pool(b, 11, 2)
    sch = te.create_schedule(c.op)
    sch[c].tile(*sch[c].op.axis, *tile)
    for stage, roll in zip((b, a), rolls, strict=True):
        sch[stage].compute_at(sch[c], sch[c].leaf_iter_vars[1])
        if roll:
            sch[stage].rolling_buffer()
    values, found = _run(weft.build(sch, [x, c], "llvm"), 27, 11)
    np.testing.assert_array_equal(found, _maxima(_maxima(_maxima(values, 3), 3, 2), 2))


def test_tiles_that_move_by_halves_roll():
    x = te.placeholder((16, 16), name="x", dtype="int32")
    a = _pool(x, 14, 3)
    up = te.compute((24, 24), lambda i, j: te.max(a[i // 2, j // 2], a[i // 2 + 2, j // 2 + 2]), name="up")
    sch = te.create_schedule(up.op)
    sch[up].tile(*up.op.axis, 5, 5)
    sch[a].compute_at(sch[up], sch[up].leaf_iter_vars[1])
    sch[a].rolling_buffer()
    values, found = _run(weft.build(sch, [x, up], "llvm"), 16, 24)
    pooled = _maxima(values, 3)
    np.testing.assert_array_equal(found, np.maximum(pooled[:12, :12], pooled[2:, 2:]).repeat(2, 0).repeat(2, 1))


@T.prim_func
def cascade(A: T.Buffer((14, 14), "int32"), C: T.Buffer((10, 10), "int32")):
    B = T.alloc_buffer((12, 12), "int32")
    for i, j, r, c in T.grid(12, 12, 3, 3):
        with T.block("B"):
            vi, vj, vr, vc = T.axis.remap("SSRR", [i, j, r, c])
            with T.init():
                B[vi, vj] = T.int32(-100)
            B[vi, vj] = T.max(B[vi, vj], A[vi + vr, vj + vc])
    for i, j, r, c in T.grid(10, 10, 3, 3):
        with T.block("C"):
            vi, vj, vr, vc = T.axis.remap("SSRR", [i, j, r, c])
            with T.init():
                C[vi, vj] = T.int32(-100)
            C[vi, vj] = T.max(C[vi, vj], B[vi + vr, vj + vc])


def _tiled(tile, order="ijkl"):
    sch = tir.Schedule(cascade, debug_mask="all")
    i, j = sch.get_loops(sch.get_block("C"))[:2]
    loops = dict(zip("ikjl", [*sch.split(i, [None, tile[0]]), *sch.split(j, [None, tile[1]])], strict=True))
    sch.reorder(*(loops[n] for n in order))
    sch.compute_at(sch.get_block("B"), loops[order[1]])
    return sch, loops


@pytest.mark.parametrize("order", ["ijkl", "jikl"])
@pytest.mark.parametrize("tile", [(4, 4), (3, 5), (10, 2), (1, 1), (6, 7)])
def test_blocks_keep_their_values_and_shrink(tile, order):
    sch, _ = _tiled(tile, order)
    sch.rolling_buffer(sch.get_block("B"), 0)
    values, found = _run(weft.build(sch.mod, "llvm"), 14, 10)
    np.testing.assert_array_equal(found, _maxima(_maxima(values, 3), 3))
    if order == "ijkl":
        (ring,) = {n.buffer for n in weft.ir.walk(lower(sch.mod["main"]).body) if isinstance(n, tir.AllocBuffer)}
        assert int(np.prod(ring.shape)) == (12 * 4 if tile[0] == 10 else (tile[0] + 2) * 12)
    replayed = tir.Schedule(cascade)
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    weft.ir.assert_structural_equal(replayed.mod, sch.mod)


def test_each_element_is_computed_once():
    @weft.register_global_func("test.rolling.count", override=True)
    def count(i):
        counted.append(i)
        return 0

    x = te.placeholder((12,), name="x", dtype="int32")
    a = te.compute((12,), lambda i: x[i] + tir.call_packed("test.rolling.count", i), name="a")
    b = te.compute((10,), lambda i: a[i] + a[i + 2], name="b")
    for rolls, calls in ((False, 16), (True, 12)):
        counted = []
        sch = te.create_schedule(b.op)
        outer, _ = sch[b].split(b.op.axis[0], 4)
        sch[a].compute_at(sch[b], outer)
        if rolls:
            sch[a].rolling_buffer()
        values, out = np.arange(12, dtype="int32"), weft.runtime.tensor(np.zeros(10, "int32"))
        weft.build(sch, [x, b], "llvm")(weft.runtime.tensor(values), out)
        np.testing.assert_array_equal(out.numpy(), values[:10] + values[2:])
        assert len(counted) == calls


def test_what_cannot_roll_is_refused():
    sch, loops = _tiled((4, 4))
    sch.parallel(loops["i"])
    refuses(error.ScheduleError, "not made one after another", sch.rolling_buffer, sch.get_block("B"), 0)
    refuses(error.ScheduleError, "no loop is around", tir.Schedule(cascade).rolling_buffer, "B", 0)
    refuses(error.ScheduleError, "writes 1 buffers", _tiled((4, 4))[0].rolling_buffer, "B", 1)
    refuses(error.ScheduleError, "used outside", _tiled((4, 4))[0].rolling_buffer, "C", 0)
    x = te.placeholder((12,), name="x")
    a = te.compute((12,), lambda i: x[i] * 2, name="a")
    b = te.compute((10,), lambda i: a[i] + a[i + 2], name="b")
    sch = te.create_schedule(b.op)
    sch[a].rolling_buffer()
    refuses(error.ScheduleError, "compute_at puts it into a loop", weft.build, sch, [x, b], "llvm")
    refuses(error.ScheduleError, "is an output", sch[b].rolling_buffer)


@T.prim_func
def two_tiles_back(A: T.Buffer((20,), "int32"), C: T.Buffer((16,), "int32")):
    B = T.alloc_buffer((20,), "int32")
    for i in range(4):
        for k in range(8):
            with T.block("B"):
                v = T.axis.spatial(20, i * 4 + k)
                B[v] = A[v]
        for k in range(4):
            with T.block("C"):
                v = T.axis.spatial(16, i * 4 + k)
                C[v] = B[v] + B[T.max(v - 8, 0)]


def test_what_is_read_of_older_tiles_is_refused():
    with pytest.raises(error.ScheduleError, match="more of 'B' is read than the tile"):
        tir.Schedule(two_tiles_back).rolling_buffer("B", 0)
