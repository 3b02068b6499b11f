"""Eight threads, on one virtual machine or each on its own of one executable, at changing shapes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.runtime.programs import add_twice
from weft import runtime

THREADS = 8
CALLS = 300


@pytest.mark.parametrize("shared", [True, False])
def test_equal_results(shared):
    executable = add_twice(2)
    one = runtime.VirtualMachine(executable)
    machines = [one if shared else runtime.VirtualMachine(executable) for _ in range(THREADS)]

    def work(thread):
        for i in range(CALLS):
            x = np.full((1 + (i * 7 + thread) % 40, 4), thread * CALLS + i, np.float32)
            y = machines[thread]["main"](x).numpy()
            assert y.shape == x.shape
            assert (y == 4 * x).all(), (thread, i)
        return CALLS

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [CALLS] * THREADS
