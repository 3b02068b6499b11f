"""The threads of NumPy's products while a compiler works beside them."""

import threading

import numpy as np
import pytest

from weft.baseline.threads import _controls, few_threads


def test_half_of_the_cores_and_all_again_whoever_leaves_first():
    count, change = _controls()
    if count is None or change is None:
        pytest.skip("NumPy has another library than OpenBLAS")
    before = count()
    change(2)
    try:
        inside, leave = threading.Barrier(2), threading.Event()

        def other() -> None:
            with few_threads():
                inside.wait()
                leave.wait()

        thread = threading.Thread(target=other)
        with few_threads():
            thread.start()
            inside.wait()
            x = np.random.default_rng(0).standard_normal((300, 300))
            np.testing.assert_allclose(x @ np.linalg.inv(x), np.eye(300), atol=1e-8)
        assert count() <= 2
        leave.set()
        thread.join()
        assert count() == 2
    finally:
        change(before)
