"""After some calls a session takes no memory from the system, whatever it returns: outputs come back to the pool."""

import numpy as np
import pytest

import weft
from tests import onnx_models
from tests.threads import at_once

_statistics = weft.ffi.get_global_func("weft.pool_statistics")


def allocations() -> int:
    return int(_statistics()[3])


def free_bytes() -> int:
    return int(_statistics()[2])


def session(rows, columns: int = 96) -> weft.Session:
    """Products, a normalisation and element-wise operators; two outputs, one of them returned as it is computed."""
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((columns, columns), np.float32) / columns for n in ("w1", "w2")}
    nodes = onnx_models.onnx_nodes("""
        a = MatMul(x, w1); b = Relu(a); c = MatMul(b, w2); y = Softmax <axis = -1> (c);
        t = Transpose <perm = [1, 0]> (b)""")
    matrix, turned = ("float32", (rows, columns)), ("float32", (columns, rows))
    return weft.Session(onnx_models.model(nodes, {"x": matrix}, {"y": matrix, "t": turned}, weights))


def feeds(rows: int, columns: int = 96) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(rows).standard_normal((rows, columns), np.float32)}


@pytest.mark.parametrize("rows", [1, 7, 20_000])  # the last has outputs of 7 MiB, which are mapped
def test_a_static_model_allocates_nothing(rows):
    s = session(rows)
    f = feeds(rows)
    for _ in range(10):
        s.run(f)
    before = allocations()
    for _ in range(100):
        s.run(f)
    assert allocations() == before


@pytest.mark.parametrize("sizes", [(1, 5, 64, 33, 17), (3000, 20_000, 7000)])
def test_changing_shapes_allocate_nothing(sizes):
    s = session("rows")
    given = [feeds(n) for n in sizes]
    for f in given * 4:
        s.run(f)
    before = allocations()
    for i in range(100):
        s.run(given[i * 7 % len(given)])
    assert allocations() == before


def test_an_output_that_is_kept_is_not_taken_again():
    s = session("rows")
    f = feeds(20_000)
    kept = s.run(f)[0]
    before, place = kept.numpy().copy(), kept.numpy().ctypes.data
    for _ in range(3):
        assert s.run(f)[0].numpy().ctypes.data != place
    np.testing.assert_array_equal(kept.numpy(), before)
    view = kept.numpy()
    del kept
    assert s.run(f)[0].numpy().ctypes.data != place  # the view keeps it
    np.testing.assert_array_equal(view, before)
    del view
    places = {s.run(f)[0].numpy().ctypes.data for _ in range(4)}
    assert place in places or free_bytes() == 0


def test_threads_share_what_comes_back():
    s = session("rows")
    f = feeds(5000)

    def work(times: int) -> None:
        for _ in range(times):
            s.run(f)

    def together(times: int) -> None:
        at_once(lambda _: work(times), 3)

    together(20)
    free = free_bytes()
    for _ in range(5):
        together(20)
    assert free_bytes() <= 2 * max(free, 64 << 20)


def test_what_the_pool_keeps_can_be_given_back():
    s = session(20_000)
    s.run(feeds(20_000))
    assert free_bytes() > 4 << 20
    weft.ffi.get_global_func("weft.pool_trim")()
    assert free_bytes() == 0
    s.run(feeds(20_000))
