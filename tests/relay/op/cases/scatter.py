"""Scattering."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Known, Sizes, call, cases

COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "update": lambda a, b: b}


def _along(axis: int, how: str):
    def expect(data, indices, updates):
        out = data.copy()
        for at in np.ndindex(*indices.shape):
            to = list(at)
            to[axis] = indices[at]
            out[tuple(to)] = COMBINE[how](out[tuple(to)], updates[at])
        return out

    return expect


@cases("scatter", "scatter_elements")
def _scatter(s: Sizes) -> Case:
    places = s.integer(s.a, 3)
    places.value[:] = [np.random.default_rng(i).permutation(5)[:3] for i in range(s.a)]
    return call(s.real(s.a, 5), places, s.real(s.a, 3), axis=1, expect=_along(1, "update"))


@cases("scatter_add")
def _scatter_add(s: Sizes) -> Case:
    return call(s.real(4, s.b), s.integer(6, s.b, low=0, high=4), s.real(6, s.b), axis=0, expect=_along(0, "add"))


@cases("scatter_elements")
def _scatter_reduced(s: Sizes) -> Case:
    return call(
        s.real(s.a, 5),
        s.integer(s.a, 3, low=0, high=5),
        s.real(s.a, 3),
        axis=1,
        reduction="max",
        expect=_along(1, "max"),
    )


@cases("scatter_nd")
def _scatter_nd(s: Sizes) -> Case:
    def expect(data, indices, updates):
        out = data.copy()
        np.add.at(out, tuple(indices), updates)
        return out

    return call(s.real(4, 5, s.c), s.integer(2, s.b, low=0, high=4), s.real(s.b, s.c), mode="add", expect=expect)


@cases("scatter_nd")
def _scatter_nd_update(s: Sizes) -> Case:
    places = s.integer(1, 3)
    places.value[:] = [[4, 0, 2]]

    def expect(data, indices, updates):
        out = data.copy()
        out[indices[0]] = updates
        return out

    return call(s.real(5, s.c), places, s.real(3, s.c), expect=expect)


@cases("invert_permutation")
def _invert_permutation(s: Sizes) -> Case:
    p = s.integer(s.c, dtype="int32")
    p.value[:] = np.random.default_rng(3).permutation(int(s.c))
    return call(p, expect=lambda p: np.argsort(p).astype("int32"))


def _dense(i, v, d, *_):
    out = np.full((4, 5), d)
    out[i[:, 0], i[:, 1]] = v
    return out


@cases("sparse_to_dense")
def _sparse(s: Sizes) -> Cases:
    yield call(np.int64([[0, 1], [3, 4]]), np.float32([1, 2]), np.float32(-1), output_shape=(4, 5), expect=_dense)
    yield call(np.int64([0, 3]), np.float32(7), np.float32(0), output_shape=(4,), expect=np.float32([7, 0, 0, 7]))


@cases("dyn.sparse_to_dense")
def _dyn_sparse(s: Sizes) -> Case:
    return call(np.int64([[0, 1], [3, 4]]), np.float32([1, 2]), np.float32(-1), np.int64([4, 5]), expect=_dense)


@cases("strided_set")
def _strided_set(s: Sizes) -> Case:
    def expect(data, v, *_):
        out = data.copy()
        out[1:6:2, -3:] = v
        return out

    bounds = [Known(np.int64(b)) for b in ([1, -3], [6, 100], [2, 1])]
    return call(s.real(8, 7, s.c), s.real(3, 3, s.c), *bounds, expect=expect)


@cases("strided_set")
def _strided_set_of_few_bounds(s: Sizes) -> Case:
    def expect(data, v, *_):
        out = data.copy()
        out[1::2, :4, ::-3] = v
        return out

    bounds = [Known(np.int64(b)) for b in ([1], [100, 4], [2, 1, -3])]
    return call(s.real(8, 7, 5), s.real(4, 4, 2), *bounds, expect=expect)


def _segments(n: int):
    def expect(x, ids, *_):
        out = np.zeros((n, *x.shape[1:]))
        np.add.at(out, ids, x)
        return out

    return expect


@cases("segment_sum")
def _segment_sum(s: Sizes) -> Case:
    return call(s.real(s.b, s.c), s.integer(s.b, low=0, high=4), num_segments=4, expect=_segments(4))


@cases("dyn.segment_sum")
def _dyn_segment_sum(s: Sizes) -> Case:
    return call(s.real(s.b, 2, s.c), s.integer(s.b, low=0, high=4), np.int64([5]), expect=_segments(5))
