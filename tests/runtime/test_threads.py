import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.threads import at_once
from weft import ffi, runtime

BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
ffi.LIBRARY.weft_parallel_for.argtypes = [BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
ffi.LIBRARY.weft_parallel_forwards.argtypes = ffi.LIBRARY.weft_parallel_for.argtypes
ffi.LIBRARY.weft_workspace_alloc.restype = ctypes.c_void_p
ffi.LIBRARY.weft_workspace_alloc.argtypes = [ctypes.c_int64]
ffi.LIBRARY.weft_workspace_free.argtypes = [ctypes.c_void_p]


def covered(extent, grain):
    pieces = []
    lock = threading.Lock()

    @BODY
    def body(begin, end, _ctx):
        with lock:
            pieces.append((begin, end))
        return 0

    assert ffi.LIBRARY.weft_parallel_for(body, None, extent, grain) == 0
    return sorted(pieces)


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    runtime.set_num_threads(request.param)
    yield request.param
    runtime.set_num_threads(0)


@pytest.mark.parametrize(
    ("extent", "grain"), [(0, 1), (1, 1), (7, 1), (1000, 1), (1000, 100), (1000, 999), (10, 1000), (5, 0), (1000, -100)]
)
def test_every_iteration_once(threads, extent, grain):
    pieces = covered(extent, grain)
    assert [i for b, e in pieces for i in range(b, e)] == list(range(extent))
    if extent > grain > 0:
        assert all(e - b >= grain for b, e in pieces[:-1])
    if threads == 1 and extent:
        assert len(pieces) == 1


def test_more_iterations_than_fit_in_32_bits(threads):
    pieces = covered(3 << 32, 1 << 20)
    assert pieces[0][0] == 0 and pieces[-1][1] == 3 << 32
    assert all(end == begin for (_, end), (begin, _) in zip(pieces, pieces[1:], strict=False))
    assert len(pieces) == 1 or len(pieces) >= threads


def test_a_thread_has_its_part_again_forwards_and_backwards_in_turn():
    runtime.set_num_threads(2)
    caller, pieces = threading.get_ident(), []

    @BODY
    def body(begin, end, _ctx):
        if threading.get_ident() == caller:
            pieces.append((begin, end))
        time.sleep(0.002)
        return 0

    ends = set()
    for _ in range(2):
        pieces.clear()
        assert ffi.LIBRARY.weft_parallel_for(body, None, 120, 1) == 0
        assert len({begin < 60 for begin, _ in pieces[:3]}) == 1
        ends.add(pieces[0][0] if pieces[0][0] == 0 else pieces[0][1])
    assert ends == {0, 60}
    runtime.set_num_threads(0)


def test_what_a_slow_thread_leaves_is_done_by_others():
    runtime.set_num_threads(2)
    caller, done = threading.get_ident(), {True: 0, False: 0}

    @BODY
    def body(begin, end, _ctx):
        mine = threading.get_ident() == caller
        done[mine] += end - begin
        time.sleep(0.0 if mine else 0.2)
        return 0

    assert ffi.LIBRARY.weft_parallel_for(body, None, 120, 1) == 0
    assert done[True] + done[False] == 120 and done[True] >= 100
    runtime.set_num_threads(0)


def test_a_loop_that_looks_ahead_runs_forwards():
    runtime.set_num_threads(2)
    for run in (ffi.LIBRARY.weft_parallel_forwards, ffi.LIBRARY.weft_parallel_for):
        ascending = []
        for _ in range(4):
            taken = {}

            @BODY
            def body(begin, end, _ctx, taken=taken):
                taken.setdefault(threading.get_ident(), []).append(begin)
                time.sleep(0.001)
                return 0

            assert run(body, None, 64, 1) == 0
            own = taken[threading.get_ident()][:8]  # before it helps the other thread
            ascending.append(own == sorted(own))
        assert all(ascending) == (run is ffi.LIBRARY.weft_parallel_forwards)
    runtime.set_num_threads(0)


def light_loop(seconds):
    """The number of threads that a light loop ran on, with pieces that take this long."""
    seen = set()

    @BODY
    def body(begin, end, _ctx):
        seen.add(threading.get_ident())
        time.sleep(seconds)
        return 0

    assert ffi.LIBRARY.weft_parallel_for(body, None, 8, -2) == 0
    return len(seen)


def test_a_light_loop_wakes_nobody():
    runtime.set_num_threads(2)
    covered(1000, 1)
    time.sleep(0.3)
    assert light_loop(0.001) == 1
    runtime.set_num_threads(0)


def test_light_loops_that_keep_coming_are_shared():
    runtime.set_num_threads(2)
    nothing, end = BODY(lambda begin, end, ctx: 0), time.monotonic() + 90
    while time.monotonic() < end:  # beside a neighbour that compiles on all cores they do not keep coming
        for _ in range(100):
            ffi.LIBRARY.weft_parallel_for(nothing, None, 8, -2)
        if light_loop(0.001) == 2:
            break
    else:
        pytest.fail("light loops were never shared")
    runtime.set_num_threads(0)


def test_nested_runs_inline(threads):
    seen = []
    lock = threading.Lock()

    @BODY
    def inner(begin, end, _ctx):
        with lock:
            seen.append((begin, end))
        return 0

    @BODY
    def outer(begin, end, _ctx):
        for _ in range(begin, end):
            if ffi.LIBRARY.weft_parallel_for(inner, None, 100, 1) != 0:
                return 1
        return 0

    assert ffi.LIBRARY.weft_parallel_for(outer, None, 8, 1) == 0
    assert sum(e - b for b, e in seen) == 800
    if threads > 1:
        assert seen == [(0, 100)] * 8


def test_first_error_code_comes_back(threads):
    @BODY
    def body(begin, end, _ctx):
        return 17 if begin <= 500 < end else 0

    assert ffi.LIBRARY.weft_parallel_for(body, None, 1000, 1) == 17
    assert covered(10, 1)[-1][1] == 10


def test_several_callers(threads):
    wrong = []

    def caller():
        for _ in range(50):
            if [i for b, e in covered(64, 1) for i in range(b, e)] != list(range(64)):
                wrong.append(1)

    at_once(lambda _: caller(), 4)
    assert wrong == []


def test_fork_after_use():
    runtime.set_num_threads(3)
    covered(1000, 1)
    pid = os.fork()
    if pid == 0:
        flat = [i for b, e in covered(1000, 1) for i in range(b, e)]
        os._exit(0 if flat == list(range(1000)) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert covered(1000, 1)[-1][1] == 1000
    runtime.set_num_threads(0)


def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_environment_sets_the_number():
    assert run("from weft.runtime import num_threads; print(num_threads())", WEFT_NUM_THREADS="3") == "3"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_affinity_bounds_the_number():
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{one}}}); from weft.runtime import num_threads; print(num_threads())"
    env = {k: v for k, v in os.environ.items() if k != "WEFT_NUM_THREADS"}
    assert (
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()
        == "1"
    )


def test_default_number():
    runtime.set_num_threads(0)
    assert 1 <= runtime.num_threads() <= max(os.cpu_count() or 1, int(os.environ.get("WEFT_NUM_THREADS", "0")))
    runtime.set_num_threads(2)
    assert runtime.num_threads() == 2
    runtime.set_num_threads(0)


@pytest.mark.parametrize("nbytes", [0, 1, 64, 1000, 1 << 16, (1 << 20) + 3, 5 << 20])
def test_workspace(nbytes):
    a = ffi.LIBRARY.weft_workspace_alloc(nbytes)
    b = ffi.LIBRARY.weft_workspace_alloc(nbytes)
    assert a != b
    assert a % 64 == b % 64 == 0
    view = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(a))
    view[:] = 7
    np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(b))[:] = 8
    assert (view == 7).all()
    ffi.LIBRARY.weft_workspace_free(b)
    ffi.LIBRARY.weft_workspace_free(a)
    again = ffi.LIBRARY.weft_workspace_alloc(nbytes)
    assert again in (a, b)
    ffi.LIBRARY.weft_workspace_free(again)
    ffi.LIBRARY.weft_workspace_free(None)


def test_workspace_of_other_threads_is_apart():
    found = []

    def work():
        p = ffi.LIBRARY.weft_workspace_alloc(4096)
        found.append(p)
        barrier.wait()
        ffi.LIBRARY.weft_workspace_free(p)

    barrier = threading.Barrier(4)
    at_once(lambda _: work(), 4)
    assert len(set(found)) == 4


def test_symbol_addresses():
    names = """weft_parallel_for weft_parallel_forwards weft_workspace_alloc weft_workspace_free weft_arg_error
        weft_set_error weft_num_threads""".split()
    assert len({ffi.symbol_address(n) for n in names}) == len(names)
